"""The 15 corruptions of CIFAR-C and ImageNet-C, and :func:`corrupt`, which makes them.

Hendrycks & Dietterich 2019, https://arxiv.org/abs/1903.12261, with what their programs do and the
published constants of :mod:`.constants`. Images may have any size and 1 or 3 channels. The result
is quantised to the 256 levels of a byte as the published sets are (cut off, not rounded, as their
programs do). The same seed gives the same images, whatever the batch; work is done on the CPU, so
the device does not matter either. Severity 0 is the clean image, untouched. x is in [0, 1]:

* gaussian_noise: ``x + c n``, n normal.
* shot_noise: ``Poisson(c x) / c``, c photons for a white pixel, by inversion from a table of 65536
  equally likely quantiles for each of the 256 levels: a probability is right to 1/65536.
* impulse_noise: a share c of the values is set to black or white, evenly; each channel by itself.
* defocus_blur: mean over a disc whose edge is softened by a small Gaussian.
* glass_blur: Gaussian blur, pixels moved about, Gaussian blur. Pixels are visited from the bottom
  right; each becomes a copy of one up to c away (-c ... c - 1 in x and y) *as it is by then*. (The
  scripts mean to swap the two, but write it so that numpy copies; the published images have it.)
  In closed form: follow the pointers through pixels visited earlier to one that is not yet
  overwritten. Doubling the pointers takes a few steps where the definition takes one per pixel.
* motion_blur: half a Gaussian along an angle between -45 and 45 degrees.
* zoom_blur: mean of the image and of its centre magnified 1, 1 + step, ... times.
* snow: normal noise is magnified, cut off below a threshold and smeared downwards; it and its half
  turn are added to a whitened image ``c x + (1 - c) max(x, 1.5 grey(x) + 0.5)``.
* frost: ``c_0 x + c_1 frost``; the textures are synthetic (:func:`.filters.frost_textures`).
* fog: ``(x + c p) m / (m + c)``, m the brightest value and p a plasma fractal in [0, 1]: the
  diamond-square scheme on a torus, its noise falling by ``decay ** 2`` from a level to the next.
* brightness: c is added to the value of HSV. Hue and saturation stay, so the colours are scaled:
  ``x min(v + c, 1) / v`` with v the largest channel; black turns grey.
* contrast: ``c (x - m) + m``, m the mean of each channel of the image.
* elastic_transform: three points around the centre are moved at random and the affine map through
  them is applied; then each pixel is moved by uniform noise in [-1, 1], smoothed by a Gaussian and
  multiplied. Bilinear both times. All lengths are shares of the shorter side.
* pixelate: shrunk and enlarged by pillow's box filter, one image at a time.
* jpeg_compression: written and read by pillow, one image at a time.

Deviations: frost's photographs are replaced by synthetic textures; ImageNet-C was stored as JPEG of
quality 85 after each corruption, which is not repeated here; OpenCV warps on a grid of 1/32 pixel,
here the position is exact.

Shapes: B images, C channels, h x w pixels; levels are uint8.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import correlate1d
from scipy.special import pdtr
from torch import Tensor

from vitascope.errors import UserError, unknown
from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS, strength, table_for
from vitascope.measure.robustness.corruptions.filters import (
    filtered,
    frost_textures,
    gaussian,
    motion,
    sampled,
    zoom_positions,
)

GRACE = 1e-3  # of a level: a result that is whole but for rounding is not cut down
CACHE = 2**20  # values worked on at a time: they stay near the processor
BEYOND = 2e-3  # what un-normalising may leave outside [0, 1]

QUANTILES = 65536  # of a Poisson distribution
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


class Draws:
    """The random generators of a batch of images; each call continues where the last one ended.

    Each image has its own, seeded by the seed, the corruption, the severity and the number of the
    image: image 17 is corrupted in the same way alone or in any batch.
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Sequence[int]):
        self.key = (seed, CORRUPTIONS.index(name), severity)
        self.indices = indices

    @cached_property
    def generators(self) -> list[np.random.Generator]:
        """One per image, made when first needed."""
        return [
            np.random.Generator(np.random.SFC64(np.random.SeedSequence((*self.key, index))))
            for index in self.indices
        ]

    def normal(self, *shape: int) -> Tensor:
        """Draw normal numbers of mean 0 and deviation 1. (B, ...) float32"""
        out = np.empty((len(self.indices), *shape), dtype=np.float32)
        for row, generator in zip(out, self.generators, strict=True):
            generator.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(out)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Between low and high. (B, ...) float32"""
        out = np.empty((len(self.indices), *shape), dtype=np.float32)
        for row, generator in zip(out, self.generators, strict=True):
            generator.random(out=row, dtype=np.float32)
        return torch.from_numpy(out).mul_(high - low).add_(low)

    def integers(self, *shape: int) -> np.ndarray:
        """Whole numbers below 65536. (B, ...) uint16"""
        length = int(np.prod(shape))
        rows = [np.frombuffer(g.bytes(2 * length), np.uint16) for g in self.generators]
        return np.stack(rows).reshape(len(rows), *shape)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high - 1. (B, ...) int64"""
        rows = [g.integers(low, high, shape, dtype=np.int16) for g in self.generators]
        return torch.from_numpy(np.stack(rows)).long()


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
    index |= draws.integers(*levels.shape[1:])
    return torch.from_numpy(shot_table(photons).take(index))


