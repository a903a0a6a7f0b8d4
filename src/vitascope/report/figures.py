"""The page's figures as files for papers: PNG, SVG and PDF, the fonts inside.

Text in the SVG is drawn as outlines and the PDF holds TrueType fonts, so a figure looks the same
on every machine and journals take it. Colours and marks are those of the page.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitascope.record import Record, atomic_write, load
from vitascope.report.comparison import Comparison, Model
from vitascope.report.cost import AXES
from vitascope.report.inside import WHAT as INSIDE
from vitascope.report.inside import layer_mean, trace_scale
from vitascope.report.learning import WHAT as LEARNING
from vitascope.report.palette import COLOURS
from vitascope.report.plot import spread
from vitascope.report.scale import Scale, count, short, ticks

__all__ = ["STYLE", "write_figures"]

_FORMATS = ("png", "svg", "pdf")
_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
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


def write_figures(folder: Path, record: Record | None = None) -> list[Path]:
    """Write ``folder/figures/<figure>.{png,svg,pdf}``; figures without data are left out."""
    folder = Path(folder)
    comparison = Comparison(load(folder / "compare") if record is None else record)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in _figures(comparison):
            for kind in _FORMATS:
                path = folder / "figures" / f"{name}.{kind}"
                dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                with atomic_write(path) as stream:
                    figure.savefig(stream, format=kind, dpi=200, metadata=dated)
                written.append(path)
    return written


def _figures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    if any(row.entries for row in comparison.rows):
        yield "efficiency", _efficiency(comparison)
        yield "cost", _cost(comparison)
    for what in LEARNING:
        if any(comparison.curves(row.fraction, what) for row in comparison.rows):
            yield f"learning_{what}", _learning(comparison, what)
    for what in INSIDE:
        traces = comparison.traces(what)
        scale = trace_scale(traces, what)
        for trace in traces:
            name = "".join(c if c.isalnum() or c in "-_" else "_" for c in trace.model.name)
            columns = len(trace.layers)
            figure = Figure(figsize=(max(1.5 * columns, 3), 1.9))
            axes = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
            for layer, axis in enumerate(axes):
                colour = _colour(trace.model)
                axis.plot(trace.epochs, trace.values[:, layer], color=colour, lw=0.7, alpha=0.4)
                axis.plot(trace.epochs, layer_mean(trace, layer), color=colour, lw=1.8)
                axis.set(title=f"Layer {layer + 1}", xlabel="epoch")
                if trace.uniform is not None:
                    axis.axhline(trace.uniform, color="#5a606b", lw=0.9, ls="--")
            axes[0].set(ylabel=INSIDE[what], ylim=(scale.low, scale.high))
            yield f"{what}_{name}_{100 * trace.fraction:g}", figure


def _efficiency(comparison: Comparison) -> Figure:
    figure = Figure(figsize=(5.5, 3.4))
    axis = figure.subplots()
    ends = []
    rows = [row for row in comparison.rows if row.entries]
    for model in comparison.models.values():
        known = [
            (row.num_images, row.entries[model.name]) for row in rows if model.name in row.entries
        ]
        if not known:
            continue
        xs, entries = [x for x, _ in known], [entry for _, entry in known]
        means, spreads = [e.mean for e in entries], [e.std or 0.0 for e in entries]
        axis.errorbar(xs, means, spreads, **_drawn(model), lw=1.6, ms=5, capsize=2)
        for x, entry in known:
            seeds = entry.seeds if len(entry.seeds) > 1 else ()
            axis.plot([x] * len(seeds), seeds, "o", color=_colour(model), ms=2.5, alpha=0.35)
        ends.append((xs[-1], means[-1], model))
    axis.set(xscale="log", xlabel="training images", ylabel="top-1 accuracy (%)")
    marks = [row.num_images for row in rows]
    axis.set_xticks(marks, [f"{count(row.num_images)}\n{row.share}" for row in rows])
    axis.minorticks_off()
    _name_ends(axis, ends)
    return figure


def _cost(comparison: Comparison) -> Figure:
    figure = Figure(figsize=(6.5, 2.9))
    row = [row for row in comparison.rows if row.entries][-1]
    for axis, (what, title) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        for entry in row.entries.values():
            cost = getattr(entry.model, what)
            if cost is not None:
                drawn = _drawn(entry.model) | {"ls": "none"}
                axis.errorbar([cost], [entry.mean], [entry.std or 0.0], **drawn, ms=5)
                where: dict[str, Any] = {"xytext": (6, 4), "textcoords": "offset points"}
                words = _words(entry.model)
                axis.annotate(words, (cost, entry.mean), color=_colour(entry.model), **where)
        costs = [getattr(entry.model, what) for entry in row.entries.values()]
        scale = Scale.around((c for c in costs if c is not None), log=True, least=3, pad=0.2)
        marks = ticks(scale, 4)
        axis.set(xscale="log", xlabel=title, xlim=(scale.low, scale.high))
        axis.set_xticks(marks, [short(mark) for mark in marks])
        axis.minorticks_off()
    figure.axes[0].set_ylabel("top-1 accuracy (%)")
    return figure


def _learning(comparison: Comparison, what: str) -> Figure:
    rows = [row for row in comparison.rows if comparison.curves(row.fraction, what)]
    figure = Figure(figsize=(2.9 * len(rows), 2.5))
    for axis, row in zip(
        figure.subplots(1, len(rows), sharey=True, squeeze=False)[0], rows, strict=True
    ):
        ends = []
        for curve in comparison.curves(row.fraction, what):
            drawn = _drawn(curve.model) | {"marker": "o" if len(curve.epochs) == 1 else ""}
            axis.plot(curve.epochs, curve.mean, **drawn, lw=1.4)
            colour = _colour(curve.model)
            axis.fill_between(curve.epochs, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
            ends.append((curve.epochs[-1], curve.mean[-1], curve.model))
        axis.set(title=f"{row.share} ({count(row.num_images)} images)", xlabel="epoch")
        _name_ends(axis, ends)
    figure.axes[0].set_ylabel(LEARNING[what])
    return figure


def _name_ends(axis: Axes, ends: Sequence[tuple[float, float, Model]]) -> None:
    """Names at the ends of lines, moved apart."""
    low, high = axis.get_ylim()
    places = spread([y for _, y, _ in ends], (high - low) * 0.062, low, high)
    for (x, y, model), place in zip(ends, places, strict=True):
        moved = 72 * axis.figure.get_figheight() * 0.7 * (place - y) / (high - low)
        axis.annotate(
            _words(model),
            (x, y),
            xytext=(9, moved),
            textcoords="offset points",
            color=_colour(model),
            va="center",
            annotation_clip=False,
        )


def _colour(model: Model) -> str:
    return COLOURS[model.look.colour][0]


def _drawn(model: Model) -> dict[str, Any]:
    dash: Any = (0, tuple(map(float, model.look.dash.split()))) if model.look.dash else "-"
    return {"color": _colour(model), "marker": _MARKERS[model.look.marker], "ls": dash}


def _words(model: Model) -> str:
    """The label, with nothing that would be read as mathematics."""
    return model.label.replace("$", r"\$")
