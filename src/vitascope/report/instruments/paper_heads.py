"""One number a head: nonlocality, gates and entropy, layer by layer."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitascope.record import Record
from vitascope.report.figures.axes import thin
from vitascope.report.figures.style import COLOURS
from vitascope.report.formatting import short_names

__all__ = ["draw_entropy", "draw_gates", "draw_nonlocality", "short_names"]

GREY = "#5a606b"


def name_ticks(axis: Axes, names: Sequence[str], most: int = 30) -> None:
    """Names under the axis: upright where they are short, a few of them where they are many."""
    short = short_names(names)
    shown = thin(len(short), most)
    long = max((len(short[i]) for i in shown), default=0) > 3
    axis.set_xticks(shown, [short[i] for i in shown], rotation=90 if long else 0)
    if long:
        axis.tick_params(axis="x", labelsize=7)
    axis.set_xlim(-0.6, len(names) - 0.4)


def _width(count: int) -> float:
    return float(np.clip(1.6 + 0.32 * count, 3.4, 11))


def _heads(
    record: Record,
    title: str,
    scale: Sequence[float] | None = None,
) -> tuple[Figure, Axes]:
    """A dot a head, a line through the layers' means."""
    layers = record.values["layers"]
    figure = Figure(figsize=(_width(len(layers)), 2.6))
    axis = figure.subplots()
    means = []
    for place, name in enumerate(layers):
        heads = np.asarray(record.arrays[name]) * (1 if scale is None else scale[place])
        apart = np.linspace(-0.16, 0.16, len(heads)) if len(heads) > 1 else np.zeros(1)
        axis.plot(place + apart, heads, "o", color=COLOURS[0][0], ms=3.5, alpha=0.45, mew=0)
        means.append(heads.mean())
    axis.plot(range(len(layers)), means, "-", color=COLOURS[0][0], lw=1.6, label="mean of heads")
    axis.set(xlabel="attention layer", ylabel=title)
    name_ticks(axis, layers)
    return figure, axis


def draw_nonlocality(record: Record) -> Figure:
    """Distance in patches; dashed, a head that looks everywhere it may."""
    figure, axis = _heads(record, "nonlocality (patches)")
    uniform = record.values["uniform"]
    axis.plot(range(len(uniform)), uniform, "--", color=GREY, lw=1, label="uniform attention")
    if len(uniform) == 1:
        axis.axhline(uniform[0], ls="--", color=GREY, lw=1)
    axis.set_ylim(0, 1.06 * axis.dataLim.y1)
    axis.legend(frameon=False, fontsize=8)
    return figure


def draw_gates(record: Record) -> Figure:
    """1 is position alone, 0 content alone; dotted, where training starts."""
    figure, axis = _heads(record, "gate σ(λ)")
    axis.axhline(1 / (1 + np.exp(-1)), ls=":", color=GREY, lw=1, label="fresh ConViT")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def draw_entropy(record: Record) -> Figure:
    """Relative to a uniform head."""
    scale = [1 / np.log(keys) for keys in record.values["num_keys"]]
    figure, axis = _heads(record, "entropy / log(keys)", scale)
    axis.axhline(1, ls="--", color=GREY, lw=1, label="uniform attention")
    axis.set_ylim(0, 1.05)
    axis.legend(frameon=False, fontsize=8, loc="lower left")
    return figure
