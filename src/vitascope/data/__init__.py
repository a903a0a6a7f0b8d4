"""Data sets, subsets, augmentation and loaders.

Subpackages: `sources` (readers), `augment` (batched augmentation). Imports none of our packages but
`errors`, `settings` and `atomic`; used by `training` and all above it.

    >>> from vitascope import data
    >>> digits = data.load("digits")
    >>> tenth = data.subset(digits.train, data.Subset(fraction=0.1))
    >>> len(digits.train), len(tenth)
    (1438, 143)

Names are loaded when first used: settings such as ``Augmentation`` do not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitascope.data import augment
    from vitascope.data.augment import Augmentation
    from vitascope.data.batches import Batch
    from vitascope.data.dataset import Dataset
    from vitascope.data.images import FileImages, ImageSet, MemoryImages
    from vitascope.data.loader import EvalBatches, TrainBatches
    from vitascope.data.sources.load import load
    from vitascope.data.sources.segmentation import SegmentationFolder
    from vitascope.data.subsets import Subset, subset

__all__ = [
    "Augmentation",
    "Batch",
    "Dataset",
    "EvalBatches",
    "FileImages",
    "ImageSet",
    "MemoryImages",
    "SegmentationFolder",
    "Subset",
    "TrainBatches",
    "augment",
    "load",
    "subset",
]

_HOME = {
    "Augmentation": "augment",
    "Batch": "batches",
    "Dataset": "dataset",
    "EvalBatches": "loader",
    "FileImages": "images",
    "ImageSet": "images",
    "MemoryImages": "images",
    "SegmentationFolder": "sources.segmentation",
    "Subset": "subsets",
    "TrainBatches": "loader",
    "load": "sources.load",
    "subset": "subsets",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"vitascope.data.{_HOME[name]}"), name)
    if name == "augment":
        return import_module("vitascope.data.augment")
    raise AttributeError(f"module 'vitascope.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
