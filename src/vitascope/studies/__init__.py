"""Questions that join data, models, training and instruments: compare, inspect, papers' studies.

Subpackages: `session` (a model with its images), `grid` (many trainings), `inspection`, `explorer`,
`papers`. May import every package except `report` and `cli`; only the command line and the
Python interface import it.
"""
