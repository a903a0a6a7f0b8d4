"""A table as data and its writers."""
