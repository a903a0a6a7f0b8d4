"""Heights over a plane as smooth contours, for the page and for papers alike."""

import numpy as np
from markupsafe import Markup

from vitascope.figure import Heat, Surface
from vitascope.report.figures import svg
from vitascope.report.figures.axes import Plot, thin
from vitascope.report.figures.heat import colour_bar, image, levels
from vitascope.report.figures.lines import axis_number
from vitascope.report.figures.scale import AxisScale, ticks

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
    values = np.asarray(panel.values, float)
    there = np.isfinite(values) & ((values > 0) | (not panel.log))
    if not there.any():
        return along[0], along[1], np.full(values.shape, np.nan)
    low, top = values[there].min(), values[there].max()
    degrees = {f"k{name}": min(3, len(axis) - 1) for name, axis in zip("xy", along, strict=True)}
    fine = [np.linspace(axis[0], axis[-1], _FINE) for axis in along]
    if min(degrees.values()) < 1:
        return along[0], along[1], np.where(there, values, np.nan)
    found = RectBivariateSpline(*along, np.where(there, values, top), **degrees)(*fine)
    found = np.clip(found, low, top)  # splines overshoot beside a cliff
    nearest = [np.abs(b[:, None] - a).argmin(1) for a, b in zip(along, fine, strict=True)]
    return fine[0], fine[1], np.where(there[np.ix_(*nearest)], found, np.nan)


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
            kept = np.asarray(line)[thin(len(line), _CONTOUR_POINTS)]
            points = [(plot.px(float(a)), plot.py(float(b))) for a, b in kept]
            plot.parts.append(svg.tag("path", d=svg.path(points), class_="contour"))
    if all(scale.low <= 0 <= scale.high for scale in (across, up)):
        a, b = plot.px(0.0), plot.py(0.0)
        plot.parts.append(svg.line((a - 5, b), (a + 5, b), "centre"))
        plot.parts.append(svg.line((a, b - 5), (a, b + 5), "centre"))
    plot.parts += colour_bar(low, high, matrix, 56 + side, 24, min(side, 160))
    words = f"{panel.title or panel.label}: {panel.label} from {low:.3g} to {high:.3g} over "
    words += f"steps from {x[0]:.3g} to {x[-1]:.3g} along two directions."
    return plot.draw(words, "heat")
