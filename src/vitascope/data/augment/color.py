"""Colour operations on whole uint8 batches, pillow's results to the last bit.

Eight of RandAugment's operations only look up each value of a channel in a table (a "point"
operation of pillow). A batch in which every image has another such operation is then one gather
from a stack of tables.

Shapes: b images, C channels, H x W pixels.
"""

import torch
from torch import Tensor

VALUES = torch.arange(256)


def histograms(pixels: Tensor) -> Tensor:
    """Count of every value, per image and channel. (b, C, 256) int64"""
    b, c = pixels.shape[:2]
    rows = torch.arange(b * c).mul_(256).view(b * c, 1)
    flat = pixels.flatten(2).flatten(0, 1) + rows
    return torch.bincount(flat.flatten(), minlength=256 * b * c).view(b, c, 256)


def look_up(pixels: Tensor, tables: Tensor) -> Tensor:
    """Replace every value by its entry in the table of its image and channel.

    Args:
        pixels: (b, C, H, W) uint8.
        tables: (b, C, 256) uint8.
    """
    return tables.gather(2, pixels.flatten(2).long()).view_as(pixels)


def autocontrast_table(counts: Tensor) -> Tensor:
    """Stretch the values in use to 0 ... 255: ``ImageOps.autocontrast``. (b, C, 256)"""
    used = counts > 0
    low = used.int().argmax(dim=-1, keepdim=True).double()
    high = 255 - used.flip(-1).int().argmax(dim=-1, keepdim=True).double()
    scale = torch.full_like(low, 255) / (high - low)  # 255 / x would be a reciprocal, less exact
    table = (VALUES * scale + (-low * scale)).clamp(0, 255)
    return torch.where(high > low, table, VALUES).to(torch.uint8)


def equalize_table(counts: Tensor) -> Tensor:
    """Make every value about equally frequent: ``ImageOps.equalize``. (b, C, 256)"""
    last = 255 - (counts > 0).flip(-1).int().argmax(dim=-1, keepdim=True)
    step = (counts.sum(dim=-1, keepdim=True) - counts.gather(-1, last)) // 255
    below = counts.cumsum(dim=-1) - counts
    table = (below + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, table.clamp(max=255), VALUES).to(torch.uint8)


def blend(base: Tensor, value: Tensor, factor: Tensor) -> Tensor:
    """``Image.blend``: base + factor (value - base), cut off to whole numbers in 0 ... 255."""
    base, value = base.float(), value.float()
    return (base + factor * (value - base)).clamp_(0, 255).to(torch.uint8)


def blend_table(base: Tensor, factor: Tensor) -> Tensor:
    """Table that blends every value with one base value per image: brightness (base 0) and
    contrast (base the mean grey).

    Args:
        base: (b,).
        factor: (b,) float32.

    Returns:
        (b, 256) uint8
    """
    return blend(base[:, None], VALUES[None], factor[:, None])


def gray(pixels: Tensor) -> Tensor:
    """Luma as pillow's ``convert("L")`` computes it. (b, 1, H, W) int32"""
    if pixels.shape[1] == 1:
        return pixels.int()
    red, green, blue = pixels.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).unsqueeze(1)


def gray_mean(pixels: Tensor) -> Tensor:
    """Mean luma, rounded as ``ImageEnhance.Contrast`` does. (b,) int64"""
    luma = gray(pixels).flatten(1)
    return (luma.sum(dim=1).double() / luma.shape[1] + 0.5).long()


def saturate(pixels: Tensor, factor: Tensor) -> Tensor:
    """Away from grey (factor above 1) or towards it: ``ImageEnhance.Color``; factor (b,)."""
    return blend(gray(pixels), pixels, factor.view(-1, 1, 1, 1))


def sharpen(pixels: Tensor, factor: Tensor) -> Tensor:
    """Away from the smoothed image or towards it: ``ImageEnhance.Sharpness``; factor (b,).

    Pillow's smoothing has the kernel (1 1 1, 1 5 1, 1 1 1) / 13 and leaves the border as it is.
    """
    whole = pixels.int()
    rows = whole[:, :, :-2] + whole[:, :, 1:-1] + whole[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * whole[:, :, 1:-1, 1:-1]
    smooth = whole.clone()
    smooth[:, :, 1:-1, 1:-1] = (2 * total + 13) // 26  # total / 13, halves up
    return blend(smooth, pixels, factor.view(-1, 1, 1, 1))
