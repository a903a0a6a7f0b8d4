"""Instruments: each measures one property of any model that has it.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
:func:`together` runs several in one pass over the images.

Rooms: `attention`, `features`, `ablation`, `relevance`, `robustness`, `curvature`, and `streaming`
(how instruments run over batches). Imports `capture` and `record`; used by `studies` and `bench`.
"""

from vitascope.measure.ablation.lesion import lesion
from vitascope.measure.ablation.masking import masking
from vitascope.measure.attention.entropy import entropy
from vitascope.measure.attention.gates import gates
from vitascope.measure.attention.maps import maps
from vitascope.measure.attention.nonlocality import nonlocality
from vitascope.measure.curvature.density import density
from vitascope.measure.curvature.hessian import hessian
from vitascope.measure.curvature.landscape import landscape
from vitascope.measure.curvature.trajectory import trajectory
from vitascope.measure.features.cka import cka
from vitascope.measure.features.fourier import fourier
from vitascope.measure.features.variance import variance
from vitascope.measure.miou import miou
from vitascope.measure.relevance.relevance import relevance
from vitascope.measure.robustness.calibration import calibration
from vitascope.measure.robustness.corruption import corruption
from vitascope.measure.robustness.fgsm import fgsm
from vitascope.measure.robustness.frequency import frequency
from vitascope.measure.robustness.occlusion import occlusion
from vitascope.measure.robustness.pgd import pgd
from vitascope.measure.streaming.together import together

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
    "relevance",
    "together",
    "trajectory",
    "variance",
]
