"""A table as data, and its writers.

Filled by `report.sections`; used by the page, by exports and by the command line.
"""
