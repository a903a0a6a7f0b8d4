"""The attention of every patch, kept small enough for a page, and the live explorer."""
