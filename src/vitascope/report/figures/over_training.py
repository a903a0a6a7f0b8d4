"""What the ConViTs learned: gates and nonlocality over training (Fig. 5 and 6 of the paper).

One small plot a layer: a thin line a head, a thick one for their mean.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from vitascope.report.figures import svg
from vitascope.report.figures.axes import Plot, thin
from vitascope.report.figures.scale import Scale, ticks
from vitascope.report.figures.style import Look
from vitascope.report.sections.comparison_record import Trace

__all__ = ["FEWEST", "WHAT", "draw_layer", "layer_mean", "trace_scale"]

FEWEST = 12
WHAT = {"gates": "gate", "nonlocality": "distance (patches)"}


def trace_scale(traces: Sequence[Trace], what: str) -> Scale:
    """One scale for all layers, models and fractions: 0 to a uniform head's for nonlocality."""
    finite = [trace.values[np.isfinite(trace.values)] for trace in traces]
    values = [float(end) for part in finite if part.size for end in (part.min(), part.max())]
    if what == "gates":
        return Scale.around(values, least=0.2, floor=0, ceiling=1)
    uniform = [trace.uniform for trace in traces if trace.uniform is not None]
    return Scale.around([0.0, *values, *uniform], least=0.5, floor=0)


def layer_mean(trace: Trace, layer: int) -> list[float]:
    """The mean over heads at each epoch; heads a layer does not have are NaN and do not count."""
    rows = trace.values[:, layer]
    return [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else 0.0 for row in rows]


def draw_layer(trace: Trace, layer: int, what: str, scale: Scale, most: int = 60) -> Markup:
    """The heads of one layer over the epochs.

    With no more than ``FEWEST`` points a line, a band from the least head to the most stands for
    the single ones: pages of very many models stay small.
    """
    plot = Plot(
        width=190,
        height=150,
        margins=(24, 34, 28, 28),
        x=Scale.around(trace.epochs, pad=0.01),
        y=scale,
        font=10.5,
    )
    plot.axes(
        [(value, (f"{value:g}",)) for value in ticks(plot.x, 3) if value == int(value)],
        [(value, f"{value:g}") for value in ticks(plot.y, 3)],
        "",
        f"Layer {layer + 1}",
    )
    look = replace(trace.model.look, dash="")
    kept = thin(len(trace.epochs), most)
    xs = [trace.epochs[index] for index in kept]
    if trace.uniform is not None:
        _uniform(plot, trace.uniform)
    if most <= FEWEST:
        finite = np.isfinite(trace.values[:, layer]).all(0)
        heads = trace.values[kept, layer][:, finite]
        plot.band(xs, heads.min(1).tolist(), heads.max(1).tolist(), look)
    for head in range(trace.values.shape[2] if most > FEWEST else 0):
        ys = [float(trace.values[index, layer, head]) for index in kept]
        if np.isfinite(ys).all():
            tip = f"{trace.layers[layer]}, head {head + 1}: {ys[0]:.2f} to {ys[-1]:.2f}"
            plot.line(xs, ys, look, "head", tip)
    mean = layer_mean(trace, layer)
    plot.line(xs, [mean[index] for index in kept], look, tip=f"mean of the heads: {mean[-1]:.2f}")
    _value(plot, xs[-1], mean[-1], look)
    said = (
        f"{trace.model.label}, layer {layer + 1} ({trace.layers[layer]}), {WHAT[what]} over "
        f"epochs: mean of the heads from {mean[0]:.2f} to {mean[-1]:.2f}"
    )
    return plot.draw(said, "small")


def _uniform(plot: Plot, height: float) -> None:
    y, left = plot.py(height), plot.margins[3]
    dashed = svg.line((left, y), (plot.width - plot.margins[1], y), "dashed")
    tip = svg.tag("title", f"a head that looks everywhere alike: {height:.2f} patches")
    words = svg.text(plot.width - plot.margins[1], y - 3.5, "uniform head", "tiny", anchor="end")
    plot.parts.append(svg.tag("g", dashed, words, tip))


def _value(plot: Plot, x: float, value: float, look: Look) -> None:
    place = (plot.px(x) + 5, plot.py(value) + 3.5)
    plot.parts.append(svg.tag("g", svg.text(*place, f"{value:.2f}", "label"), class_=look.css))
