"""Instruments on attention maps: nonlocality, entropy, gates, maps of one query."""
