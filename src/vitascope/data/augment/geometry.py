"""Geometric augmentation: shifted and resized crops, mirrors, affine maps.

All work on whole uint8 batches with one draw of random numbers per image.

Shapes: b images, C channels, H x W pixels.
"""

from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitascope.data.images import resize


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
