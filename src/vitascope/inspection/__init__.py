"""`vitascope inspect`: which instruments run on a model, with which images and options.

Takes the options (:mod:`.options`), opens the model with its images (`loading`), runs instruments
of `measure` and saves one record each. `evaluation` measures how good a model is.
"""
