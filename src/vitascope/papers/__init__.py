"""The papers' tables and figures as plans of trainings and measurements.

There is a file or folder per paper, and one for our own questions. Plans are pure definitions
without torch; running one answers it with a record. Called by `vitascope study`.
"""
