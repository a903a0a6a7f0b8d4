"""Questions that join data, models, training and instruments: compare, inspect, papers' studies.

Subpackages: `session` (a model with its images), `grid` (many trainings), `inspection`, `explorer`,
`papers`. May import every package except `report` and `commands`; only the
commands import it.
"""
