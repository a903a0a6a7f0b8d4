"""A figure through matplotlib, for papers: the same panels, styles and words as on the page.

Text in the SVG is drawn as outlines and the PDF holds TrueType fonts, so a figure looks the same
on every machine and journals take it.
"""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure as drawn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize

from vitascope.errors import UserError
from vitascope.figure import Dots, Figure, Heat, Lines, Maps, Series, Style, Surface, thin
from vitascope.measure.instrument import MARKS, REST
from vitascope.record import atomic_write
from vitascope.report.figures.axes import spread, ticks
from vitascope.report.figures.heat import BRIGHT, NUM_CONTOURS, levels, smooth
from vitascope.report.figures.lines import (
    axis_number,
    line_scales,
    of_points,
    paper_of,
    runs_of,
    seeds_of,
    x_marks,
)
from vitascope.report.figures.maps import lit, map_levels
from vitascope.report.figures.style import COLOURS
from vitascope.report.figures.svg import NOTHING, shorten

FORMATS = ("png", "svg", "pdf")
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e8ec",
    "axes.axisbelow": True,
    "svg.fonttype": "path",
    "svg.hashsalt": "vitascope",  # the same record gives the same file
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}
_INK = "#5a606b"
_MOST = 2000  # points of a line


class Drawing(drawn.Figure):
    """A matplotlib figure that shows itself in a notebook, whether or not pyplot is loaded."""

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(stream, format="png", dpi=120)
        return stream.getvalue()

    def pixels(self) -> np.ndarray:
        """The drawing on white, (height, width, 3) in uint8."""
        canvas = FigureCanvasAgg(self)
        with matplotlib.rc_context(STYLE):
            canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def draw_figure(figure: Figure) -> Drawing:
    """The panels next to each other, three per row."""
    columns = min(len(figure.panels), 3)
    rows = -(-len(figure.panels) // columns)
    sizes = [_SIZE[type(panel)](panel) for panel in figure.panels]
    wide = max(size[0] for size in sizes)
    high = max(size[1] for size in sizes)
    with matplotlib.rc_context(STYLE):
        drawing = Drawing(figsize=(wide * columns, high * rows))
        axes = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, figure.panels, strict=False):
            _DRAW[type(panel)](axis, panel)
            if panel.title:
                over = 18 if isinstance(panel, Lines) and axis.get_legend() else 6  # a legend
                axis.set_title(_short(panel.title), fontsize=9, loc="left", pad=over)
        for axis in axes[len(figure.panels) :]:
            axis.set_axis_off()
    return drawing


