"""The 15 corruptions of CIFAR-C and ImageNet-C, made on the fly.

:func:`corrupt` makes them. One file per family: ``noise``, ``blur``, ``weather`` (with ``frost``'s
textures) and ``digital``; ``constants`` has the published strengths, ``filters`` the smoothing and
warping they share, ``draws`` their random numbers.
"""

from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS, FAMILIES
from vitascope.measure.robustness.corruptions.corrupt import corrupt

__all__ = ["CORRUPTIONS", "FAMILIES", "corrupt"]
