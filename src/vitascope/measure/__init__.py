"""Instruments: one question each, on any model it makes sense for.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
:func:`together` runs several in one pass over the images.
The functions are imported here, so they, and not their modules, are what the names mean.
"""

from vitascope.measure.calibration import calibration
from vitascope.measure.cka import cka
from vitascope.measure.corruption import corruption
from vitascope.measure.density import density
from vitascope.measure.entropy import entropy
from vitascope.measure.fgsm import fgsm
from vitascope.measure.fourier import fourier
from vitascope.measure.frequency import frequency
from vitascope.measure.gates import gates
from vitascope.measure.hessian import hessian
from vitascope.measure.landscape import landscape
from vitascope.measure.lesion import lesion
from vitascope.measure.maps import maps
from vitascope.measure.masking import masking
from vitascope.measure.miou import miou
from vitascope.measure.nonlocality import nonlocality
from vitascope.measure.occlusion import occlusion
from vitascope.measure.pgd import pgd
from vitascope.measure.together import together
from vitascope.measure.trajectory import trajectory
from vitascope.measure.variance import variance

__all__ = [
    "calibration",
    "cka",
    "corruption",
    "density",
    "entropy",
    "fgsm",
    "fourier",
    "frequency",
    "gates",
    "hessian",
    "landscape",
    "lesion",
    "maps",
    "masking",
    "miou",
    "nonlocality",
    "occlusion",
    "pgd",
    "together",
    "trajectory",
    "variance",
]
