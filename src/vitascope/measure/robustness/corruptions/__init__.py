"""The 15 corruptions of CIFAR-C and ImageNet-C, made on the fly.

`operations` makes them with the published strengths of `constants`; `filters` has the smoothing,
the warping and the textures that they share.
"""

from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS, FAMILIES
from vitascope.measure.robustness.corruptions.operations import corrupt

__all__ = ["CORRUPTIONS", "FAMILIES", "corrupt"]
