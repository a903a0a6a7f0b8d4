"""How training images are varied: settings, and operations on whole batches.

The named settings (`augment.deit()`, `augment.laptop()`, ...) are given here and cost no torch.
"""

from vitascope.data.augment.settings import Augmentation, cifar, deit, laptop, none

__all__ = ["Augmentation", "cifar", "deit", "laptop", "none"]
