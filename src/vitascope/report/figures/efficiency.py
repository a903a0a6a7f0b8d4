"""Accuracy against the number of training images (Fig. 2, left, of the ConViT paper)."""

import math
from itertools import pairwise

from markupsafe import Markup

from vitascope.report.figures import svg
from vitascope.report.figures.axes import EndLabel, Plot
from vitascope.report.figures.scale import Scale, count, ticks
from vitascope.report.sections.comparison_record import Comparison, Entry, Row

__all__ = ["accuracy_scale", "draw_efficiency", "spoken"]

_FEW = 5  # more bands than this lie on top of each other: whiskers alone then


def draw_efficiency(comparison: Comparison, narrow: bool = False) -> Markup:
    """A line a model over the images it was given; one row a model when there is one fraction."""
    rows = [row for row in comparison.rows if row.entries]
    if len(rows) < 2:
        return _dots(rows[0], narrow) if rows else Markup()
    widest = max(len(model.label) for model in comparison.models.values())
    most = min(widest, 13 if narrow else 26)
    room = 14 + max(_wide(model.label, most) for model in comparison.models.values())
    plot = Plot(
        width=380 if narrow else 860,
        height=360 if narrow else 440,
        margins=(30, room, 54, 34),
        x=Scale.around((row.num_images for row in rows), log=True, least=1.5, pad=0.04),
        y=accuracy_scale(rows),
    )
    plot.axes(
        [(row.num_images, (count(row.num_images), row.share)) for row in rows],
        [(value, f"{value:g}") for value in ticks(plot.y, 5)],
        "training images (log)",
        "Top-1 accuracy on the test images (%)",
    )
    few = len(comparison.models) <= _FEW
    labels = []
    for name, model in comparison.models.items():
        known = [(row, row.entries[name]) for row in rows if name in row.entries]
        if not known:
            continue
        xs = [row.num_images for row, _ in known]
        spreads = [entry.std or 0.0 for _, entry in known]
        means = [entry.mean for _, entry in known]
        if few and any(spreads) and len(known) > 1:
            low = [mean - std for mean, std in zip(means, spreads, strict=True)]
            high = [mean + std for mean, std in zip(means, spreads, strict=True)]
            plot.band(xs, low, high, model.look)
        plot.line(xs, means, model.look)
        for row, entry in known:
            plot.parts.append(_point(plot, row, entry, whisker=not few))
        end = (plot.px(xs[-1]), plot.py(means[-1]))
        labels.append(EndLabel(model.label, end[1], model.look, end[0]))
    _crossings(plot, comparison, rows)
    plot.end_labels(labels, most)
    return plot.draw(f"Line chart of accuracy against training images. {spoken(rows)}")


def accuracy_scale(rows: list[Row]) -> Scale:
    """Wide enough for every mean, spread and seed, within 0 and 100."""
    ends = [
        value
        for row in rows
        for entry in row.entries.values()
        for value in (*_interval(entry), *entry.seeds)
    ]
    return Scale.around(ends, least=4, floor=0, ceiling=100)


def spoken(rows: list[Row]) -> str:
    """The figure in words, for who cannot see it."""
    parts = []
    for row in rows:
        means = ", ".join(
            f"{entry.model.label} {_written(entry)}" for entry in row.entries.values()
        )
        parts.append(f"{count(row.num_images)} images: {means}.")
    return " ".join(parts)


def _wide(label: str, most: int) -> float:
    return svg.width(svg.shorten(label, most), 12)


def _written(entry: Entry) -> str:
    return f"{entry.mean:.1f} %" if entry.std is None else f"{entry.mean:.1f} ± {entry.std:.1f} %"


def _interval(entry: Entry) -> tuple[float, float]:
    return entry.mean - (entry.std or 0), entry.mean + (entry.std or 0)


def _point(plot: Plot, row: Row, entry: Entry, whisker: bool) -> Markup:
    x, y = plot.px(row.num_images), plot.py(entry.mean)
    seeds = entry.seeds if len(entry.seeds) > 1 else ()
    parts = [svg.tag("circle", cx=x, cy=plot.py(top1), r=2.2, class_="seed") for top1 in seeds]
    if whisker and entry.std:
        low, high = map(plot.py, _interval(entry))
        parts.append(svg.line((x, low), (x, high), "whisker"))
    parts.append(svg.marker(entry.model.look.marker, x, y, 4))
    parts.append(svg.tag("circle", cx=x, cy=y, r=11, class_="hit"))
    tip = f"{entry.model.label}, {count(row.num_images)} images: {_written(entry)}"
    return svg.tag("g", *parts, svg.tag("title", tip), class_=entry.model.look.css)


def _crossings(plot: Plot, comparison: Comparison, rows: list[Row]) -> None:
    """A ring where two lines cross, with the sentence about it."""
    for crossing in comparison.values.get("crossings") or []:
        name, fraction = crossing["first"], crossing.get("fraction")
        known = [row for row in rows if name in row.entries]
        for left, right in pairwise(known):
            if fraction is None or not left.fraction <= fraction <= right.fraction:
                continue
            way = math.log(fraction / left.fraction) / math.log(right.fraction / left.fraction)
            x = left.num_images * (right.num_images / left.num_images) ** way
            low, high = left.entries[name].mean, right.entries[name].mean
            place = {"cx": plot.px(x), "cy": plot.py(low + way * (high - low))}
            ring = svg.tag("circle", **place, r=8, class_="ring")
            title = svg.tag("title", str(crossing.get("text") or ""))
            plot.parts.append(svg.tag("g", ring, title))
            break


def _dots(row: Row, narrow: bool) -> Markup:
    """One fraction: a row a model, the best on top."""
    entries = sorted(row.entries.values(), key=lambda entry: -entry.mean)
    most = min(max(len(entry.model.label) for entry in entries), 14 if narrow else 30)
    plot = Plot(
        width=380 if narrow else 860,
        height=74 + 30 * len(entries),
        margins=(26, 14, 48, 16 + max(_wide(e.model.label, most) for e in entries)),
        x=accuracy_scale([row]),
        y=Scale(len(entries) - 0.5, -0.5),
    )
    title = f"Top-1 accuracy on the test images (%), {count(row.num_images)} training images"
    marks = [(value, (f"{value:g}",)) for value in ticks(plot.x, 4 if narrow else 8)]
    plot.axes(marks, [], "top-1 (%)", title if not narrow else "Top-1 accuracy (%)")
    for place, entry in enumerate(entries):
        y, left = plot.py(place), plot.margins[3]
        low, high = map(plot.px, _interval(entry))
        parts = [
            svg.line((left, y), (plot.width - 14, y), "grid"),
            svg.text(left - 12, y + 4, entry.model.label, "label", anchor="end", most=most),
            svg.line((low, y), (high, y), "whisker"),
            *(svg.tag("circle", cx=plot.px(v), cy=y, r=2.2, class_="seed") for v in entry.seeds),
            svg.marker(entry.model.look.marker, plot.px(entry.mean), y, 5),
            svg.tag("title", f"{entry.model.label}: {_written(entry)}"),
        ]
        plot.parts.append(svg.tag("g", *parts, class_=entry.model.look.css))
    return plot.draw(f"Accuracy of each model. {spoken([row])}")
