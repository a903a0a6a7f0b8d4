"""Instruments: one question each, on any model it makes sense for.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
:func:`together` runs several in one pass over the images.
The functions are imported here, so they, and not their modules, are what the names mean.
"""

from vitascope.measure.cka import cka
from vitascope.measure.entropy import entropy
from vitascope.measure.fourier import fourier
from vitascope.measure.gates import gates
from vitascope.measure.lesion import lesion
from vitascope.measure.maps import maps
from vitascope.measure.masking import masking
from vitascope.measure.nonlocality import nonlocality
from vitascope.measure.together import together
from vitascope.measure.variance import variance

__all__ = [
    "cka",
    "entropy",
    "fourier",
    "gates",
    "lesion",
    "maps",
    "masking",
    "nonlocality",
    "together",
    "variance",
]
