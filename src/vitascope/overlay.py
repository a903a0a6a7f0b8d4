"""Draw any map over any image: attention, relevance, or one number per patch."""

from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitascope.errors import UserError
from vitascope.settings import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@checked
def show(
    image: Any,
    map: Any,
    *,
    query: int | None = None,
    grid: tuple[int, int] | None = None,
    opacity: float = 0.6,
    title: str = "",
) -> "Figure":
    """Show an image next to the image with a map over it; return the matplotlib figure.

    Args:
        image: A file, an image of pillow's, or pixels (H, W, C) or (C, H, W). Pixels beyond their
            usual range, such as normalised ones, are stretched to it.
        map: Numbers over the grid (h, w) or over all tokens (T,); or attention (T, T), (H, T, T) or
            (1, H, T, T), as :func:`vitascope.capture.attention` gives it, averaged over heads.
        query: For attention: the token whose row is shown; the first token, which is the class
            token of most models, when left out.
        grid: Patches down and across, where they do not make a square.
        opacity: Of the map, from 0 to 1.
        title: Above the map.

    Raises:
        UserError: If the map does not fit, or the image cannot be read.

    >>> pixels, attention = np.zeros((8, 8, 3)), np.eye(17)
    >>> figure = show(pixels, attention, query=3)
    >>> len(figure.axes)
    2
    """
    from matplotlib.figure import Figure

    pixels, heat = _pixels(image), _heat(_array(map), query, grid)
    height, width = pixels.shape[:2]
    figure = Figure(figsize=(6.4, 3.2 * height / width + 0.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    extent = (0, width, height, 0)
    left.imshow(pixels, extent=extent)
    right.imshow(pixels, extent=extent)
    right.imshow(heat, extent=extent, alpha=opacity, cmap="inferno", interpolation="bilinear")
    right.set_title(title)
    for axes in (left, right):
        axes.set_axis_off()
    return figure


def _array(values: Any) -> np.ndarray:
    """Return a tensor or an array as an array of floats."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise UserError(f"a map is a tensor or an array of numbers, not {values!r:.40}") from None


def _pixels(image: Any) -> np.ndarray:
    """Return an image as (H, W, 3) from 0 to 1."""
    if isinstance(image, str | Path):
        from vitascope.data.decoding import opened, upright

        try:
            image = upright(opened(image)).convert("RGB")
        except (OSError, UserError) as error:
            raise UserError(f"{image}: {error}") from None
    pixels = _array(image)
    if pixels.ndim == 4 and len(pixels) == 1:
        pixels = pixels[0]
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3) and len(pixels) in (1, 3):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or not pixels.size:
        raise UserError(f"an image has the shape (H, W, C) or (C, H, W), not {pixels.shape}")
    low, high = pixels.min(), pixels.max()
    if low < 0 or high > 255:
        pixels = (pixels - low) / (high - low)
    elif high > 1:
        pixels = pixels / 255
    return pixels.repeat(3 // pixels.shape[-1], axis=-1)


def _heat(values: np.ndarray, query: int | None, grid: tuple[int, int] | None) -> np.ndarray:
    """Return one number per patch (h, w) of a map of any allowed shape."""
    if values.ndim == 4 and len(values) == 1:
        values = values[0]
    attention = values.ndim == 3 or query is not None
    if values.ndim == 3:
        values = values.mean(0)
    square = values.ndim == 2 and values.shape[0] == values.shape[1] and values.shape != grid
    if square and (attention or grid or isqrt(len(values)) ** 2 != len(values)):
        row = 0 if query is None else query
        if not -len(values) <= row < len(values):
            raise UserError(f"there is no token {row}; the map has {len(values)}")
        values = values[row]
    if values.ndim == 2:
        return values
    if values.ndim != 1:
        raise UserError(f"a map is (h, w), (T,), (T, T) or (H, T, T), not {values.shape}")
    down, across = grid or (isqrt(len(values)),) * 2
    if not 0 < down * across <= len(values):
        raise UserError(f"a grid of {down} x {across} patches does not fit {len(values)} tokens")
    return values[len(values) - down * across :].reshape(down, across)
