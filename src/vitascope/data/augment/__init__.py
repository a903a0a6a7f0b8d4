"""Augmentation: settings, and operations on whole uint8 batches.

The named settings (`augment.deit()`, `augment.laptop()`, ...) import no torch. `operations`,
`policy` and `mixing` are used by `data.loader`.
"""

from vitascope.data.augment.settings import (
    Augmentation,
    cifar,
    deit,
    imagenet_park,
    laptop,
    light,
    none,
)

__all__ = ["Augmentation", "cifar", "deit", "imagenet_park", "laptop", "light", "none"]
