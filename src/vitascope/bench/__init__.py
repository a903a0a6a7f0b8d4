"""Speed measured against a peer in the same process; one file per subject, `timing` shared.

May import everything but `studies` and `report`; only `vitascope bench` uses it.
"""
