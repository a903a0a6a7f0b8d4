"""A run on disk: config, metrics log, resume file (checkpoint), lock, atomic files.

Written by `train.trainer`; read through `vitascope.train.load_run`.
"""
