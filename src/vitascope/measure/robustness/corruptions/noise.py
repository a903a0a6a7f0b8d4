"""Noise: Gaussian, shot and impulse.

* gaussian_noise: ``x + c n``, n normal.
* shot_noise: ``Poisson(c x) / c``, c photons for a white pixel.
* impulse_noise: a share c of the values is set to black or white, evenly; each channel by itself.

x is in [0, 1]; Hendrycks & Dietterich 2019 (https://arxiv.org/abs/1903.12261). Poisson numbers come
by inversion from a table of 65536 equally likely quantiles for each of the 256 levels: a
probability is right to 1/65536.

Shapes: B images, C channels, h x w pixels; levels are uint8.
"""

from functools import lru_cache

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from vitascope.measure.robustness.corruptions.draws import Draws

QUANTILES = 65536


@lru_cache(maxsize=5)  # 17 MB each
def shot_table(photons: float) -> np.ndarray:
    """Level seen for each true level and quantile. (256 * 65536,) uint8"""
    rate = np.arange(256)[:, None] / 255 * photons
    # Photon counts from `photons` on are white: no need to tell them apart.
    counts = np.arange(int(np.ceil(photons)) + 1)
    below = np.round(pdtr(counts, rate) * QUANTILES).astype(np.int64)
    below[:, -1] = QUANTILES
    seen = np.minimum(counts / photons * 255 + 1e-6, 255).astype(np.uint8)
    return np.repeat(np.tile(seen, 256), np.diff(below, axis=1, prepend=0).ravel())


def gaussian_noise(levels: Tensor, deviation: float, draws: Draws) -> Tensor:
    """Add Gaussian noise."""
    return draws.normal(*levels.shape[1:]).mul_(255 * deviation).add_(levels)


def shot_noise(levels: Tensor, photons: float, draws: Draws) -> Tensor:
    """Poisson noise."""
    index = levels.numpy().astype(np.uint32)
    index <<= 16
    index |= draws.words(*levels.shape[1:])
    return torch.from_numpy(shot_table(photons).take(index))


def impulse_noise(levels: Tensor, share: float, draws: Draws) -> Tensor:
    """Salt-and-pepper noise."""
    chance = draws.uniform(*levels.shape[1:])
    return levels.masked_fill(chance < share, 0).masked_fill_(chance < share / 2, 255)
