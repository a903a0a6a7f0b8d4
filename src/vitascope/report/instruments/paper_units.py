"""One number a unit, or one a pair: Fourier, variance, CKA, lesions, and masking."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vitascope.record import Record
from vitascope.report.figures.axes import thin
from vitascope.report.figures.style import COLOURS
from vitascope.report.formatting import short_names
from vitascope.report.instruments.paper_heads import GREY, name_ticks

__all__ = ["draw_cka", "draw_fourier", "draw_lesion", "draw_masking", "draw_variance"]

KINDS = {  # colour, mark
    "attention": (COLOURS[0][0], "o"),
    "mlp": (COLOURS[1][0], "s"),
    "convolution": (COLOURS[2][0], "^"),
    "block": (COLOURS[3][0], "D"),
    "stem": (COLOURS[4][0], "P"),
    "head": (COLOURS[5][0], "X"),
    "subsampling": (GREY, "v"),
}


def _width(count: int) -> float:
    return float(np.clip(1.8 + 0.2 * count, 3.6, 11))


def _kinds_legend(axis: Axes, kinds: Sequence[str], **where: Any) -> None:
    marks = [
        Line2D([], [], ls="", marker=mark, color=colour, ms=5, label=kind)
        for kind, (colour, mark) in KINDS.items()
        if kind in kinds
    ]
    axis.legend(handles=marks, frameon=False, fontsize=8, **where)


def _along_units(axis: Axes, record: Record, numbers: Sequence[float]) -> None:
    """A line through the units, each marked by its kind; stages apart."""
    kinds, stages = record.values["kind"], record.values["stage"]
    axis.plot(range(len(numbers)), numbers, "-", color="#b9c0ca", lw=1, zorder=1)
    for place, (number, kind) in enumerate(zip(numbers, kinds, strict=True)):
        colour, mark = KINDS[kind]
        axis.plot(place, number, mark, color=colour, ms=5, mew=0)
    for place in range(1, len(stages)):
        if stages[place] != stages[place - 1]:
            axis.axvline(place - 0.5, color="#d5d9e0", lw=0.8, zorder=0)
    name_ticks(axis, record.values["units"], most=40)


def draw_fourier(record: Record) -> Figure:
    """The curves of all units, early to late, and each unit's value at 1.0 pi."""
    units, kinds = record.values["units"], record.values["kind"]
    figure = Figure(figsize=(3.2 + _width(len(units)), 3.1))
    curves, ends = figure.subplots(1, 2, width_ratios=[3.0, _width(len(units))])
    for place, (name, kind) in enumerate(zip(units, kinds, strict=True)):
        alpha = 0.25 + 0.75 * place / max(len(units) - 1, 1)
        at, value = record.arrays[f"frequency/{name}"], record.arrays[f"amplitude/{name}"]
        curves.plot(at, value, color=KINDS[kind][0], lw=1.1, alpha=alpha)
    curves.set(xlabel="frequency (π)", ylabel="Δ log amplitude", xlim=(0, 1))
    curves.set_title("early faint, late strong", fontsize=8)
    _along_units(ends, record, record.values["high"])
    ends.set_ylabel("Δ log amplitude at 1.0 π")
    _kinds_legend(ends, kinds, ncols=len(set(kinds)), loc="lower center",
                  bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    return figure


def draw_variance(record: Record) -> Figure:
    """Variance over space after each unit."""
    numbers, kinds = record.values["variance"], record.values["kind"]
    figure = Figure(figsize=(_width(len(numbers)) + 0.6, 2.8))
    axis = figure.subplots()
    _along_units(axis, record, numbers)
    positive = [number for number in numbers if number > 0]
    if len(positive) == len(numbers) and max(numbers) > 30 * min(numbers):
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, 1.06 * max(numbers) or 1)
    axis.set_ylabel("variance over space")
    _kinds_legend(axis, kinds, ncols=len(set(kinds)), loc="lower center",
                  bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    return figure


def draw_cka(record: Record) -> Figure:
    """All pairs of units, the first units at the lower left."""
    similarity = np.asarray(record.values["similarity"])
    rows, columns = record.values["rows"], record.values["columns"]
    side = float(np.clip(0.16 * max(len(rows), len(columns)), 2.2, 6.5))
    figure = Figure(figsize=(side + 2.1, side + 1.1))
    axis = figure.subplots()
    image = axis.imshow(similarity, origin="lower", cmap="magma", vmin=0, vmax=1)
    axis.grid(visible=False)
    for names, set_ticks, turn in ((columns, axis.set_xticks, 90), (rows, axis.set_yticks, 0)):
        short = short_names(names)
        shown = thin(len(names), 40)
        set_ticks(shown, [short[i] for i in shown], rotation=turn, fontsize=6)
    bar = figure.colorbar(image, ax=axis, shrink=0.8)
    bar.set_label("CKA")
    return figure


def draw_lesion(record: Record) -> Figure:
    """Points of accuracy lost without each unit."""
    units, kinds = record.values["units"], record.values["kind"]
    figure = Figure(figsize=(_width(len(units)) + 0.6, 2.8))
    axis = figure.subplots()
    lost = [100 * value for value in record.values["lost"]]
    axis.bar(range(len(units)), lost, color=[KINDS[kind][0] for kind in kinds], width=0.75)
    axis.axhline(0, color=GREY, lw=0.8)
    axis.set_ylabel("accuracy lost (points)")
    axis.set_title(f"intact: {100 * record.values['intact']:.1f} %", fontsize=8, loc="left")
    name_ticks(axis, units, most=40)
    _kinds_legend(axis, kinds)
    return figure


def draw_masking(record: Record) -> Figure:
    """Tables 5 and 6: positions off, and the gates of the first layers forced."""
    values = record.values
    gated = bool(values["content_masked"])
    whole, positions = values["unmasked"], values["no_positions"]
    figure = Figure(figsize=(5.6 if gated and positions is not None else 3.2, 2.7))
    panels = [name for name, there in (("bars", positions is not None), ("lines", gated)) if there]
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        if panel == "bars":
            heights = [100 * whole, 100 * positions]
            bars = axis.bar([0, 1], heights, width=0.55, color=[COLOURS[0][0], "#b9c0ca"])
            axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
            axis.set_xticks([0, 1], ["with", "without"])
            axis.set(xlabel="position embeddings", xlim=(-0.6, 1.6))
            continue
        for index, part in enumerate(("content", "position")):
            found = {int(k): 100 * v for k, v in values[f"{part}_masked"].items()}
            ks = [0, *sorted(found)]
            heights = [100 * whole, *(found[k] for k in ks[1:])]
            style = {"color": COLOURS[index + 1][0], "marker": "so"[index]}
            axis.plot(ks, heights, lw=1.6, ms=5, label=f"{part} masked", **style)
        axis.set(xlabel="first gated layers masked", xticks=ks)
        axis.legend(frameon=False, fontsize=8)
    axes[0].set(ylabel="top-1 accuracy (%)", ylim=(0, 105))
    return figure