def impulse_noise(levels: Tensor, share: float, draws: Draws) -> Tensor:
    """Salt-and-pepper noise."""
    chance = draws.uniform(*levels.shape[1:])
    return levels.masked_fill(chance < share, 0).masked_fill_(chance < share / 2, 255)


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
    """Return which pixel each pixel becomes a copy of after one round. (B, h * w) int64"""
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


Maker = Callable[[Tensor, Any, Draws], Tensor]
MAKERS: dict[str, Maker] = {name: globals()[name] for name in CORRUPTIONS}


def to_levels(images: Tensor) -> Tensor:
    """Images as whole levels. (B, C, h, w) uint8

    Raises:
        UserError: If they are no batch of bytes or of floats in [0, 1].
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise UserError(
            "images to corrupt must be (B, C, h, w) with 1 or 3 channels; "
            f"got {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise UserError(f"images to corrupt must be uint8 or floats, not {images.dtype}")
    if len(images):
        low, high = (float(bound) for bound in images.aminmax())
        if not (low >= -BEYOND and high <= 1 + BEYOND):  # NaN fails it too
            raise UserError(
                f"images to corrupt must lie in [0, 1] but reach from {low:.3g} to {high:.3g}; "
                "give pixels, or the mean and std they were normalised with"
            )
    return images.float().mul(255).round_().clamp_(0, 255).byte()


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    constants: str = "auto",
) -> Tensor:
    """Corrupted images, of the type and on the device of those given. (B, C, h, w)

    Args:
        images: uint8, or floats in [0, 1] (taken at the nearest of 256 levels).
        name: One of :data:`~vitascope.measure.robustness.corruptions.constants.CORRUPTIONS`.
        severity: 1 to 5; 0 gives the images back.
        seed: Of everything random.
        indices: Number of each image: what its random numbers depend on. By default 0, 1, ...
        constants: "cifar", "imagenet", or "auto" by size.
    """
    if name not in MAKERS:
        raise unknown("corruption", name, CORRUPTIONS)
    if severity not in range(6):
        raise UserError(f"severity {severity} is out of range; give 1 to 5, or 0 for clean images")
    if seed < 0:
        raise UserError(f"seed {seed} is out of range; give 0 or more")
    levels = to_levels(images)
    table = table_for(images.shape[2], images.shape[3], constants)
    if severity == 0 or len(images) == 0:
        return images
    numbers = range(len(images)) if indices is None else [int(index) for index in indices]
    if len(numbers) != len(images) or min(numbers) < 0:
        raise UserError(
            f"{len(images)} images came with {len(numbers)} indices; give one of 0 or more for each"
        )
    maker = MAKERS[name]
    if name == "frost":
        maker = partial(frost, shrunk=table == "cifar")
    made = torch.empty(levels.shape, dtype=torch.uint8)
    some = max(1, CACHE // levels[0].numel())
    with torch.no_grad():
        for start in range(0, len(levels), some):
            part = slice(start, start + some)
            draws = Draws(seed, name, severity, numbers[part])
            out = maker(levels[part].cpu(), strength(name, severity, table), draws)
            if out.dtype != torch.uint8:
                out = out.add_(GRACE).clamp_(0, 255)
            made[part] = out
    made = made.to(images.device)
    return made if images.dtype == torch.uint8 else made.to(images.dtype) / 255
