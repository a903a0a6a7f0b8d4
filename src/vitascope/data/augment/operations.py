"""Operations on whole batches: crops, mirrors, affine maps, colours, jitter, erasing.

Geometric ones work on uint8 batches with one draw of random numbers per image. Colour operations
give pillow's results to the last bit: eight of RandAugment's operations only look up each value of
a channel in a table (a "point" operation of pillow). A batch in which every image has another such
operation is then one gather from a stack of tables.

Colour jitter changes brightness, contrast and saturation by random factors, as torchvision's
``ColorJitter(s, s, s)`` as timm calls it; the three come in a fixed order here where torchvision
shuffles them.

Random erasing (Zhong et al. 2020, https://arxiv.org/abs/1708.04896) is timm's "pixel" kind: a box
of random area and shape is filled with normal noise, after normalisation, so that the noise has the
statistics of an image. Drawing noise is slow, copying is fast: each box takes a piece, from a
random offset, of a bank of at least a million numbers that is drawn once.

Shapes: b images, C channels, H x W pixels.
"""

from functools import lru_cache
from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitascope.data.images import resize
from vitascope.data.random_streams import Purpose, stream


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


def crop_boxes(
    rng: np.random.Generator,
    count: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> np.ndarray:
    """Boxes of random area and shape (Szegedy et al. 2015), as torchvision draws them. (count, 4)

    Ten tries to fit one inside the image, then the largest centred box of an allowed shape.
    Rows are top, left, height, width.
    """
    area = rng.uniform(*scale, (count, 10)) * height * width
    shape = np.exp(rng.uniform(log(ratio[0]), log(ratio[1]), (count, 10)))
    w, h = np.round(np.sqrt(area * shape)), np.round(np.sqrt(area / shape))
    fits = (w > 0) & (h > 0) & (w <= width) & (h <= height)
    first = (np.arange(count), fits.argmax(axis=1))
    found = fits.any(axis=1)
    clipped = np.clip(width / height, *ratio)
    h = np.where(found, h[first], min(height, round(width / clipped)))
    w = np.where(found, w[first], min(width, round(height * clipped)))
    place = rng.random((2, count))
    top = np.where(found, np.floor(place[0] * (height - h + 1)), (height - h) // 2)
    left = np.where(found, np.floor(place[1] * (width - w + 1)), (width - w) // 2)
    return np.stack([top, left, h, w], axis=1).astype(np.int64)


def resized_crop(pixels: Tensor, boxes: np.ndarray, side: int, interpolation: str) -> Tensor:
    """Cut a box out of each image and resize it to side x side."""
    out = pixels.new_empty(*pixels.shape[:2], side, side)
    for i, (top, left, height, width) in enumerate(boxes.tolist()):
        box = pixels[i : i + 1, :, top : top + height, left : left + width]
        out[i] = resize(box, side, side, interpolation)[0]
    return out


def affine(pixels: Tensor, matrix: Tensor, fill: Tensor, interpolation: str) -> Tensor:
    """Pillow's ``Image.transform(AFFINE)`` on a batch: output (x, y) shows input M (x, y, 1).

    Coordinates are pixel centres, (0.5, 0.5) the first; what falls outside gets ``fill``. Bilinear
    sampling is pillow's to rounding; torch's bicubic kernel has a = -0.75 where pillow has -1.

    Args:
        pixels: (b, C, H, W) uint8.
        matrix: (b, 2, 3).
        fill: (C,) uint8.
        interpolation: "bilinear" or "bicubic".
    """
    height, width = pixels.shape[-2:]
    x = torch.arange(width, dtype=matrix.dtype) + 0.5
    y = torch.arange(height, dtype=matrix.dtype) + 0.5
    # Row of M times (x, y, 1), scaled so that the image spans -1 ... 1: a part that depends on
    # the column and one that depends on the row. (b, 2, W) and (b, 2, H)
    scale = 2 / torch.tensor([width, height], dtype=matrix.dtype).view(1, 2, 1)
    by_column = (matrix[:, :, :1] * x * scale).float()
    by_row = ((matrix[:, :, 1:2] * y + matrix[:, :, 2:]) * scale - 1).float()
    grid = by_row.mT[:, :, None] + by_column.mT[:, None]  # (b, H, W, 2)
    sampled = F.grid_sample(
        pixels.float(), grid, interpolation, padding_mode="border", align_corners=False
    )
    sampled = sampled.round_().clamp_(0, 255).to(torch.uint8)
    outside = (grid.abs() > 1).any(dim=-1).unsqueeze(1)
    return torch.where(outside, fill[:, None, None], sampled)


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


def jitter(pixels: Tensor, factors: np.ndarray) -> Tensor:
    """Scale brightness, contrast and saturation; ``factors`` is (3, b), 1 changes nothing."""
    bright, contrast, saturation = torch.from_numpy(factors).float()
    table = blend_table(torch.zeros(len(pixels)), bright)
    pixels = look_up(pixels, table[:, None].expand(-1, pixels.shape[1], -1))
    table = blend_table(gray_mean(pixels), contrast)
    pixels = look_up(pixels, table[:, None].expand(-1, pixels.shape[1], -1))
    return saturate(pixels, saturation) if pixels.shape[1] == 3 else pixels


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
