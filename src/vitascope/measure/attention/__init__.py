"""Instruments on attention maps: `nonlocality`, `entropy`, `gates`, `windows`, `maps` of one query.

Called through `vitascope.measure`; they run on `measure.streaming`. `figures` shows their records,
without torch.
"""
