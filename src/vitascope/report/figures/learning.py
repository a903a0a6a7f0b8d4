"""Learning curves: one small plot a fraction (Fig. 11 and 12 of the ConViT paper)."""

import math

from markupsafe import Markup

from vitascope.report.figures import svg
from vitascope.report.figures.axes import EndLabel, Plot, thin
from vitascope.report.figures.scale import Scale, count, ticks
from vitascope.report.sections.comparison_record import Comparison, Row

__all__ = ["WHAT", "draw_learning"]

WHAT = {"top1": "Top-1 accuracy (%)", "train_nll": "Training loss"}


def draw_learning(comparison: Comparison, row: Row, what: str, most: int = 80) -> Markup:
    """``top1`` or ``train_nll`` over epochs at one fraction; the scale is shared by all fractions.

    A band shows the least and the most over the seeds; at most ``most`` points a line are drawn.
    """
    curves = comparison.curves(row.fraction, what)
    if not curves:
        return Markup()
    letters = min(max(len(curve.model.label) for curve in curves), 12)
    room = max(svg.width(svg.shorten(curve.model.label, letters), 11) for curve in curves)
    ceiling = 100 if what == "top1" else math.inf
    everything = [
        value
        for other in comparison.rows
        for curve in comparison.curves(other.fraction, what)
        for value in (*curve.low, *curve.high)
    ]
    plot = Plot(
        width=300,
        height=222,
        margins=(28, 14 + room, 36, 28),
        x=Scale.around((epoch for curve in curves for epoch in curve.epochs), pad=0.01),
        y=Scale.around(everything, least=0.2, pad=0.03, floor=0, ceiling=ceiling),
        font=11,
    )
    plot.axes(
        [(value, (f"{value:g}",)) for value in ticks(plot.x, 3) if value == int(value)],
        [(value, f"{value:g}") for value in ticks(plot.y, 4)],
        "epoch",
        f"{row.share} ({count(row.num_images)} images)",
    )
    labels = []
    for curve in curves:
        kept = thin(len(curve.epochs), most)
        xs, ys, low, high = (
            [part[index] for index in kept]
            for part in (curve.epochs, curve.mean, curve.low, curve.high)
        )
        if len(curves) <= 5 and low != high and len(xs) > 1:
            plot.band(xs, low, high, curve.model.look)
        unit = " %" if what == "top1" else ""
        plot.line(
            xs, ys, curve.model.look, tip=f"{curve.model.label}: {ys[-1]:.3g}{unit} at the end"
        )
        end = (plot.px(xs[-1]), plot.py(ys[-1]))
        labels.append(EndLabel(curve.model.label, end[1], curve.model.look, end[0]))
    plot.end_labels(labels, letters)
    ends = ", ".join(f"{curve.model.label} {curve.mean[-1]:.3g}" for curve in curves)
    said = f"{WHAT[what]} over epochs with {count(row.num_images)} images; at the end: {ends}."
    return plot.draw(said)
