"""The figure of each instrument, for one or several models, with its reading and definition.

Takes records, gives figures of `report.figures`; used by `report.sections`.
"""
