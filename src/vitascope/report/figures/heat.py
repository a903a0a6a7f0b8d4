"""Matrices as small pictures, and heights over a plane as smooth contours.

Colour scales are perceptually even, for the page and for papers alike.
"""

import base64
import io
import math

import numpy as np
from markupsafe import Markup

from vitascope.figure import Heat, Surface, thin
from vitascope.report.figures import svg
from vitascope.report.figures.axes import AxisScale, Plot, ticks
from vitascope.report.figures.lines import axis_number
from vitascope.report.figures.svg import picture_source

MOST_CELLS = 128  # a side

BRIGHT = 0.435  # of viridis: above, black has the larger contrast (4.5 and more), below white

_SAY = 150  # cells that carry their number

_EMPTY = 255  # index of what is not there


def pooled(values: np.ndarray, most: int = MOST_CELLS) -> np.ndarray:
    """Return at most ``most`` rows and columns, evenly chosen."""
    rows, columns = (thin(size, most) for size in values.shape[:2])
    return values[np.ix_(rows, columns)]


def levels(panel: Heat) -> tuple[np.ndarray, float, float]:
    """Values from 0 to 1 (NaN where there is none), and what 0 and 1 stand for."""
    values = np.asarray(panel.values, float)
    good = values[np.isfinite(values) & ((values > 0) | (not panel.log))]
    low = float(good.min()) if panel.low is None and good.size else panel.low or 0.0
    high = float(good.max()) if panel.high is None and good.size else panel.high or 1.0
    if high <= low:
        low, high = (low / 1.1, low * 1.1) if panel.log else (low - 0.5, low + 0.5)
    with np.errstate(all="ignore"):  # what cannot be drawn is not finite, and left out
        if panel.log:
            at = np.log(values / low) / math.log(high / low)
        else:
            at = (values - low) / (high - low)
    return np.where(np.isfinite(at), np.clip(at, 0, 1), np.nan), low, high


def _picture(at: np.ndarray, colours: str) -> str:
    """Values of 0 to 1 as a PNG of 255 colours; what is NaN is transparent."""
    from matplotlib import colormaps
    from PIL import Image

    table = (255 * colormaps[colours](np.linspace(0, 1, 255))[:, :3]).round().astype(np.uint8)
    index = np.where(np.isfinite(at), np.round(np.nan_to_num(at) * 254), _EMPTY).astype(np.uint8)
    image = Image.frombytes("P", (index.shape[1], index.shape[0]), index.tobytes())
    image.putpalette([*table.ravel().tolist(), 0, 0, 0])
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True, transparency=_EMPTY)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def image(
    at: np.ndarray,
    x: float,
    y: float,
    wide: float,
    high: float,
    colours: str,
    class_: str = "pixels",
) -> Markup:
    """Values of 0 to 1 in colours, somewhere in a drawing."""
    return svg.tag(
        "image",
        href=_picture(at, colours),
        x=x,
        y=y,
        width=wide,
        height=high,
        preserveAspectRatio="none",
        class_=class_,
    )


