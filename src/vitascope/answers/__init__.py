"""Requests answered: one file per command, from a request to a result.

Each function takes a request (:mod:`vitascope.requests`), asks :mod:`vitascope.studies` and makes
the table and page with :mod:`vitascope.report`. The command line and :mod:`vitascope.api` call
these functions, so both give the same records. Torch is loaded when one is called.
"""
