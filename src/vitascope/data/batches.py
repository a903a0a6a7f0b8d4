"""The batch of a training step, and the augmentation of images in memory.

Shapes: b images of the batch (or of this process's slice of it), C channels, H x W pixels,
K classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment.operations import crop_boxes, jitter, mirror, resized_crop, shifted_crop
from vitascope.data.augment.policy import Policy, augment, draw
from vitascope.data.augment.settings import Augmentation
from vitascope.data.images import ImageSet, resize
from vitascope.data.random_streams import Purpose, stream

__all__ = ["Batch", "BatchPosition", "Normalize", "flip_chance", "varied_pixels"]


@dataclass(frozen=True)
class Batch:
    """Images ready for a model."""

    images: Tensor  # (b, C, H, W) float32, normalised
    targets: Tensor  # (b, K) float32 when mixing or smoothing, else (b,) int64
    labels: Tensor  # (b,) int64, before mixing
    indices: Tensor  # (b,) int64, position of each image in its set

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class BatchPosition:
    """Seed, epoch, step and rows of a batch: all that its random numbers depend on."""

    seed: int
    epoch: int
    step: int
    batch_size: int  # of all processes together
    rows: slice  # of this process

    def stream(self, purpose: Purpose) -> np.random.Generator:
        """A generator for the whole batch; cut what it gives to ``rows``."""
        return stream(purpose, self.seed, epoch=self.epoch, step=self.step)


class Normalize:
    """From uint8 to (x / 255 - mean) / std. (b, C, H, W) float32"""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        mean_, std_ = torch.tensor(mean).double(), torch.tensor(std).double()
        self.scale = (1 / (255 * std_)).float().view(1, -1, 1, 1)
        self.shift = (-mean_ / std_).float().view(1, -1, 1, 1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalise a batch."""
        # Two roundings on purpose: a fused multiply-add would differ at the end of a vector.
        return pixels.float().mul_(self.scale).add_(self.shift)


def flip_chance(augmentation: Augmentation, flips: bool) -> float:
    """The chance of a mirror, given whether a mirrored image keeps its class."""
    if augmentation.hflip is None:
        return 0.5 if flips else 0.0
    return augmentation.hflip


def varied_pixels(
    images: ImageSet,
    indices: np.ndarray,
    position: BatchPosition,
    augmentation: Augmentation,
    policy: Policy | None,
    *,
    side: int,
    hflip: float,
    fill: Tensor,
) -> Tensor:
    """Crop, mirror and recolour: (b, C, side, side) uint8 for ``indices``, this process's rows."""
    a, count, rows = augmentation, position.batch_size, position.rows
    pixels = images.pixels(indices)
    height, width = pixels.shape[-2:]
    if a.crop == "resized":
        boxes = crop_boxes(position.stream(Purpose.CROP), count, height, width, a.scale, a.ratio)
        pixels = resized_crop(pixels, boxes[rows], side, a.interpolation)
    else:
        pixels = resize(pixels, side, side, a.interpolation)
    if a.crop == "pad":
        pad = a.padding(side)
        offset = position.stream(Purpose.CROP).integers(2 * pad + 1, size=(2, count))
        top, left = torch.from_numpy(offset[:, rows])
        pixels = shifted_crop(pixels, top, left, pad)
    if hflip > 0:
        which = position.stream(Purpose.FLIP).random(count)[rows] < hflip
        pixels = mirror(pixels, torch.from_numpy(which))
    if policy is not None:
        rng = position.stream(Purpose.RAND_AUGMENT)
        chosen, argument = draw(rng, policy, count, side)
        pixels = augment(pixels, policy, chosen[:, rows], argument[:, rows], fill, a.interpolation)
    elif a.color_jitter > 0:
        low = max(0.0, 1 - a.color_jitter)
        rng = position.stream(Purpose.COLOR)
        pixels = jitter(pixels, rng.uniform(low, 1 + a.color_jitter, (3, count))[:, rows])
    return pixels
