"""Instruments: each measures one property of any model that has it.

``vitascope.measure.nonlocality(model, batches)`` returns a frozen result with ``.to_record()``.
:func:`together` runs several in one pass over the images.

Subpackages, one per family: `attention`, `features`, `ablation`, `readout`, `attribution`,
`robustness`, `curvature`. `registry` lists the instruments, `streaming` runs them over batches. An
instrument is imported, with torch, when it is first used: figures and tables of records need
neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitascope.measure.registry import INSTRUMENTS

if TYPE_CHECKING:  # the names that editors and type checkers know: one line for each instrument
    from vitascope.measure.ablation.lesion import lesion as lesion
    from vitascope.measure.ablation.masking import masking as masking
    from vitascope.measure.attention.entropy import entropy as entropy
    from vitascope.measure.attention.gates import gates as gates
    from vitascope.measure.attention.maps import maps as maps
    from vitascope.measure.attention.nonlocality import nonlocality as nonlocality
    from vitascope.measure.attention.windows import windows as windows
    from vitascope.measure.attribution.relevance import relevance as relevance
    from vitascope.measure.curvature.blocks import blocks as blocks
    from vitascope.measure.curvature.density import density as density
    from vitascope.measure.curvature.hessian import hessian as hessian
    from vitascope.measure.curvature.landscape import landscape as landscape
    from vitascope.measure.curvature.trajectory import trajectory as trajectory
    from vitascope.measure.features.cka import cka as cka
    from vitascope.measure.features.fourier import fourier as fourier
    from vitascope.measure.features.norms import norms as norms
    from vitascope.measure.features.pca import pca as pca
    from vitascope.measure.features.variance import variance as variance
    from vitascope.measure.mean_iou import miou as miou
    from vitascope.measure.readout.lens import lens as lens
    from vitascope.measure.readout.patching import patching as patching
    from vitascope.measure.robustness.calibration import calibration as calibration
    from vitascope.measure.robustness.corruption import corruption as corruption
    from vitascope.measure.robustness.fgsm import fgsm as fgsm
    from vitascope.measure.robustness.frequency import frequency as frequency
    from vitascope.measure.robustness.occlusion import occlusion as occlusion
    from vitascope.measure.robustness.pgd import pgd as pgd
    from vitascope.measure.streaming.one_pass import together as together

_OTHERS = {"miou": "mean_iou", "together": "streaming.one_pass"}  # not in pages of instruments
__all__ = sorted([*INSTRUMENTS, *_OTHERS])


def __getattr__(name: str) -> Any:
    if name in INSTRUMENTS:
        return INSTRUMENTS[name].load()
    if name in _OTHERS:
        return getattr(import_module(f"vitascope.measure.{_OTHERS[name]}"), name)
    raise AttributeError(f"module 'vitascope.measure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
