"""Random erasing (Zhong et al. 2020, https://arxiv.org/abs/1708.04896), timm's "pixel" kind.

A box of random area and shape is filled with normal noise, after normalisation, so that the noise
has the statistics of an image. Drawing noise is slow, copying is fast: each box takes a piece,
from a random offset, of a bank of at least a million numbers that is drawn once.
"""

from functools import lru_cache
from math import log

import numpy as np
import torch
from torch import Tensor

from vitascope.data.random_streams import Purpose, stream

SHAPES = (0.3, 1 / 0.3)  # height to width; timm and the paper


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
    place = rng.random((2, count))
    top = np.floor(place[0] * (height - h[first] + 1))
    left = np.floor(place[1] * (width - w[first] + 1))
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
