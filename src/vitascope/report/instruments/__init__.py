"""One figure for each instrument, of one or several models, with its reading and definition."""
