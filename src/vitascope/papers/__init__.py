"""The papers' tables and figures as plans of trainings and measurements, one subpackage per paper.

Plans are pure definitions without torch; running one answers it with a record. Called by
`vitascope study`.
"""
