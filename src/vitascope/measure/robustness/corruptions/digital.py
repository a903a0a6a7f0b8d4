"""Digital corruptions: contrast, elastic deformation, pixelation, JPEG.

Hendrycks & Dietterich 2019 (https://arxiv.org/abs/1903.12261):

* contrast: ``c (x - m) + m``, m the mean of each channel of the image.
* elastic_transform: three points around the centre are moved at random and the affine map through
  them is applied; then each pixel is moved by uniform noise in [-1, 1], smoothed by a Gaussian and
  multiplied. Bilinear both times. All lengths are shares of the shorter side.
* pixelate: shrunk and enlarged by pillow's box filter, one image at a time.
* jpeg_compression: written and read by pillow, one image at a time.

Shapes: B images, C channels, h x w pixels; levels are uint8.
"""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitascope.measure.robustness.corruptions.draws import Draws
from vitascope.measure.robustness.corruptions.filters import gaussian, sampled


def contrast(levels: Tensor, left: float, draws: Draws) -> Tensor:
    """Scale towards the mean of each channel."""
    images = levels.float()
    mean = images.mean((2, 3), keepdim=True)
    return torch.lerp(mean, images, left)


def affine_positions(height: int, width: int, jolt: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Source positions of each pixel under a random affine map: rows and columns, (B, h, w)."""
    x, y, reach = width // 2, height // 2, min(height, width) // 3
    points = torch.tensor(
        [[x + reach, y + reach, 1], [x + reach, y - reach, 1], [x - reach, y - reach, 1]]
    ).double()
    moved = points.repeat(len(draws.indices), 1, 1)
    moved[..., :2] += draws.uniform(3, 2, low=-jolt, high=jolt)
    back = (torch.linalg.pinv(moved) @ points[:, :2]).float()  # (B, 3, 2): moved -> points
    columns = torch.arange(width, dtype=torch.float32)
    rows = torch.arange(height, dtype=torch.float32)[:, None]
    new_x, new_y = (
        columns * back[:, 0, axis, None, None]
        + rows * back[:, 1, axis, None, None]
        + back[:, 2, axis, None, None]
        for axis in (0, 1)
    )
    return new_y, new_x


def elastic_transform(levels: Tensor, shares: tuple[float, float, float], draws: Draws) -> Tensor:
    """A random affine map, then a smooth random displacement of the pixels."""
    height, width = levels.shape[-2:]
    size, smoothness, jolt = (share * min(height, width) for share in shares)
    images = sampled(levels.float(), *affine_positions(height, width, jolt, draws), "reflect")
    if size == 0:
        return images
    moves = draws.uniform(2, height, width, low=-1, high=1)
    moves = gaussian(moves, smoothness, truncate=3, border="symmetric") * size
    rows = moves[:, 1] + torch.arange(height)[:, None]
    columns = moves[:, 0] + torch.arange(width)
    return sampled(images, rows, columns, "symmetric")


def by_pillow(levels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Return what ``change`` makes of each image. (B, C, h, w) uint8"""
    planes = levels.contiguous().numpy()
    out = np.empty_like(planes)
    for source, target in zip(planes, out, strict=True):
        pixels = source[0] if len(source) == 1 else np.stack(list(source), axis=-1)
        changed = np.asarray(change(Image.fromarray(pixels)))
        target[...] = changed if changed.ndim == 2 else changed.transpose(2, 0, 1)
    return torch.from_numpy(out)


def pixelate(levels: Tensor, share: float, draws: Draws) -> Tensor:
    """Downsample and upsample by a box filter."""
    height, width = levels.shape[-2:]
    coarse = (max(1, int(width * share)), max(1, int(height * share)))
    box = Image.Resampling.BOX
    return by_pillow(levels, lambda image: image.resize(coarse, box).resize((width, height), box))


def jpeg_compression(levels: Tensor, quality: int, draws: Draws) -> Tensor:
    """Compress as JPEG and decode."""

    def change(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return by_pillow(levels, change)
