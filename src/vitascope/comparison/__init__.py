"""``vitascope compare``: which model, with how much built-in locality, for these images?

:mod:`.options` has the options, :mod:`.question` what they ask; :mod:`.compare` trains and answers.

Before: :mod:`.timing` says how long it takes, :mod:`.budget` what is left out, :mod:`.tuning` finds
learning rates, :mod:`.matching` widths of equal cost; :mod:`.planning` joins them. After:
:mod:`.finished_runs` reads what was trained, :mod:`.evidence` sets accuracies side by side,
:mod:`.advice` puts the answer into words and :mod:`.cautions` what speaks against it.
"""
