"""Instruments: each measures one property of any model that has it.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
:func:`together` runs several in one pass over the images.

Subpackages: `attention`, `features`, `ablation`, `relevance`, `robustness`, `curvature`,
`streaming` (how instruments run over batches). Imports `capture` and `record`.
"""

from types import FunctionType

# The list of instruments: one line for each.
from vitascope.measure.ablation.lesion import lesion as lesion
from vitascope.measure.ablation.masking import masking as masking
from vitascope.measure.attention.entropy import entropy as entropy
from vitascope.measure.attention.gates import gates as gates
from vitascope.measure.attention.maps import maps as maps
from vitascope.measure.attention.nonlocality import nonlocality as nonlocality
from vitascope.measure.attention.windows import windows as windows
from vitascope.measure.curvature.blocks import blocks as blocks
from vitascope.measure.curvature.density import density as density
from vitascope.measure.curvature.hessian import hessian as hessian
from vitascope.measure.curvature.landscape import landscape as landscape
from vitascope.measure.curvature.trajectory import trajectory as trajectory
from vitascope.measure.features.cka import cka as cka
from vitascope.measure.features.fourier import fourier as fourier
from vitascope.measure.features.norms import norms as norms
from vitascope.measure.features.variance import variance as variance
from vitascope.measure.miou import miou as miou
from vitascope.measure.relevance.relevance import relevance as relevance
from vitascope.measure.robustness.calibration import calibration as calibration
from vitascope.measure.robustness.corruption import corruption as corruption
from vitascope.measure.robustness.fgsm import fgsm as fgsm
from vitascope.measure.robustness.frequency import frequency as frequency
from vitascope.measure.robustness.occlusion import occlusion as occlusion
from vitascope.measure.robustness.pgd import pgd as pgd
from vitascope.measure.streaming.one_pass import together as together

__all__ = sorted(name for name, value in globals().items() if isinstance(value, FunctionType))
