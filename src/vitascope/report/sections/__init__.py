"""The sections of a page, by kind of record: run, evaluation, inspection, comparison, study,
throughput.

A section takes records and gives text, figures and tables; `report.contents` chooses among them.
"""
