"""Weather: snow, frost, fog, brightness.

Hendrycks & Dietterich 2019 (https://arxiv.org/abs/1903.12261), x in [0, 1]:

* snow: normal noise is magnified, cut off below a threshold and smeared downwards; it and its half
  turn are added to a whitened image ``c x + (1 - c) max(x, 1.5 grey(x) + 0.5)``.
* frost: ``c_0 x + c_1 frost``; the textures are made up, see :mod:`.frost`.
* fog: ``(x + c p) m / (m + c)``, m the brightest value and p a plasma fractal in [0, 1]: the
  diamond-square scheme on a torus, its noise falling by ``decay ** 2`` from a level to the next.
* brightness: c is added to the value of HSV. Hue and saturation stay, so the colours are scaled:
  ``x min(v + c, 1) / v`` with v the largest channel; black turns grey.

Shapes: B images, C channels, h x w pixels; levels are uint8.
"""

import torch
from torch import Tensor

from vitascope.measure.robustness.corruptions.draws import Draws
from vitascope.measure.robustness.corruptions.filters import motion, sampled, zoom_positions
from vitascope.measure.robustness.corruptions.frost import frost_textures

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def grey(images: Tensor) -> Tensor:
    """Luma. (B, 1, h, w)"""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor(LUMA).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def snow(levels: Tensor, strength: tuple[float, ...], draws: Draws) -> Tensor:
    """Motion-blurred noise over a whitened image."""
    mean, deviation, zoom, threshold, radius, sigma, share = strength
    images = levels.float()
    (_, height, rows), (_, width, columns) = (
        zoom_positions(length, zoom) for length in images.shape[-2:]
    )
    flakes = draws.normal(1, height, width).mul_(deviation).add_(mean)
    y, x = torch.from_numpy(rows)[None, :, None], torch.from_numpy(columns)[None, None]
    flakes = sampled(flakes, y, x, "edge")
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp_(0, 1).mul_(255).floor_()
    angles = draws.uniform(1, low=-135, high=-45)[:, 0]
    flakes = motion(flakes, radius, sigma, angles).round_()
    pale = torch.maximum(images, grey(images) * 1.5 + 127.5)
    return images * share + pale * (1 - share) + flakes + flakes.flip(-1, -2)


def frost(levels: Tensor, strength: tuple[float, float], draws: Draws, shrunk: bool) -> Tensor:
    """Blend with a crop of a frost texture."""
    textures = frost_textures(shrunk)
    side = textures.shape[-1]
    height, width = levels.shape[-2:]
    which = draws.whole(0, len(textures), 1)[:, 0].tolist()
    tops = draws.whole(0, max(side - height, 0) + 1, 1)[:, 0].tolist()
    lefts = draws.whole(0, max(side - width, 0) + 1, 1)[:, 0].tolist()
    if max(height, width) > side:
        again = -(-max(height, width) // side)
        textures = textures.repeat(1, 1, again, again)
    ice = torch.stack(
        [
            textures[number, :, top : top + height, left : left + width]
            for number, top, left in zip(which, tops, lefts, strict=True)
        ]
    ).float()
    if levels.shape[1] == 1:
        ice = grey(ice)
    return ice.mul_(strength[1]).add_(levels, alpha=strength[0])


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """A plasma fractal between 0 and 1 on a torus. (B, side, side), side a power of 2"""
    noise = draws.uniform(side * side, low=-1, high=1)
    land = torch.zeros(len(noise), 1, 1)
    amplitude, used, size = 1.0, 0, 1
    while size < side:
        wobble = noise[:, used : used + 3 * size * size].view(-1, 3, size, size) * amplitude
        below, right = land.roll(-1, 1), land.roll(-1, 2)
        centre = (land + below + right + below.roll(-1, 2)) / 4 + wobble[:, 0]
        top = (land + right + centre + centre.roll(1, 1)) / 4 + wobble[:, 1]
        left = (land + below + centre + centre.roll(1, 2)) / 4 + wobble[:, 2]
        upper, lower = torch.stack([land, top], dim=-1), torch.stack([left, centre], dim=-1)
        land = torch.stack([upper.flatten(2), lower.flatten(2)], dim=2).flatten(1, 2)
        used += 3 * size * size
        size *= 2
        amplitude /= decay**2
    low, high = land.amin((1, 2), keepdim=True), land.amax((1, 2), keepdim=True)
    return (land - low) / (high - low).clamp(min=1e-12)


def fog(levels: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    """Add a plasma fractal."""
    thickness, decay = strength
    height, width = levels.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    veil = plasma(side, decay, draws)[:, None, :height, :width] * (255 * thickness)
    brightest = levels.amax((1, 2, 3), keepdim=True).float()
    return (levels + veil) * (brightest / (brightest + 255 * thickness))


def brightness(levels: Tensor, added: float, draws: Draws) -> Tensor:
    """Raise the value of HSV."""
    images = levels.float()
    value = images.amax(1, keepdim=True)
    brighter = (value + 255 * added).clamp_(max=255)
    return torch.where(value > 0, images * (brighter / value.clamp(min=1)), brighter)