def photograph(pixels: np.ndarray, x: float, y: float, wide: float, high: float) -> Markup:
    """An image (H, W, 3) of bytes, somewhere in a drawing."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=88)
    href = picture_source(np.frombuffer(stream.getvalue(), np.uint8))
    box = {"x": x, "y": y, "width": wide, "height": high}
    return svg.tag("image", href=href, preserveAspectRatio="none", **box)


def draw_heat(panel: Heat, *, width: float = 420, **_: float) -> Markup:
    """The matrix with its names and a bar of colours; few cells carry their numbers."""
    at, low, high = levels(panel)
    if not at.size:
        return svg.nothing()
    count_rows, count_columns = at.shape
    left = 10 + max((svg.width(svg.shorten(row, 16), 10.5) for row in panel.rows), default=0)
    bar = 58
    side = (width - left - bar) / count_columns
    tall = float(np.clip(side, 360 / max(count_rows, 1) if count_rows > 20 else 15, 34))
    box = (side * count_columns, tall * count_rows)
    top = 10.0
    turned = max((svg.width(column, 10.5) for column in panel.columns), default=0) > side
    foot = (
        min(90.0, 10 + max((svg.width(svg.shorten(c, 14), 10.5) for c in panel.columns), default=0))
        if turned
        else 20.0
    )
    parts = [image(pooled(at), left, top, *box, "viridis")]
    for index in thin(count_rows, max(1, int(box[1] / 12))):
        name = panel.rows[index] if index < len(panel.rows) else ""
        y = top + (index + 0.5) * tall + 4
        parts.append(svg.text(left - 6, y, name, anchor="end", most=16))
    for index in thin(count_columns, max(1, int(box[0] / (13 if turned else 15)))):
        name = svg.shorten(panel.columns[index] if index < len(panel.columns) else "", 14)
        x, y = left + (index + 0.5) * side, top + box[1] + 12
        turn = f"rotate(-90 {x + 3:.1f} {y:.1f})" if turned else None
        where = {"x": x + (3 if turned else 0), "y": y, "transform": turn}
        parts.append(svg.tag("text", name, **where, text_anchor="end" if turned else "middle"))
    if at.size <= _SAY and side >= 24:
        parts += _numbers(panel, at, left, top, side, tall)
    parts += colour_bar(low, high, panel, left + box[0] + 12, top, min(box[1], 160))
    summary = f"{panel.title or panel.label}: {count_rows} by {count_columns} values of "
    summary += f"{panel.label or 'the matrix'} from {low:.3g} to {high:.3g}."
    return drawn(parts, width, top + box[1] + foot, summary)


def _numbers(
    panel: Heat, at: np.ndarray, left: float, top: float, side: float, tall: float
) -> list[Markup]:
    labels = []
    widest = max(abs(float(v)) for v in np.nan_to_num(panel.values).ravel())
    digits = 0 if widest >= 100 else 1 if widest >= 10 else 2
    for (row, column), share in np.ndenumerate(at):
        if np.isfinite(share):
            value = float(panel.values[row, column])
            number = f"{value:.{digits}f}" if widest >= 0.01 else f"{value:.1g}"
            middle = (left + (column + 0.5) * side, top + (row + 0.5) * tall + 3.6)
            kind = "on-light" if share > BRIGHT else "on-dark"
            labels.append(svg.text(*middle, number.replace("-", "−"), kind, anchor="middle"))
    return labels


def colour_bar(
    low: float, high: float, panel: Heat, x: float, y: float, tall: float
) -> list[Markup]:
    """Draw which colour is which number."""
    scale = AxisScale(low, high, panel.log)
    parts = [image(np.linspace(1, 0, 64)[:, None], x, y, 8, tall, "viridis")]
    for value in ticks(scale, 3):
        parts.append(svg.text(x + 12, y + (1 - scale.at(value)) * tall + 4, axis_number(value)))
    return parts


def drawn(parts: list[Markup], width: float, height: float, label: str) -> Markup:
    """Parts as one drawing; ``label`` is what a screen reader says."""
    return svg.tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {height:.1f}",
        role="img",
        aria_label=label,
        class_="chart heat",
        font_size=10.5,
    )


NUM_CONTOURS = 14

_FINE = 96  # points along each side after interpolation

_CONTOUR_POINTS = 90


def smooth(panel: Surface) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A fine grid (x, y) and the heights on it (X, Y), by splines of the third degree at most.

    The heights are interpolated also where colours are logarithmic: around a minimum they are about
    quadratic, which splines follow, and their logarithms are not. What was not finite stays out.
    """
    from scipy.interpolate import RectBivariateSpline

    along = [np.asarray(axis, float) for axis in (panel.x, panel.y)]
    if not all(np.isfinite(axis).all() for axis in along):
        raise ValueError("the positions of a surface must be finite numbers")
    values = np.asarray(panel.values, float)
    there = np.isfinite(values) & ((values > 0) | (not panel.log))
    if not there.any():
        return along[0], along[1], np.full(values.shape, np.nan)
    low, top = values[there].min(), values[there].max()
    degrees = {f"k{name}": min(3, len(axis) - 1) for name, axis in zip("xy", along, strict=True)}
    fine = [np.linspace(axis[0], axis[-1], _FINE) for axis in along]
    if min(degrees.values()) < 1:
        return along[0], along[1], np.where(there, values, np.nan)
    fitted = RectBivariateSpline(*along, np.where(there, values, top), **degrees)(*fine)
    fitted = np.clip(fitted, low, top)  # splines overshoot next to a cliff
    nearest = [np.abs(b[:, None] - a).argmin(1) for a, b in zip(along, fine, strict=True)]
    return fine[0], fine[1], np.where(there[np.ix_(*nearest)], fitted, np.nan)


def contour_heights(low: float, high: float, log: bool) -> np.ndarray:
    """Heights of the contours, evenly from the lowest to the highest."""
    return (np.geomspace if log else np.linspace)(low, high, NUM_CONTOURS + 2)[1:-1]


def draw_surface(panel: Surface, *, width: float = 420, **_: float) -> Markup:
    """Colours with contours in them, a cross at the origin, and a bar of colours."""
    from contourpy import contour_generator

    x, y, heights = smooth(panel)
    if not np.isfinite(heights).any():
        return svg.nothing()
    matrix = Heat(
        title=panel.title, rows=(), columns=(), values=heights, label=panel.label, log=panel.log
    )
    at, low, high = levels(matrix)
    side = min(width - 110.0, 330.0)
    margins = (24.0, width - 44 - side, 40.0, 44.0)
    across, up = AxisScale(float(x[0]), float(x[-1])), AxisScale(float(y[0]), float(y[-1]))
    plot = Plot(width, side + 64, margins, across, up, font=10.5)
    plot.axes(
        [(value, (axis_number(value),)) for value in ticks(across, 4)],
        [(value, axis_number(value)) for value in ticks(up, 4)],
        "first direction",
        f"second direction; colours: {panel.label}",
    )
    plot.parts.append(image(at.T[::-1], 44, 24, side, side, "viridis", "smooth"))
    drawing = contour_generator(x, y, np.ma.masked_invalid(heights.T))
    for height in contour_heights(low, high, panel.log):
        for line in drawing.lines(float(height)):
            vertices = np.asarray(line)[thin(len(line), _CONTOUR_POINTS)]
            points = [(plot.px(float(a)), plot.py(float(b))) for a, b in vertices]
            plot.parts.append(svg.tag("path", d=svg.path(points), class_="contour"))
    if all(scale.low <= 0 <= scale.high for scale in (across, up)):
        a, b = plot.px(0.0), plot.py(0.0)
        plot.parts.append(svg.line((a - 5, b), (a + 5, b), "centre"))
        plot.parts.append(svg.line((a, b - 5), (a, b + 5), "centre"))
    plot.parts += colour_bar(low, high, matrix, 56 + side, 24, min(side, 160))
    summary = f"{panel.title or panel.label}: {panel.label} from {low:.3g} to {high:.3g} over "
    summary += f"steps from {x[0]:.3g} to {x[-1]:.3g} along two directions."
    return plot.draw(summary, "heat")
