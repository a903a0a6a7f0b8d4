"""The explorer on a page: attention maps of every patch, in the browser, without a server.

Reads what `explorer` stored; included by `report.page` and served by the live explorer.
"""
