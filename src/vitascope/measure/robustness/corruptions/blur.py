"""Blur: defocus, glass, motion and zoom.

Hendrycks & Dietterich 2019 (https://arxiv.org/abs/1903.12261), with what their programs do:

* defocus_blur: mean over a disc whose edge is softened by a small Gaussian.
* glass_blur: Gaussian blur, pixels moved about, Gaussian blur. Pixels are visited from the bottom
  right; each becomes a copy of one up to c away (-c ... c - 1 in x and y) *as it is by then*. (The
  scripts mean to swap the two, but write it so that numpy copies; the published images have it.)
  In closed form: follow the pointers through pixels visited earlier to one that is not yet
  overwritten. Doubling the pointers takes a few steps where the definition takes one per pixel.
* motion_blur: half a Gaussian along an angle between -45 and 45 degrees.
* zoom_blur: mean of the image and of its centre magnified 1, 1 + step, ... times.

Shapes: B images, C channels, h x w pixels; levels are uint8.
"""

import numpy as np
import torch
from scipy.ndimage import correlate1d
from torch import Tensor

from vitascope.measure.robustness.corruptions.draws import Draws
from vitascope.measure.robustness.corruptions.filters import (
    filtered,
    gaussian,
    motion,
    sampled,
    zoom_positions,
)


def disc(radius: float, softness: float) -> np.ndarray:
    """A disc of weight 1 with a soft edge. (2 r + 1, 2 r + 1) with r at least 8"""
    reach = max(8, int(radius))
    line = np.arange(-reach, reach + 1)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(float)
    half = 1 if radius <= 8 else 2
    bell = np.exp(-0.5 * (np.arange(-half, half + 1) / softness) ** 2)
    bell /= bell.sum()
    soft = correlate1d(inside / inside.sum(), bell, axis=0, mode="mirror")
    soft = correlate1d(soft, bell, axis=1, mode="mirror")
    return np.where(soft > 1e-9, soft, 0.0)


def defocus_blur(levels: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    """Mean over a disc."""
    return filtered(levels.float(), disc(*strength))


def scattered(height: int, width: int, reach: int, draws: Draws) -> Tensor:
    """Which pixel each pixel becomes a copy of after one round. (B, h * w) int64"""
    count, length = len(draws.indices), height * width
    index = torch.arange(count * length).view(count, height, width)
    rows, columns = height - 2 * reach, width - 2 * reach
    if rows <= 0 or columns <= 0:
        return index.flatten(1) % length
    inner = (slice(None), slice(reach + 1, reach + 1 + rows), slice(reach + 1, reach + 1 + columns))
    move = draws.whole(-reach, reach, 2, rows, columns)
    index[inner] += move[:, 0].mul_(width).add_(move[:, 1])
    visited = torch.zeros(count, height, width, dtype=torch.bool)
    visited[inner] = True
    # A source visited earlier (further down, or to the right) has changed: look where it looked.
    source = index.flatten()
    changed = visited.flatten()[source].logical_and_(source > torch.arange(len(source)))
    pending = changed.nonzero()[:, 0]
    while len(pending):
        there = source[pending]
        source[pending], changed[pending] = source[there], changed[there]
        pending = pending[changed[pending]]
    return source.view(count, length) % length


def glass_blur(levels: Tensor, strength: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur, scatter, blur."""
    sigma, reach, rounds = strength
    height, width = levels.shape[-2:]
    images = gaussian(levels.float(), sigma).add(1e-3).floor_()
    source = scattered(height, width, reach, draws)
    for _ in range(rounds - 1):
        source = source.gather(1, scattered(height, width, reach, draws))
    source = source[:, None].expand(-1, levels.shape[1], -1)
    return gaussian(images.flatten(2).gather(2, source).view_as(images), sigma)


def motion_blur(levels: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    """Smear along a random angle; ImageMagick rounds to the nearest level."""
    angles = draws.uniform(1, low=-45, high=45)[:, 0]
    return motion(levels.float(), *strength, angles).round_()


def zoom_blur(levels: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    """Mean over zooms."""
    images = levels.float()
    total, count = images.clone(), 1
    for factor in np.arange(1, *strength):
        (top, _, rows), (left, _, columns) = (
            zoom_positions(length, factor) for length in images.shape[-2:]
        )
        y = torch.from_numpy(top + rows)[None, :, None]
        x = torch.from_numpy(left + columns)[None, None]
        total += sampled(images, y, x, "edge")
        count += 1
    return total / count
