"""Instruments: one question each, on any model it makes sense for.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
The functions are imported here, so they, and not their modules, are what the names mean.
"""

from vitascope.measure.gates import gates
from vitascope.measure.nonlocality import nonlocality

__all__ = ["gates", "nonlocality"]
