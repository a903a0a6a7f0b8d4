"""The page's figures as files for papers: PNG, SVG and PDF, the fonts inside.

Text in the SVG is drawn as outlines and the PDF holds TrueType fonts, so a figure looks the same
on every machine and journals take it. Colours and marks are those of the page.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitascope.record import Record, atomic_write, load
from vitascope.report.figures.axes import spread
from vitascope.report.figures.cost import AXES
from vitascope.report.figures.learning import WHAT as LEARNING
from vitascope.report.figures.over_training import WHAT as INSIDE
from vitascope.report.figures.over_training import layer_mean, trace_scale
from vitascope.report.figures.scale import Scale, count, short, ticks
from vitascope.report.figures.style import COLOURS
from vitascope.report.sections.comparison_record import Comparison, Model

__all__ = [
    "FORMATS",
    "MARKERS",
    "STYLE",
    "comparison_figures",
    "plain_text",
    "save_figure",
    "set_ends",
    "write_figures",
]

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


def write_figures(folder: Path, record: Record | None = None) -> list[Path]:
    """Write ``folder/figures/<figure>.{png,svg,pdf}``; figures without data are left out."""
    folder = Path(folder)
    comparison = Comparison(load(folder / "compare") if record is None else record)
    written = []
    for name, figure in comparison_figures(comparison):
        written += save_figure(figure, folder / "figures", name, FORMATS)
    return written


def save_figure(
    figure: Figure, folder: Path, name: str, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write ``folder/name.{png,svg,pdf}``, each whole or not at all and without a date."""
    written = []
    with matplotlib.rc_context(STYLE):
        for kind in formats:
            path = folder / f"{name}.{kind}"
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            with atomic_write(path) as stream:
                figure.savefig(stream, format=kind, dpi=200, metadata=dated)
            written.append(path)
    return written


def comparison_figures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """The figures of a comparison, by name."""
    with matplotlib.rc_context(STYLE):
        yield from _figures(comparison)


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
                words = plain_text(entry.model.label)
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
    """Models' names at the ends of their lines."""
    set_ends(axis, [(x, y, model.label, _colour(model)) for x, y, model in ends])


def set_ends(axis: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names (x, y, words, colour) at the ends of lines, moved apart."""
    low, high = axis.get_ylim()
    log = axis.get_yscale() == "log"
    at = [np.log(y / low) / np.log(high / low) if log else (y - low) / (high - low)
          for _, y, _, _ in ends]  # fmt: skip
    axis.set_xlim(axis.get_xlim())  # the labels shall not move it
    edge = axis.get_xlim()[1]
    for (x, y, words, colour), own, place in zip(ends, at, spread(at, 0.062, 0, 1), strict=True):
        if axis.transAxes.inverted().transform(axis.transData.transform((x, y)))[0] < 0.93:
            axis.plot([x, edge], [y, y], color=colour, lw=0.6, ls=":")
        axis.annotate(
            plain_text(words),
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(5, 72 * axis.figure.get_figheight() * 0.7 * (place - own)),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _colour(model: Model) -> str:
    return COLOURS[model.look.colour][0]


def _drawn(model: Model) -> dict[str, Any]:
    dash: Any = (0, tuple(map(float, model.look.dash.split()))) if model.look.dash else "-"
    return {"color": _colour(model), "marker": MARKERS[model.look.marker], "ls": dash}


def plain_text(words: str) -> str:
    """Words in which nothing would be read as mathematics."""
    return words.replace("$", r"\$")
