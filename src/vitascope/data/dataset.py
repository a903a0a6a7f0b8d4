"""A data set: training and test images, class names and pixel statistics."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor

from vitascope.data.file_batches import decoded
from vitascope.data.images import FileImages, ImageSet
from vitascope.data.random_streams import Purpose, stream

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Dataset", "pixel_statistics"]

# timm.data.constants; from the training set of ImageNet-1k
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and test images with what a recipe must know about them."""

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # of the training pixels in [0, 1], per channel
    std: tuple[float, ...]
    flips: bool  # whether a mirrored image keeps its class: not so for digits
    notes: tuple[str, ...] = field(default=())  # what was done to get here, in words
    # Column of each class among the outputs of a model with ImageNet's 1000 classes: evaluate
    # ``logits[:, class_map]``. None where the classes are the model's own.
    class_map: np.ndarray | None = None
    # Per test image the set of labels that count as a hit (ImageNet-ReaL); ``Batch.indices``
    # says which image of the test set a row is. None: the label alone.
    label_sets: tuple[frozenset[int], ...] | None = None
    crop_pct: float = 1.0  # share of a resized image that is kept
    interpolation: str = "bicubic"  # of the resizing
    # The test images are this fold (from 0) of so many of the training images. None: they are not.
    fold: tuple[int, ...] | None = None


def histogram(pixels: Tensor) -> Tensor:
    """Return how often each value occurs in each channel. (C, 256) int64"""
    channels = pixels.transpose(0, 1).flatten(1)
    return torch.stack([torch.bincount(c, minlength=256) for c in channels])


def pixel_statistics(
    images: ImageSet, *, most: int = 1000
) -> tuple[tuple[float, ...], tuple[float, ...], str | None]:
    """Mean and standard deviation per channel in [0, 1], and a note if they are an estimate.

    Exact for images in memory; from ``most`` images otherwise. A channel that never changes gets
    a deviation of 1, so that normalising it is harmless.
    """
    indices, note = np.arange(len(images)), None
    if isinstance(images, FileImages) and len(images) > most:
        indices = np.sort(stream(Purpose.STATISTICS, 0).permutation(len(images))[:most])
        note = f"mean and deviation estimated from {most} of {len(images)} training images"
    counts = sum(
        (histogram(pixels) for pixels in some_pixels(images, indices)),
        torch.zeros(images.size[0], 256, dtype=torch.int64),
    ).double()
    values = torch.arange(256).double() / 255
    share = counts / counts.sum(dim=1, keepdim=True)
    mean = share @ values
    std = (share * (values - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return tuple(mean.tolist()), tuple((s if s > 0 else 1.0) for s in std.tolist()), note


def some_pixels(images: ImageSet, indices: np.ndarray) -> Iterator[Tensor]:
    """The images at these positions, a few at a time; broken files are reported and left out."""
    length = 64 if isinstance(images, FileImages) else 4096
    length = max(1, min(length, 2**28 // max(1, prod(images.size))))  # 256 MB at a time
    parts = [indices[i : i + length] for i in range(0, len(indices), length)]
    if isinstance(images, FileImages):
        for batch in decoded(images, parts, None, None, num_workers=0):
            yield batch.pixels
        return
    for part in parts:
        yield images.pixels(part)
