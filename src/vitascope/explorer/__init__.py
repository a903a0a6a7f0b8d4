"""The attention of every patch as data for the explorer page, and the live explorer server.

Maps are captured, laid on the image grid and compressed here; `report.explorer` makes the page.
Called by the `inspect` command.
"""
