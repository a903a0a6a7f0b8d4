"""Lines and dots of a figure as SVG.

Lines have labels at their ends, bands, dashed levels and gaps. Dots are the values of seeds, one
line per group and series; the paper's number is a ring.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup

from vitascope.figure import Dots, DotSeries, Lines, Series, thin
from vitascope.formatting import finite, short
from vitascope.report.figures import svg
from vitascope.report.figures.axes import AxisScale, EndLabel, Plot, ticks

MOST_POINTS = 200  # drawn of a line

_MOST_MARKS = 60  # on a line

_FEW = 5  # more bands than this lie on top of each other


def drawable(value: Any, log: bool = False) -> bool:
    """Return whether a value is a number that an axis, perhaps a logarithmic one, can show."""
    return finite(value) and (value > 0 or not log)


def runs_of(series: Series, panel: Lines, most: int = 200) -> list[list[int]]:
    """Indices of unbroken stretches of a line, at most about ``most`` points in all.

    >>> line = Series(label="a", x=[0, 1, 2, 3], y=[1, None, 3, 4])
    >>> runs_of(line, Lines(x_label="", y_label="", series=(line,)))
    [[0], [2, 3]]
    """
    runs: list[list[int]] = [[]]
    for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if drawable(x, panel.x_log) and drawable(y, panel.y_log):
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    stretches = [run for run in runs if run]
    share = max(2, most // max(len(stretches), 1))
    return [[run[i] for i in thin(len(run), share)] for run in stretches]


def line_scales(panel: Lines) -> tuple[AxisScale, AxisScale]:
    """Wide enough for all numbers that can be drawn."""
    xs = [x for line in panel.series for x in line.x if drawable(x, panel.x_log)]
    ys: list[float] = [value for _, value in panel.levels if drawable(value, panel.y_log)]
    ys += [value for value in panel.include if drawable(value, panel.y_log)]
    for line in panel.series:
        for part in (
            line.y,
            line.low or (),
            line.high or (),
            *(line.each or ()),
            *(line.strands or ()),
        ):
            ys += [y for y in part if y is not None and drawable(y, panel.y_log)]
    xs += panel.names_at
    reach = max(ys) - min(ys) if ys else 1.0
    least = 1.2 if panel.y_log else max(0.02 * max(map(abs, ys), default=1.0), 1e-9)
    pad = 0.06 if reach > 0 else 0.5
    along = [x for x in xs if x is not None]
    apart = 1.2 if panel.x_log else 1e-9 if len(set(along)) > 1 else 1.0
    beside = 0.02
    if of_points(panel):  # leave room for names next to the points
        apart, beside = (3.0, 0.14) if panel.x_log else (apart, 0.14)
    return (
        AxisScale.around(along, log=panel.x_log, least=apart, pad=beside),
        AxisScale.around(
            ys, log=panel.y_log, least=least, pad=pad, floor=panel.floor, ceiling=panel.ceiling
        ),
    )


def of_points(panel: Lines) -> bool:
    """Return whether every series is a single point, which has its name next to it."""
    return not panel.joined and all(len(line.x) == 1 for line in panel.series)


def axis_number(value: float) -> str:
    """A tick's number.

    >>> axis_number(0.001), axis_number(2e-7), axis_number(-40.0), axis_number(120000)
    ('0.001', '2e-07', '−40', '120k')
    """
    text = short(value) if abs(value) >= 10_000 else f"{value:g}"
    return text.replace("-", "−") if value < 0 and "e" not in text else text


def draw_lines(
    panel: Lines, *, width: float = 420, height: float = 300, most: int = MOST_POINTS
) -> Markup:
    """One panel; every line carries its name, and the whole is said in words."""
    drawn = [line for line in panel.series if runs_of(line, panel, most)]
    if not drawn:
        return svg.nothing()
    letters = min(max(len(line.label) for line in drawn), 24 if width > 500 else 18)
    points = of_points(panel)
    named = (len(drawn) > 1 or bool(drawn[0].label)) and not points
    room = max(svg.width(svg.shorten(line.label, letters), 12) for line in drawn) if named else 0
    x, y = line_scales(panel)
    foot = 54 if any("\n" in name for name in panel.x_names) else 44
    plot = Plot(width, height, (30, 16 + room, foot, _left(y)), x, y)
    plot.axes(
        _xticks(panel, x, width),
        [(v, axis_number(v)) for v in ticks(y, 5)],
        panel.x_label + (" (log)" if panel.x_log else ""),
        panel.y_label + (" (log)" if panel.y_log else ""),
    )
    for label, value in panel.levels:
        _level(plot, label, value)
    spread = _band if len(drawn) <= _FEW and not points else _whiskers
    labels = []
    for line in drawn:
        spread(plot, panel, line, most)
    for line in drawn:
        end = _line(plot, panel, line, most)
        labels.append(EndLabel(line.label, end[1], line.style, end[0]))
    for across, up, label in panel.rings:
        ring = svg.tag("circle", cx=plot.px(across), cy=plot.py(up), r=8, class_="ring")
        plot.parts.append(svg.tag("g", ring, svg.tag("title", label)))
    if named:
        plot.end_labels(labels, letters)
    elif points:
        plot.point_labels(labels, letters)
    return plot.draw(_described_lines(panel, drawn))


def _left(y: AxisScale) -> float:
    widest = max((len(axis_number(value)) for value in ticks(y, 5)), default=1)
    return max(34.0, 12 + 7.2 * widest)


def _xticks(panel: Lines, x: AxisScale, width: float) -> list[tuple[float, Sequence[str]]]:
    if panel.x_names:
        names = zip(panel.names_at, panel.x_names, strict=True)
        return [(position, name.split("\n")) for position, name in names]
    return [(v, (axis_number(v),)) for v in x_marks(panel, x, 8 if width > 500 else 4)]


def x_marks(panel: Lines, x: AxisScale, count: int) -> list[float]:
    """Ticks along the axis; whole ones where all numbers are whole: there is no half layer."""
    marks = ticks(x, count)
    whole = all(float(v).is_integer() for line in panel.series for v in line.x if v is not None)
    return [v for v in marks if float(v).is_integer()] if whole and not panel.x_log else marks


def _line(plot: Plot, panel: Lines, line: Series, most: int) -> tuple[float, float]:
    end = (0.0, 0.0)
    last = next(y for y in reversed(line.y) if drawable(y, panel.y_log))
    tip = f"{line.label}: {last:.3g} at the end" if line.label else f"{last:.3g} at the end"
    for run in runs_of(line, panel, most):
        xs = [float(line.x[i] or 0) for i in run]
        ys = [float(line.y[i] or 0) for i in run]
        for number, strand in enumerate(line.strands or ()):
            heights = [float(strand[i] or 0) for i in run]
            summary = f"{number + 1}: {heights[0]:.3g} to {heights[-1]:.3g}"
            plot.line(xs, heights, line.style, "strand", summary)
        if panel.joined:
            plot.line(xs, ys, line.style, tip=tip)
        end = (plot.px(xs[-1]), plot.py(ys[-1]))
        _each(plot, line, run)
        if not panel.joined or (panel.marked and len(run) <= _MOST_MARKS):
            shapes = [line.marks[i] if line.marks else line.style.marker for i in run]
            size = 4.6 if line.marks or of_points(panel) else 3.2  # shapes that are to be read
            dots = [
                svg.tag(
                    "g",
                    svg.marker(shape, plot.px(a), plot.py(b), size),
                    svg.tag("title", f"{line.label} at {_at(panel, a)}: {b:.3g}"),
                )
                for shape, a, b in zip(shapes, xs, ys, strict=True)
            ]
            plot.parts.append(svg.tag("g", *dots, class_=line.style.css))
    return end


def _at(panel: Lines, x: float) -> str:
    names = dict(zip(panel.names_at, panel.x_names, strict=True))
    return names[x].split("\n")[0] if x in names else f"{x:.4g}"


def _each(plot: Plot, line: Series, run: Sequence[int]) -> None:
    """Single heads or seeds behind the means, as faint dots."""
    if line.each is None:
        return
    dots = [
        svg.tag("circle", cx=plot.px(float(line.x[i] or 0)), cy=plot.py(value), r=2.2)
        for i in run
        for value in line.each[i]
        if value is not None and drawable(value, plot.y.log)
    ]
    plot.parts.append(svg.tag("g", *dots, class_=f"seed {line.style.css}"))


def _whiskers(plot: Plot, panel: Lines, line: Series, most: int) -> None:
    """Ranges as whiskers, where the bands of many lines would overlap."""
    if line.low is None or line.high is None or not (panel.marked or not panel.joined):
        return
    for run in runs_of(line, panel, most):
        for i in run:
            ends = (line.low[i], line.high[i])
            if all(drawable(end, panel.y_log) for end in ends):
                x, low, high = plot.px(float(line.x[i] or 0)), *(plot.py(e or 0) for e in ends)
                stroke = svg.line((x, low), (x, high), "whisker")
                plot.parts.append(svg.tag("g", stroke, class_=line.style.css))


def _band(plot: Plot, panel: Lines, line: Series, most: int) -> None:
    if line.low is None or line.high is None:
        return
    for run in runs_of(line, panel, most):
        ends = [(line.x[i], line.low[i], line.high[i]) for i in run]
        there = [e for e in ends if all(drawable(v, panel.y_log) for v in e[1:])]
        if len(there) > 1:
            xs, low, high = ([float(e[k] or 0) for e in there] for k in range(3))
            plot.band(xs, low, high, line.style)


def _level(plot: Plot, text: str, value: float) -> None:
    y, left, right = plot.py(value), plot.margins[3], plot.width - plot.margins[1]
    dashed = svg.line((left, y), (right, y), "dashed")
    title = svg.tag("title", f"{text}: {value:.3g}")
    plot.parts.append(svg.tag("g", dashed, svg.text(left + 4, y - 4, text, "tiny"), title))


def _described_lines(panel: Lines, drawn: Sequence[Series]) -> str:
    parts = []
    for line in drawn[:12]:
        there = [y for y in line.y if y is not None and math.isfinite(y)]
        parts.append(f"{line.label} from {there[0]:.3g} to {there[-1]:.3g}".strip())
    more = f" and {len(drawn) - 12} more lines" if len(drawn) > 12 else ""
    title = f"{panel.title}. " if panel.title else ""
    return f"{title}{panel.y_label} over {panel.x_label}: {'; '.join(parts)}{more}."


MOST_SEEDS = 30  # dots of a group and series

_LINE = 17.0  # height of one series


def seeds_of(line: DotSeries, group: int) -> list[float]:
    """The numbers that are there."""
    values = line.values[group] if group < len(line.values) else ()
    return [float(value) for value in values if value is not None and drawable(value)]


def paper_of(line: DotSeries, group: int) -> float | None:
    """The paper's number of a group."""
    value = line.paper[group] if line.paper is not None and group < len(line.paper) else None
    return float(value) if value is not None and drawable(value) else None


