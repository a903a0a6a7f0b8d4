"""Tables: one type (`table`), its writers (`writers`), and the table of each kind of record.

A table is made once from a record. The terminal, Markdown, LaTeX, CSV and the page write the same
one; the page's writer is ``templates/table.html``.
"""
