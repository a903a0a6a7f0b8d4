"""Mixup, CutMix and label smoothing on a batch.

Mixup (https://arxiv.org/abs/1710.09412) blends an image with its partner, CutMix
(https://arxiv.org/abs/1905.04899) pastes a box of the partner into it; the targets are mixed in the
same proportion. One proportion per batch, as timm's default has it. timm pairs the first image
with the last; here neighbours are partners (0 with 1, 2 with 3, ...), which is as random in a
shuffled batch and lets processes that share a batch mix on their own.

Shapes: b images, K classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment.settings import Augmentation


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What happens to one batch: the share of the image itself, and the box, if any."""

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
