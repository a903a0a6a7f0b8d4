"""Values of seeds as dots, one line per group and series; the paper's number is a ring."""

from collections.abc import Sequence
from statistics import fmean, stdev

from markupsafe import Markup

from vitascope.figure import Dots, DotSeries
from vitascope.report.figures import svg
from vitascope.report.figures.axes import Plot
from vitascope.report.figures.figure import known
from vitascope.report.figures.lines import axis_number
from vitascope.report.figures.scale import AxisScale, ticks

MOST_SEEDS = 30  # dots of a group and series
_LINE = 17.0  # height of one series


def seeds_of(line: DotSeries, group: int) -> list[float]:
    """The numbers that are there."""
    values = line.values[group] if group < len(line.values) else ()
    return [float(value) for value in values if value is not None and known(value)]


def paper_of(line: DotSeries, group: int) -> float | None:
    """The paper's number of a group."""
    value = line.paper[group] if line.paper is not None and group < len(line.paper) else None
    return float(value) if value is not None and known(value) else None


def dots_range(panel: Dots) -> list[float]:
    """Every number that is drawn."""
    found = []
    for line in panel.series:
        for group in range(len(panel.groups)):
            found += seeds_of(line, group)
            paper = paper_of(line, group)
            found += [] if paper is None else [paper]
    return found


def draw_dots(panel: Dots, *, width: float = 420, **_: float) -> Markup:
    """Groups as rows, series within them; dots are seeds, the mark their mean."""
    numbers = dots_range(panel)
    if not numbers:
        return svg.nothing()
    most = 48 if width > 500 else 22
    room = 14 + max(svg.width(svg.shorten(group, most), 12) for group in panel.groups)
    step = _LINE * len(panel.series) + 12
    tall = 36 + step * len(panel.groups) + 44
    span = max(abs(max(numbers)), abs(min(numbers)), 1e-9)
    x = AxisScale.around(numbers, least=0.02 * span, pad=0.05)
    plot = Plot(width, tall, (30, 14, 44, room), x, AxisScale(len(panel.groups) - 0.5, -0.5))
    marks = [(value, (axis_number(value),)) for value in ticks(x, 8 if width > 500 else 4)]
    plot.axes(marks, [], "", panel.y_label)
    for group, name in enumerate(panel.groups):
        middle = plot.py(group)
        plot.parts.append(svg.text(room - 10, middle + 4, name, "name", anchor="end", most=most))
        edge = middle + step / 2
        if group + 1 < len(panel.groups):
            plot.parts.append(svg.line((room, edge), (width - 14, edge), "grid"))
        for place, line in enumerate(panel.series):
            y = middle + _LINE * (place - (len(panel.series) - 1) / 2)
            drawn = _mark(plot, line, group, y, f"{line.label}, {name}")
            plot.parts += [] if drawn is None else [drawn]
    key = _key(panel.series) if len(panel.series) > 1 or panel.series[0].label else Markup()
    return Markup("{}{}").format(key, plot.draw(_said(panel)))


def _mark(plot: Plot, line: DotSeries, group: int, y: float, name: str) -> Markup | None:
    seeds, paper = seeds_of(line, group), paper_of(line, group)
    parts: list[Markup] = []
    words = name
    if seeds:
        mean = fmean(seeds)
        spread = stdev(seeds) if len(seeds) > 1 else 0.0
        if spread:
            parts.append(
                svg.line((plot.px(mean - spread), y), (plot.px(mean + spread), y), "whisker")
            )
            for seed in seeds[:MOST_SEEDS]:
                parts.append(svg.tag("circle", cx=plot.px(seed), cy=y, r=2.2, class_="seed"))
        parts.append(svg.marker(line.style.marker, plot.px(mean), y, 4.6))
        words += f": {mean:.4g}" + (f" ± {spread:.2g}" if spread else "")
    if paper is not None:
        parts.append(svg.tag("circle", cx=plot.px(paper), cy=y, r=5.4, class_="paper"))
        words += f"; the paper {paper:.4g}"
    if not parts:
        return None
    return svg.tag("g", *parts, svg.tag("title", words), class_=line.style.css)


def _key(series: Sequence[DotSeries]) -> Markup:
    signs = {"circle": "●", "square": "■", "triangle": "▲", "diamond": "◆"}
    items = [
        svg.tag(
            "span",
            svg.tag("span", signs[line.style.marker], class_="sign", aria_hidden="true"),
            " ",
            line.label,
            class_=line.style.css,
        )
        for line in series
    ]
    if any(line.paper is not None and any(map(known, line.paper)) for line in series):
        items.append(svg.tag("span", svg.tag("span", "○", aria_hidden="true"), " the paper"))
    return svg.tag("p", *items, class_="key")


def _said(panel: Dots) -> str:
    parts = []
    for group, name in enumerate(panel.groups[:12]):
        means = []
        for line in panel.series[:8]:
            seeds, paper = seeds_of(line, group), paper_of(line, group)
            if seeds:
                beside = "" if paper is None else f" (the paper {paper:.4g})"
                means.append(f"{line.label} {fmean(seeds):.4g}{beside}".strip())
        parts.append(f"{name}: {', '.join(means) or 'nothing'}")
    title = f"{panel.title}. " if panel.title else ""
    return f"{title}{panel.y_label}. {'; '.join(parts)}."