def save_figure(
    drawing: Drawing, folder: Path, name: str, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write ``folder/name.{png,svg,pdf}``, each whole or not at all and without a date."""
    written = []
    with matplotlib.rc_context(STYLE):
        for kind in formats:
            path = folder / f"{name}.{kind}"
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            with atomic_write(path) as stream:
                drawing.savefig(stream, format=kind, dpi=200, metadata=dated)
            written.append(path)
    return written


def write_figure(figure: Figure, path: Path) -> Path:
    """Write one figure to a file; its ending says the format."""
    kind = path.suffix.lstrip(".")
    if kind not in FORMATS:
        raise UserError(f"cannot draw to {path}: give a name that ends in .png, .svg or .pdf")
    return save_figure(draw_figure(figure), path.parent, path.stem, (kind,))[0]


def _plain(text: str) -> str:
    """Words in which nothing would be read as mathematics."""
    return text.replace("$", r"\$")


def _short(text: str) -> str:
    """Words that leave room for the drawing."""
    return _plain(shorten(text, 36))


def _style(style: Style) -> dict[str, Any]:
    dash: Any = (0, tuple(map(float, style.dash.split()))) if style.dash else "-"
    return {"color": COLOURS[style.colour][0], "ls": dash}


def _lines(axis: Axes, panel: Lines) -> None:
    if not any(runs_of(line, panel) for line in panel.series):
        axis.set_axis_off()
        axis.text(0, 0.9, NOTHING, color=_INK, transform=axis.transAxes)
        return
    ends: list[tuple[float, float, str, str]] = []
    for line in panel.series:
        style, last = _style(line.style), None
        for run in runs_of(line, panel, _MOST):
            xs, ys = ([float(part[i] or 0) for i in run] for part in (line.x, line.y))
            dotted = panel.marked or len(run) == 1 or not panel.joined
            mark = MARKERS[line.style.marker] if dotted and line.marks is None else ""
            axis.plot(xs, ys, **style, lw=1.5 if panel.joined else 0, marker=mark, ms=3.5)
            for i, x, y in zip(run, xs, ys, strict=True):
                if line.marks is not None:
                    axis.plot(x, y, MARKERS[line.marks[i]], color=style["color"], ms=5)
            last = (xs[-1], ys[-1])
            _spread(axis, panel, line, run)
        if last is not None and line.label:
            ends.append((*last, shorten(line.label, 28), style["color"]))
    for label, value in panel.levels:
        axis.axhline(value, color=_INK, lw=0.9, ls="--")
        axis.annotate(
            _short(label),
            (0.02, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7,
            color=_INK,
        )
    for across, up, _ in panel.rings:
        axis.plot(across, up, "o", mfc="none", mec=_INK, ms=11, mew=0.9, ls=":")
    _line_axes(axis, panel)
    if of_points(panel):
        for x, y, label, colour in ends:
            offset: Any = {"xytext": (6, 4), "textcoords": "offset points"}
            axis.annotate(_plain(label), (x, y), color=colour, fontsize=8, **offset)
    else:
        _set_ends(axis, ends)
    _kinds(axis, {mark for line in panel.series for mark in line.marks or ()})


def _spread(axis: Axes, panel: Lines, line: Series, run: Sequence[int]) -> None:
    """A band around a line, whiskers of points, and the dots that points are the means of."""
    colour, xs = COLOURS[line.style.colour][0], [float(line.x[i] or 0) for i in run]
    if line.low is not None and line.high is not None:
        low, high = (_array(part, run) for part in (line.low, line.high))
        if panel.joined:
            axis.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)
        else:
            axis.vlines(xs, low, high, color=colour, lw=1)
    for strand in line.strands or ():
        axis.plot(xs, _array(strand, run), color=colour, lw=0.7, alpha=0.5)
    if line.each is not None:
        dots = [(x, v) for x, i in zip(xs, run, strict=True) for v in line.each[i] if v is not None]
        faint: Any = {"color": colour, "ms": 2.5, "mew": 0, "alpha": 0.4}
        axis.plot([x for x, _ in dots], [v for _, v in dots], "o", **faint)


def _line_axes(axis: Axes, panel: Lines) -> None:
    """Scales, ticks and names as on the page."""
    axis.set(xlabel=_short(panel.x_label), ylabel=_short(panel.y_label))
    if panel.x_log:
        axis.set_xscale("log")
    if panel.y_log:
        axis.set_yscale("log")
    across, up = line_scales(panel)
    xs, ys = x_marks(panel, across, 5), ticks(up, 5)
    axis.set_xticks(xs, [axis_number(mark) for mark in xs])
    axis.set_yticks(ys, [axis_number(mark) for mark in ys])
    axis.minorticks_off()
    axis.set_ylim(up.low, up.high)
    if of_points(panel):
        axis.set_xlim(across.low, across.high)
    if panel.x_names:
        shown = thin(len(panel.x_names), 16)
        ticks_at = [panel.names_at[i] for i in shown]
        labels = [_short(panel.x_names[i]) for i in shown]
        turned = not panel.x_at and max(map(len, labels)) > 3
        axis.set_xticks(ticks_at, labels, rotation=90 if turned else 0, fontsize=7 if turned else 9)


def _set_ends(axis: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names (x, y, words, colour) at the ends of lines, moved apart."""
    low, high = axis.get_ylim()
    log = axis.get_yscale() == "log"
    at = [
        np.log(y / low) / np.log(high / low) if log else (y - low) / (high - low)
        for _, y, _, _ in ends
    ]
    axis.set_xlim(axis.get_xlim())  # the labels shall not move it
    edge = axis.get_xlim()[1]
    for (x, y, label, colour), own, height in zip(ends, at, spread(at, 0.062, 0, 1), strict=True):
        if axis.transAxes.inverted().transform(axis.transData.transform((x, y)))[0] < 0.93:
            axis.plot([x, edge], [y, y], color=colour, lw=0.6, ls=":")
        axis.annotate(
            _plain(label),
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(5, 72 * axis.figure.get_figheight() * 0.7 * (height - own)),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _kinds(axis: Axes, shapes: set[str]) -> None:
    """Draw which shape is which kind of unit, above the lines."""
    kinds = [(shape, text) for shape, text in (*MARKS.values(), REST) if shape in shapes]
    for shape, text in kinds:
        label = text.partition(" ")[2]
        axis.plot([], [], MARKERS[shape], color=_INK, ms=4.5, label=label)
    if kinds:
        axis.legend(
            frameon=False,
            fontsize=7,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=4,
            borderpad=0,
            handletextpad=0.2,
            columnspacing=1,
        )


def _array(part: Sequence[float | None], run: Sequence[int]) -> np.ndarray:
    chosen = [part[i] for i in run]
    return np.array([np.nan if value is None else value for value in chosen], float)


def _dots(axis: Axes, panel: Dots) -> None:
    count = len(panel.series)
    for index, line in enumerate(panel.series):
        colour = COLOURS[line.style.colour][0]
        for group in range(len(panel.groups)):
            y = group + 0.7 * (index + 0.5) / count - 0.35
            seeds, paper = seeds_of(line, group), paper_of(line, group)
            if seeds:
                spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0
                axis.plot(seeds, [y] * len(seeds), "o", color=colour, ms=2.2, alpha=0.4, mew=0)
                axis.errorbar(
                    [float(np.mean(seeds))],
                    [y],
                    xerr=[spread],
                    color=colour,
                    ms=5,
                    marker=MARKERS[line.style.marker],
                    capsize=2,
                    ls="none",
                )
            if paper is not None:
                axis.plot([paper], [y], "o", mfc="none", mec="#16181d", ms=6.5, mew=1)
        style: Any = {"color": colour, "marker": MARKERS[line.style.marker], "ls": "none", "ms": 5}
        axis.plot([], [], **style, label=_short(line.label))
    papers = (paper_of(line, g) for line in panel.series for g in range(len(panel.groups)))
    if any(value is not None for value in papers):
        axis.plot([], [], "o", mfc="none", mec="#16181d", ms=6.5, label="the paper")
    axis.set_yticks(range(len(panel.groups)), [_short(name) for name in panel.groups])
    axis.set(xlabel=_short(panel.y_label), ylim=(len(panel.groups) - 0.5, -0.5))
    axis.grid(visible=True, axis="x")
    axis.legend(
        frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.08), ncols=3, borderpad=0
    )


def _heat(axis: Axes, panel: Heat) -> None:
    at, low, high = levels(panel)
    norm = LogNorm(low, high) if panel.log else Normalize(low, high)
    values = np.where(np.isfinite(at), np.asarray(panel.values, float), np.nan)
    image = axis.imshow(values, norm=norm, cmap="viridis", aspect="auto")
    axis.grid(visible=False)
    for names, put, turn in (
        (panel.columns, axis.set_xticks, 90 if max(map(len, panel.columns), default=0) > 4 else 0),
        (panel.rows, axis.set_yticks, 0),
    ):
        shown = thin(len(names), 40)
        put(shown, [_short(names[i]) for i in shown], rotation=turn, fontsize=7)
    if at.size <= 100:
        widest = float(np.nanmax(np.abs(values)))
        digits = 0 if widest >= 100 else 1 if widest >= 10 else 2
        for (row, column), share in np.ndenumerate(at):
            if np.isfinite(share):
                ink = "black" if share > BRIGHT else "white"
                axis.text(
                    column,
                    row,
                    f"{values[row, column]:.{digits}f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=ink,
                )
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.9)
    bar.set_label(_short(panel.label), fontsize=8)


