"""From records to tables, figures and pages. Imports `record` only: no torch, no model.

Subpackages: `figures` (figures as data, two renderers), `instruments` (the figure of each),
`tables`, `sections`, `explorer`. Used by the command line and the Python interface.
"""
