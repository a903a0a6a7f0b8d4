"""From records to tables, figures and pages. No torch, no model: instruments bring their figures.

`records` finds them, `page` makes the page from `sections`, `exports` writes its figures and tables
as files. `figures` draws for the page and for papers, `explorer` shows attention maps.
"""