def _surface(axis: Axes, panel: Surface) -> None:
    x, y, heights = smooth(panel)
    good = heights[np.isfinite(heights)]
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 1.0)
    high = high if high > low else low + 1e-9
    edges = (np.geomspace if panel.log else np.linspace)(low, high, NUM_CONTOURS + 2)
    shown: Any = {"levels": edges, "norm": (LogNorm if panel.log else Normalize)(low, high)}
    filled = axis.contourf(x, y, np.ma.masked_invalid(heights.T), cmap="viridis", **shown)
    axis.contour(
        x, y, np.ma.masked_invalid(heights.T), levels=edges, colors="white", linewidths=0.4
    )
    axis.plot(0, 0, "+", color="white", ms=9, mew=1.6)
    axis.set(xlabel="first direction", ylabel="second direction", aspect="equal")
    axis.grid(visible=False)
    bar = axis.figure.colorbar(filled, ax=axis, shrink=0.85, format="%.2g")
    bar.set_label(_short(panel.label), fontsize=8)


def _maps(axis: Axes, panel: Maps) -> None:
    if panel.photographs is not None:
        _lit(axis, panel)
        return
    at = map_levels(panel)
    rows, columns, high, wide = at.shape
    gap = max(1, wide // 6)
    sheet = np.full((rows * (high + gap) - gap, columns * (wide + gap) - gap), np.nan)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (high + gap), column * (wide + gap)
            sheet[top : top + high, left : left + wide] = at[row, column]
            shown = panel.rows[row] not in panel.unringed and np.isfinite(at[row, column]).any()
            if panel.query is not None and shown:
                axis.plot(
                    left + panel.query[1],
                    top + panel.query[0],
                    "o",
                    mfc="none",
                    mec="#4cc9f0",
                    ms=5,
                    mew=1.2,
                )
            if panel.labels and column < len(panel.labels[row]):
                axis.text(
                    left - 0.3,
                    top - 0.3,
                    panel.labels[row][column],
                    color="white",
                    fontsize=5,
                    va="top",
                    bbox={"facecolor": "black", "alpha": 0.6, "pad": 0.6, "linewidth": 0},
                )
    axis.imshow(sheet, cmap="magma", vmin=0, vmax=1, interpolation="nearest")
    _name_tiles(axis, panel.rows, panel.columns, (high + gap, high), (wide + gap, wide))


def _lit(axis: Axes, panel: Maps) -> None:
    """A row of photographs, and a row of them lit by each row of maps."""
    tiles = lit(panel)
    _, _, high, wide, _ = tiles.shape
    gap = max(1, wide // 24)
    edges = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    sheet = np.pad(tiles, edges, constant_values=255).transpose(0, 2, 1, 3, 4)
    axis.imshow(sheet.reshape(len(tiles) * (high + gap), -1, 3))
    _name_tiles(axis, ("image", *panel.rows), panel.columns, (high + gap, high), (wide + gap, wide))


def _name_tiles(
    axis: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    down: tuple[int, int],
    across: tuple[int, int],
) -> None:
    """Names next to and above tiles; down and across: from one to the next, and the size of one."""

    def middles(count: int, step: int, size: int) -> list[float]:
        return [index * step + (size - 1) / 2 for index in range(count)]

    axis.set_yticks(middles(len(rows), *down), [_short(name) for name in rows], fontsize=7)
    axis.set_xticks(middles(len(columns), *across), [_short(n) for n in columns], fontsize=7)
    axis.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _longest(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)


_DRAW: dict[type[Any], Callable[[Axes, Any], None]] = {
    Lines: _lines,
    Dots: _dots,
    Heat: _heat,
    Surface: _surface,
    Maps: _maps,
}
_SIZE: dict[type[Any], Callable[[Any], tuple[float, float]]] = {
    Lines: lambda panel: (4.4, 3.0),
    Dots: lambda panel: (4.8, 1.4 + 0.17 * len(panel.groups) * (1 + len(panel.series))),
    Heat: lambda panel: (
        float(np.clip(2.2 + 0.3 * len(panel.columns), 3.4, 7.5)),
        float(np.clip(1.2 + 0.2 * len(panel.rows) + 0.06 * _longest(panel.columns), 2.0, 7.0)),
    ),
    Surface: lambda panel: (4.2, 3.4),
    Maps: lambda panel: (
        float(np.clip(1.2 + 0.62 * len(panel.columns), 2.4, 8.0)),
        float(np.clip(0.6 + 0.66 * (len(panel.rows) + (panel.photographs is not None)), 1.6, 11.0)),
    ),
}
