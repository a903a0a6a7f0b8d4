"""Smoothing, motion blur and zoom of batches, and the textures of frost.

A kernel of few taps is a sum of shifted images; a wide one goes through the Fourier transform or a
matrix. Borders: ``edge`` repeats the last pixel, ``reflect`` mirrors about it, ``symmetric``
mirrors about its outer edge, at any width.

The published sets lay crops of five photographs of frost over the image. They are not shipped here:
five textures stand in: fractal noise (power falling with the square of frequency, as the
photographs' does), frozen ridges where a second noise crosses zero, and needles along six
directions 30 degrees apart. Each has the mean and deviation per channel of one photograph, wraps
around, and is the same in every run. CIFAR-C shrinks the photographs to a fifth, taking every fifth
pixel; so it is here.

Shapes: B images, C channels, h x w pixels; floats from 0 to 255. Textures are n x n pixels with
n = 640 (128 when shrunk).
"""

from functools import cache, lru_cache
from math import ceil
from typing import Literal

import numpy as np
import torch
from scipy.fft import irfft2, next_fast_len, rfft2
from torch import Tensor
from torch.nn import functional as F

Border = Literal["edge", "reflect", "symmetric"]
FEW = 12  # radius up to which shifting beats a matrix
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


@lru_cache(maxsize=64)
def _border(length: int, before: int, after: int, border: Border) -> Tensor:
    """Return which pixel each pixel of a padded line is."""
    if length == 1:
        border = "edge"  # nothing to mirror
    return torch.from_numpy(np.pad(np.arange(length), (before, after), mode=border))


def padded(images: Tensor, rows: int, columns: int, border: Border) -> Tensor:
    """Images with a frame of rows and columns. (B, C, h + 2 rows, w + 2 columns)"""
    if rows:
        images = images.index_select(-2, _border(images.shape[-2], rows, rows, border))
    if columns:
        images = images.index_select(-1, _border(images.shape[-1], columns, columns, border))
    return images


