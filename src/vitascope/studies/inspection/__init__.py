"""`vitascope inspect`: which instruments run on a model, with which images and options.

Takes a request, opens the model with its images (`studies.session`), runs instruments of `measure`
and saves one record each. Called by the command line and by other studies.
"""
