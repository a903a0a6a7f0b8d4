"""What accuracy costs: against multiply-adds and against speed in training."""

from markupsafe import Markup

from vitascope.report import svg
from vitascope.report.comparison import Comparison, Entry, Row
from vitascope.report.efficiency import accuracy_scale
from vitascope.report.plot import Plot, spread
from vitascope.report.scale import Scale, short, ticks

__all__ = ["AXES", "draw_cost"]

AXES = {  # a model's attribute: what the axis says
    "multiply_adds": "multiply-adds an image (log)",
    "images_per_second": "training images a second (log)",
}


def draw_cost(comparison: Comparison, what: str) -> Markup:
    """A point a model at the largest fraction, named beside it; empty when nothing is known."""
    rows = [row for row in comparison.rows if row.entries]
    if not rows:
        return Markup()
    row = rows[-1]
    priced = [
        (cost, entry)
        for entry in row.entries.values()
        if (cost := getattr(entry.model, what)) is not None
    ]
    if not priced:
        return Markup()
    plot = Plot(
        width=400,
        height=300,
        margins=(30, 10, 44, 34),
        x=Scale.around((cost for cost, _ in priced), log=True, least=3, pad=0.12),
        y=accuracy_scale([Row(row.fraction, row.num_images, {e.model.name: e for _, e in priced})]),
    )
    plot.axes(
        [(value, (short(value),)) for value in ticks(plot.x, 4)],
        [(value, f"{value:g}") for value in ticks(plot.y, 4)],
        AXES[what],
        "Top-1 accuracy (%)",
    )
    for cost, entry in priced:
        plot.parts.append(_point(plot, cost, entry))
    _names(plot, priced)
    said = "; ".join(f"{e.model.label} {short(cost)}, {e.mean:.1f} %" for cost, e in priced)
    return plot.draw(f"Accuracy against {AXES[what]}: {said}")


def _point(plot: Plot, cost: float, entry: Entry) -> Markup:
    x = plot.px(cost)
    low, high = (plot.py(entry.mean + way * (entry.std or 0)) for way in (-1, 1))
    tip = f"{entry.model.label}: {short(cost)}, {entry.mean:.1f} %"
    return svg.tag(
        "g",
        svg.line((x, low), (x, high), "whisker"),
        svg.marker(entry.model.look.marker, x, plot.py(entry.mean), 5),
        svg.tag("title", tip),
        class_=entry.model.look.css,
    )


def _names(plot: Plot, priced: list[tuple[float, Entry]]) -> None:
    """Each name on the side with more room; names of one side keep clear of each other."""
    middle = (plot.margins[3] + plot.width) / 2
    top, _, bottom, _ = plot.margins
    for right in (True, False):
        side = [(plot.px(c), e) for c, e in priced if (plot.px(c) <= middle) == right]
        wanted = [plot.py(entry.mean) for _, entry in side]
        heights = spread(wanted, 1.2 * plot.font, top, plot.height - bottom)
        for (x, entry), y, point in zip(side, heights, wanted, strict=True):
            way, anchor = (1, "start") if right else (-1, "end")
            parts = [
                svg.text(x + 16 * way, y + 4, entry.model.label, "label", anchor, most=24),
            ]
            if abs(y - point) > 3:
                parts.append(svg.line((x + 5 * way, point), (x + 14 * way, y), "leader"))
            plot.parts.append(svg.tag("g", *parts, class_=entry.model.look.css))