def dots_range(panel: Dots) -> list[float]:
    """Every number that is drawn."""
    values = []
    for line in panel.series:
        for group in range(len(panel.groups)):
            values += seeds_of(line, group)
            paper = paper_of(line, group)
            values += [] if paper is None else [paper]
    return values


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
        for index, line in enumerate(panel.series):
            y = middle + _LINE * (index - (len(panel.series) - 1) / 2)
            drawn = _mark(plot, line, group, y, f"{line.label}, {name}")
            plot.parts += [] if drawn is None else [drawn]
    key = _key(panel.series) if len(panel.series) > 1 or panel.series[0].label else Markup()
    return Markup("{}{}").format(key, plot.draw(_described(panel)))


def _mark(plot: Plot, line: DotSeries, group: int, y: float, name: str) -> Markup | None:
    seeds, paper = seeds_of(line, group), paper_of(line, group)
    parts: list[Markup] = []
    text = name
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
        text += f": {mean:.4g}" + (f" ± {spread:.2g}" if spread else "")
    if paper is not None:
        parts.append(svg.tag("circle", cx=plot.px(paper), cy=y, r=5.4, class_="paper"))
        text += f"; the paper {paper:.4g}"
    if not parts:
        return None
    return svg.tag("g", *parts, svg.tag("title", text), class_=line.style.css)


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
    if any(line.paper is not None and any(map(drawable, line.paper)) for line in series):
        items.append(svg.tag("span", svg.tag("span", "○", aria_hidden="true"), " the paper"))
    return svg.tag("p", *items, class_="key")


def _described(panel: Dots) -> str:
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
