"""The batch of a training step, and what is done to whole batches.

Crops shifted by a few pixels and mirrors of images in memory are made here, a batch at a time:
they take a moment, where pillow would take longer than a small model's training step. All other
changes of single images are timm's and torchvision's (:mod:`vitascope.data.file_batches`).

Mixup (https://arxiv.org/abs/1710.09412) blends an image with its partner, CutMix
(https://arxiv.org/abs/1905.04899) pastes a box of the partner into it; the targets are mixed in the
same proportion. One proportion per batch, as timm's default has it. timm pairs the first image
with the last; here neighbours are partners (0 with 1, 2 with 3, ...), which is as random in a
shuffled batch and lets processes that share a batch mix on their own.

Random erasing (Zhong et al. 2020, https://arxiv.org/abs/1708.04896) is timm's "pixel" kind: a box
of random area and shape is filled with normal noise, after normalisation, so that the noise has the
statistics of an image. Drawing noise is slow, copying is fast: each box takes a piece, from a
random offset, of a bank of at least a million numbers that is drawn once.

Shapes: b images of the batch (or of this process's slice of it), C channels, H x W pixels,
K classes.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitascope.data.augment import Augmentation
from vitascope.data.random_streams import Purpose, stream

__all__ = ["Batch", "BatchPosition", "Normalize", "flip_chance"]

SHAPES = (0.3, 1 / 0.3)  # of erased boxes, height to width; timm and the paper


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

    def image_seed(self, row: int) -> int:
        """Return the seed of the image in this row of the process's slice."""
        sample = self.rows.start + row
        rng = stream(Purpose.IMAGE, self.seed, epoch=self.epoch, step=self.step, sample=sample)
        return int(rng.integers(2**32))


