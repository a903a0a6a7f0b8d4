"""What accuracy costs: against multiply-adds and against speed in training."""

from markupsafe import Markup

from vitascope.report.figures import svg
from vitascope.report.figures.axes import Plot
from vitascope.report.figures.efficiency import accuracy_scale
from vitascope.report.figures.scale import Scale, short, ticks
from vitascope.report.sections.comparison_record import Comparison, Entry, Row

__all__ = ["AXES", "draw_cost"]

Box = tuple[float, float, float, float]  # left, top, right, bottom

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
    """Each name where it hides least: beside, above or below its point."""
    points = [(plot.px(cost), plot.py(entry.mean)) for cost, entry in priced]
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    for (x, y), (_, entry) in zip(points, priced, strict=True):
        words = svg.shorten(entry.model.label, 24)
        wide, high = svg.width(words, plot.font), plot.font
        right, left, middle = x + 10, x - 10 - wide, x - wide / 2
        steps = sorted(range(-5, 6), key=abs)  # the nearest place wins among equals
        corners = [
            (side, y + (1.1 * step - 0.5) * high) for step in steps for side in (right, left)
        ]
        corners[2:2] = [(middle, y - 9 - high), (middle, y + 9)]
        boxes: list[Box] = [(a, b, a + wide, b + high) for a, b in corners]
        frame = (plot.margins[3], plot.margins[0], plot.width, plot.height - plot.margins[2])
        best = min(boxes, key=lambda box: _hidden(box, taken) + 4 * _beyond(box, frame))
        near = best[0] + wide if best[0] < x else best[0]
        if abs(best[1] + high / 2 - y) > 1.5 * high:
            line = svg.line((x, y), (near, best[1] + high / 2), f"leader {entry.model.look.css}")
            plot.parts.append(line)
        taken.append(best)
        name = svg.text(best[0], best[1] + 0.8 * high, entry.model.label, "label", most=24)
        plot.parts.append(svg.tag("g", name, class_=entry.model.look.css))


def _hidden(box: Box, taken: list[Box]) -> float:
    """The area a box shares with others."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in taken
    )


def _beyond(box: Box, frame: Box) -> float:
    """The area of a box outside a frame."""
    return (box[2] - box[0]) * (box[3] - box[1]) - _hidden(box, [frame])