def gaussian_weights(sigma: float, truncate: float) -> np.ndarray:
    """Normalised Gaussian weights of radius truncate * sigma, as in scipy.ndimage."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return weights / weights.sum()


@lru_cache(maxsize=8)
def _matrix(length: int, sigma: float, truncate: float, border: Border) -> Tensor:
    """The smoothing of a line as a matrix. (length, length)"""
    weights = gaussian_weights(sigma, truncate)
    radius = len(weights) // 2
    source = _border(length, radius, radius, border).numpy()
    matrix = np.zeros((length, length))
    for offset, weight in enumerate(weights):
        np.add.at(matrix, (np.arange(length), source[offset : offset + length]), weight)
    return torch.from_numpy(matrix).float()


def gaussian(
    images: Tensor, sigma: float, *, truncate: float = 4.0, border: Border = "edge"
) -> Tensor:
    """Gaussian blur of every plane. (B, C, h, w)"""
    weights = gaussian_weights(sigma, truncate)
    radius = len(weights) // 2
    if radius == 0:
        return images
    height, width = images.shape[-2:]
    if radius > FEW:
        rows, columns = (_matrix(length, sigma, truncate, border) for length in (height, width))
        return rows @ images @ columns.T
    for axis, length in ((-2, height), (-1, width)):
        frame = (radius, 0) if axis == -2 else (0, radius)
        source = padded(images, *frame, border)
        images = source.narrow(axis, radius, length) * float(weights[radius])
        for offset in range(2 * radius + 1):
            if offset != radius:
                part = source.narrow(axis, offset, length)
                images.add_(part, alpha=float(weights[offset]))
    return images


def filtered(images: Tensor, kernel: np.ndarray, border: Border = "reflect") -> Tensor:
    """Correlation of every plane with one kernel of odd sides, mirror symmetric. (B, C, h, w)"""
    while kernel.shape[0] > 1 and not kernel[[0, -1]].any() and not kernel[:, [0, -1]].any():
        kernel = kernel[1:-1, 1:-1]
    radius = kernel.shape[0] // 2
    height, width = images.shape[-2:]
    source = padded(images, radius, radius, border)
    taps = np.argwhere(kernel)
    if len(taps) <= 4 * FEW:
        out = torch.zeros_like(images)
        for y, x in taps.tolist():
            out.add_(source[..., y : y + height, x : x + width], alpha=float(kernel[y, x]))
        return out
    size = [next_fast_len(length + 2 * radius, real=True) for length in (height, width)]
    response = torch.fft.rfft2(torch.from_numpy(kernel).float(), s=size)
    spectrum = torch.fft.rfft2(source, s=size).mul_(response)
    out = torch.fft.irfft2(spectrum, s=size)  # symmetric: correlation is convolution
    return out[..., 2 * radius :, 2 * radius :][..., :height, :width]


def motion(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Smear each image along its angle in degrees, as ImageMagick does. (B, C, h, w)

    A pixel becomes the mean of itself and the 2 radius pixels that follow along the angle, weighted
    by half a Gaussian; beyond the border the last pixel is repeated.
    """
    width = 2 * ceil(radius) + 1
    weights = np.exp(-0.5 * (np.arange(width) / sigma) ** 2)
    weights /= weights.sum()
    turns = np.deg2rad(angles.double().numpy())[:, None]
    down, right = (
        np.ceil(np.arange(width) * side - 0.5).astype(int)
        for side in (np.sin(turns), np.cos(turns))
    )
    frame = (int(np.abs(down).max()), int(np.abs(right).max()))
    source = padded(images, *frame, "edge")
    channels, height, line = images.shape[1], images.shape[2], source.shape[3]
    starts = (down + frame[0]) * line + right + frame[1]
    flat = source.flatten(2)
    # One run of memory per channel: row ends carry along what lies in the frame, cut off below.
    length = (height - 1) * line + images.shape[3]
    out = torch.zeros(len(images), channels, height * line)
    for image, target, offsets in zip(flat, out, starts.tolist(), strict=True):
        target = target.narrow(1, 0, length)
        for weight, start in zip(weights.tolist(), offsets, strict=True):
            target.add_(image.narrow(1, start, length), alpha=weight)
    return out.unflatten(2, (height, line))[..., : images.shape[3]]


def zoom_positions(length: int, factor: float) -> tuple[int, int, np.ndarray]:
    """Sampling positions along one axis when its centre is magnified.

    The central ``size = ceil(length / factor)`` pixels are stretched to their rounded size, first
    and last pixel staying first and last, and what is too much is cut off on both sides.

    Returns:
        The centre's first pixel, its size, and the position in it of each output pixel.
    """
    size = ceil(length / factor)
    stretched = max(round(size * factor), length)
    trim = (stretched - length) // 2
    step = (size - 1) / max(stretched - 1, 1)
    return (length - size) // 2, size, (np.arange(length) + trim) * step


def sampled(images: Tensor, rows: Tensor, columns: Tensor, border: Border = "reflect") -> Tensor:
    """Images sampled bilinearly at positions between pixels. (B, C, h', w')

    Args:
        images: (B, C, h, w)
        rows: Positions, 0 to h - 1 inside. (B, h', w') or what broadcasts to it
        columns: Positions, 0 to w - 1 inside.
        border: What lies outside.
    """
    height, width = images.shape[-2:]
    inner = border != "symmetric"  # whether the mirror stands on the last pixel, or beyond it
    if inner:
        y, x = rows * (2 / max(height - 1, 1)) - 1, columns * (2 / max(width - 1, 1)) - 1
    else:
        y, x = (2 * rows + 1) / height - 1, (2 * columns + 1) / width - 1
    grid = torch.stack(torch.broadcast_tensors(x, y), dim=-1).to(images.dtype)
    mode = "border" if border == "edge" else "reflection"
    grid = grid.expand(len(images), *grid.shape[1:])
    return F.grid_sample(images, grid, padding_mode=mode, align_corners=inner)


def frequencies() -> np.ndarray:
    """Return the frequencies of a transform, in cycles per pixel. (n, n / 2 + 1) float32"""
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
