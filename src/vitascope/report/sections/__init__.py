"""The sections of a page, one file for each kind of record."""