class Normalize:
    """From uint8 to (x / 255 - mean) / std. (b, C, H, W) float32"""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        mean_, std_ = torch.tensor(mean).double(), torch.tensor(std).double()
        self.scale = (1 / (255 * std_)).float().view(1, -1, 1, 1)
        self.shift = (-mean_ / std_).float().view(1, -1, 1, 1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalise a batch of pixels."""
        # Two roundings on purpose: a fused multiply-add would differ at the end of a vector.
        return pixels.float().mul_(self.scale).add_(self.shift)


def flip_chance(augmentation: Augmentation, flips: bool) -> float:
    """The chance of a mirror, given whether a mirrored image keeps its class."""
    if augmentation.hflip is None:
        return 0.5 if flips else 0.0
    return augmentation.hflip


def shifted_crop(pixels: Tensor, top: Tensor, left: Tensor, pad: int) -> Tensor:
    """Pad with black and cut out H x W at (top, left) of the padded image, per image.

    torchvision's ``RandomCrop(size, padding=pad)``; ``top = left = pad`` changes nothing.
    """
    height, width = pixels.shape[-2:]
    padded = F.pad(pixels, (pad, pad, pad, pad))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (b, C, 2p+1, 2p+1, H, W), a view
    return windows[torch.arange(len(pixels)), :, top, left]


def mirror(pixels: Tensor, which: Tensor) -> Tensor:
    """Flip the images of a boolean mask left to right, in place."""
    rows = which.nonzero().squeeze(1)
    return pixels.index_copy_(0, rows, pixels.index_select(0, rows).flip(-1))


def erasing_boxes(
    rng: np.random.Generator,
    count: int,
    height: int,
    width: int,
    probability: float,
    area: tuple[float, float],
) -> np.ndarray:
    """One box per image, rows top, left, height, width; height 0 where nothing is erased.

    As in timm: ten tries to find a box smaller than the image, else nothing.
    """
    chosen = rng.random(count) < probability
    target = rng.uniform(*area, (count, 10)) * height * width
    shape = np.exp(rng.uniform(log(SHAPES[0]), log(SHAPES[1]), (count, 10)))
    h, w = np.round(np.sqrt(target * shape)), np.round(np.sqrt(target / shape))
    fits = (h < height) & (w < width)
    first = (np.arange(count), fits.argmax(axis=1))
    position = rng.random((2, count))
    top = np.floor(position[0] * (height - h[first] + 1))
    left = np.floor(position[1] * (width - w[first] + 1))
    boxes = np.stack([top, left, h[first], w[first]], axis=1).astype(np.int64)
    return np.where((chosen & fits.any(axis=1))[:, None], boxes, 0)


@lru_cache(maxsize=2)
def noise_bank(seed: int, length: int) -> Tensor:
    """Normal noise to cut pieces from. (length,) float32"""
    noise = stream(Purpose.ERASE_PIXELS, seed).standard_normal(length, dtype=np.float32)
    return torch.from_numpy(noise)


def erase(images: Tensor, boxes: np.ndarray, offsets: np.ndarray, seed: int) -> Tensor:
    """Fill each image's box with noise, in place.

    Args:
        images: (b, C, H, W) float32, normalised.
        boxes: (b, 4) top, left, height, width; nothing is erased where the height is 0.
        offsets: (b,) in [0, 1): where in the bank the noise of an image begins.
        seed: Of the bank.
    """
    bank = noise_bank(seed, max(2**20, 4 * images[0].numel()))
    begins = (offsets * (len(bank) - images[0].numel())).astype(np.int64).tolist()
    for i in np.flatnonzero((boxes[:, 2] > 0) & (boxes[:, 3] > 0)).tolist():
        top, left, height, width = boxes[i].tolist()
        area = images[i, :, top : top + height, left : left + width]
        area.copy_(bank[begins[i] : begins[i] + area.numel()].view(area.shape))
    return images


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Mixing of one batch: the share of the image itself, and the box, if any."""

    share: float = 1.0
    box: tuple[int, int, int, int] | None = None  # top, bottom, left, right


def draw_mix(rng: np.random.Generator, augmentation: Augmentation, height: int, width: int) -> Mix:
    """Draw the mix of one batch as timm does, the share corrected to the box's true area."""
    a = augmentation
    skip, switch = rng.random() >= a.mixup_prob, rng.random() < a.mixup_switch
    if skip or not a.mixes:
        return Mix()
    if a.cutmix == 0 or (a.mixup > 0 and not switch):
        return Mix(share=float(rng.beta(a.mixup, a.mixup)))
    cut = np.sqrt(1 - rng.beta(a.cutmix, a.cutmix))
    h, w = int(height * cut), int(width * cut)
    y, x = int(rng.integers(height)), int(rng.integers(width))
    top, bottom = max(0, y - h // 2), min(height, y + (h + 1) // 2)
    left, right = max(0, x - w // 2), min(width, x + (w + 1) // 2)
    area = (bottom - top) * (right - left)
    return Mix(share=1 - area / (height * width), box=(top, bottom, left, right))


def swap_partners(x: Tensor) -> Tensor:
    """Exchange neighbours: rows 0 and 1, 2 and 3, ..."""
    return x.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def mix_images(images: Tensor, mix: Mix) -> Tensor:
    """Mix every image with its partner, in place."""
    if mix.box is not None:
        top, bottom, left, right = mix.box
        box = images[:, :, top:bottom, left:right]
        images[:, :, top:bottom, left:right] = swap_partners(box)
        return images
    if mix.share == 1:
        return images
    partners = swap_partners(images).mul_(1 - mix.share)
    return images.mul_(mix.share).add_(partners)


def smooth_targets(labels: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """One-hot targets with ``smoothing`` spread evenly over all classes. (b, K)"""
    targets = torch.full((len(labels), num_classes), smoothing / num_classes)
    return targets.scatter_(1, labels[:, None], 1 - smoothing + smoothing / num_classes)


def mix_targets(targets: Tensor, mix: Mix) -> Tensor:
    """Mix every target with its partner's. (b, K)"""
    if mix.share == 1:
        return targets
    return targets * mix.share + swap_partners(targets) * (1 - mix.share)
