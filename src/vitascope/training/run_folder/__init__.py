"""A run on disk: config, metrics log, resume file (checkpoint), lock, atomic files.

Written by `train.trainer`; read through `vitascope.training.load_run`.
"""
