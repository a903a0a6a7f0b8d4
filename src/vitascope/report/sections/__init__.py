"""The sections of a page, one file per kind of record: answer, figures and tables.

A section takes records and gives text, figures and tables, also for a terminal; `report.page`
chooses among them. `section` has their parts, `mistakes` and `claims` what several of them show.
"""
