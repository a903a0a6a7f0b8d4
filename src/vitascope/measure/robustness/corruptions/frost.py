"""Frost textures, synthetic.

The published sets lay crops of five photographs over the image. Those are not shipped here: five
textures stand in: fractal noise (power falling with the square of frequency, as the photographs'
does), frozen ridges where a second noise crosses zero, and needles along six directions 30 degrees
apart. Each has the mean and deviation per channel of one photograph, wraps around, and is the same
in every run. CIFAR-C shrinks the photographs to a fifth, taking every fifth pixel; so it is here.

Shapes: 5 textures, 3 channels, n x n pixels with n = 640 (128 when shrunk).
"""

from functools import cache

import numpy as np
import torch
from scipy.fft import irfft2, rfft2
from torch import Tensor

SIDE = 640
SHRINK = 5
SEED = 1903_12261
# Mean and deviation of red, green and blue of the five photographs, in levels.
PHOTOGRAPHS = (
    ((78, 149, 166), (27, 17, 15)),
    ((201, 205, 215), (21, 22, 23)),
    ((201, 205, 215), (21, 22, 23)),
    ((138, 153, 165), (29, 29, 30)),
    ((112, 123, 135), (44, 43, 42)),
)


def frequencies() -> np.ndarray:
    """Of a transform's entries, in cycles per pixel. (n, n / 2 + 1) float32"""
    radius = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE))
    return radius.astype(np.float32)


def fractal(rng: np.random.Generator, slope: float) -> np.ndarray:
    """Noise whose amplitude falls as frequency ** -slope; mean 0, deviation 1. (n, n)"""
    frequency = frequencies()
    frequency[0, 0] = np.inf
    spectrum = rfft2(rng.standard_normal((SIDE, SIDE), dtype=np.float32))
    field = irfft2(spectrum * frequency**-slope, s=(SIDE, SIDE))
    return (field - field.mean()) / field.std()


def softened(field: np.ndarray, cutoff: float = 0.5) -> np.ndarray:
    """Low-pass filtered, without the finest grain. (n, n)"""
    frequency = frequencies()
    return irfft2(rfft2(field) * np.exp(-0.5 * (frequency / cutoff) ** 2), s=(SIDE, SIDE))


def needles(rng: np.random.Generator, length: float = 24.0, share: float = 5e-4) -> np.ndarray:
    """Fading strokes along six directions; mean 0, deviation 1. (n, n)"""
    y, x = (f(SIDE).astype(np.float32) for f in (np.fft.fftfreq, np.fft.rfftfreq))
    total, turn = np.zeros((SIDE, SIDE // 2 + 1), np.complex64), rng.uniform(0, np.pi)
    for direction in turn + np.arange(6) * np.pi / 6:
        cos, sin = np.float32(np.cos(direction)), np.float32(np.sin(direction))
        along = x * cos + y[:, None] * sin
        across = y[:, None] * cos - x * sin
        stroke = np.exp(-0.5 * (2 * np.pi * along * length) ** 2 - 0.5 * (2 * np.pi * across) ** 2)
        middles = rng.random((SIDE, SIDE), dtype=np.float32) < share
        total += rfft2(middles.astype(np.float32)) * stroke
    field = irfft2(total, s=(SIDE, SIDE))
    return (field - field.mean()) / field.std()


@cache
def frost_textures(shrunk: bool) -> Tensor:
    """Five coloured textures. (5, 3, n, n) uint8"""
    if shrunk:
        middle = SHRINK // 2
        return frost_textures(False)[..., middle::SHRINK, middle::SHRINK].contiguous()
    textures = []
    for number, (mean, deviation) in enumerate(PHOTOGRAPHS):
        rng = np.random.default_rng((SEED, number))
        ridges = -np.abs(fractal(rng, 0.8))
        field = 0.7 * fractal(rng, 1.0) + 0.8 * ridges + 0.5 * needles(rng)
        field = softened(field)
        field = np.clip((field - field.mean()) / field.std(), -3, 3)
        colour = np.array(mean)[:, None, None] + np.array(deviation)[:, None, None] * field
        textures.append(np.clip(np.round(colour), 0, 255).astype(np.uint8))
    return torch.from_numpy(np.stack(textures))
