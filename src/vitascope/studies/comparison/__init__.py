"""``vitascope compare``: which model, with how much built-in locality, for these images?

:mod:`.compare` trains the models and answers, :mod:`.evidence` sets
the accuracies side by side, :mod:`.advice` puts the answer into words.
"""
