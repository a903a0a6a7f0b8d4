"""Axes of a plot as SVG: frame, ticks, grid lines, labels at line ends.

The title of the vertical axis stands above it, horizontal; grid lines are faint; lines carry
their names at their ends, moved apart where they would overlap.

Scales map numbers to places on an axis and find the round numbers to write next to it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from vitascope.figure import Style
from vitascope.report.figures import svg


@dataclass(frozen=True)
class AxisScale:
    """An axis from ``low`` to ``high``; ``at`` gives 0 at the one and 1 at the other."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return where ``value`` lies.

        >>> AxisScale(1, 100, log=True).at(10)
        0.5
        """
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        *,
        log: bool = False,
        pad: float = 0.06,
        least: float = 1.0,
        floor: float = -math.inf,
        ceiling: float = math.inf,
    ) -> "AxisScale":
        """The values with ``pad`` of their range on each side, at least ``least`` wide.

        For a logarithmic axis ``least`` is a factor. ``floor`` and ``ceiling`` bound the result
        (0 and 100 for percent) where the values themselves keep to them.
        """
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        if not finite:
            return cls(1, 10, True) if log else cls(0, 1)
        low, high = min(finite), max(finite)
        if log:
            inner = cls.around(map(math.log, finite), pad=pad, least=math.log(least))
            return cls(math.exp(inner.low), math.exp(inner.high), True)
        missing = max(0.0, least - (high - low)) / 2
        margin = pad * max(high - low, least)
        down, up = low - missing - margin, high + missing + margin
        return cls(max(down, min(floor, low)), min(up, max(ceiling, high)))


def ticks(scale: AxisScale, number: int = 5) -> list[float]:
    """About ``number`` round values within the scale.

    >>> ticks(AxisScale(61.2, 98.7), 4)
    [70.0, 80.0, 90.0]
    >>> ticks(AxisScale(80, 3000, log=True))
    [100.0, 200.0, 500.0, 1000.0, 2000.0]
    """
    if scale.log:
        values = _log_ticks(scale, (1, 2, 5))
        values = values if len(values) <= number + 1 else _log_ticks(scale, (1, 3))
        values = values if len(values) <= number + 1 else _log_ticks(scale, (1,))
        if len(values) >= 2:
            return values[:: math.ceil(len(values) / (number + 1))]
    rough = (scale.high - scale.low) / max(number, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((1, 2, 5, 10), key=lambda factor: abs(math.log(factor * power / rough))) * power
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [round(multiple * step, digits) + 0.0 for multiple in range(first, last + 1)]


def _log_ticks(scale: AxisScale, factors: tuple[int, ...]) -> list[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    return [value for value in values if scale.low <= value <= scale.high]


Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class EndLabel:
    """A name to write at a height, in a model's colour."""

    text: str
    y: float  # in the plot's own units (pixels)
    style: Style
    x: float | None = None  # where its line ends; the right edge unless given


@dataclass
class Plot:
    """A drawing of ``width`` x ``height`` with margins (top, right, bottom, left)."""

    width: float
    height: float
    margins: tuple[float, float, float, float]
    x: AxisScale
    y: AxisScale
    font: float = 12
    parts: list[Markup] = field(default_factory=list)

    def px(self, value: float) -> float:
        """The horizontal place of a value."""
        _, right, _, left = self.margins
        return left + self.x.at(value) * (self.width - left - right)

    def py(self, value: float) -> float:
        """The vertical place of a value."""
        top, _, bottom, _ = self.margins
        return self.height - bottom - self.y.at(value) * (self.height - top - bottom)

    def axes(
        self,
        xticks: Sequence[tuple[float, Sequence[str]]],
        yticks: Sequence[tuple[float, str]],
        xtitle: str,
        ytitle: str,
    ) -> None:
        """Grid lines with their numbers, and what the two axes mean."""
        _, right, bottom, left = self.margins
        end, floor = self.width - right, self.height - bottom
        heights = [(self.py(value), line) for value, line in yticks]
        grid = "".join(svg.path([(left, y), (end, y)]) for y, _ in heights)
        beside = [svg.text(left - 6, y + 0.35 * self.font, line) for y, line in heights]
        notches, below, last = "", [], -1e9
        for index, (value, lines) in enumerate(xticks):
            x, half = self.px(value), max(svg.width(line, self.font) for line in lines) / 2
            notches += svg.path([(x, floor), (x, floor + 4)])
            if x - half < last + 4 and index:
                continue
            last = x + half
            for row, line in enumerate(lines):
                below.append(svg.text(x, floor + 6 + self.font * (1 + 1.2 * row), line))
        inner = [
            svg.tag("path", d=grid, class_="grid"),
            svg.tag("g", *beside, text_anchor="end"),
            svg.tag("path", d=notches + svg.path([(left, floor), (end, floor)]), class_="base"),
            svg.tag("g", *below, text_anchor="middle"),
            svg.text(0, self.font, ytitle, "name"),
        ]
        if xtitle:
            inner.append(svg.text(end, self.height - 3, xtitle, "name", anchor="end"))
        self.parts.append(svg.tag("g", *inner))

    def line(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        style: Style,
        class_: str = "line",
        tip: str = "",
    ) -> None:
        """A line through values, in a model's colour and dash."""
        points = [(self.px(a), self.py(b)) for a, b in zip(xs, ys, strict=True)]
        title = svg.tag("title", tip) if tip else ""
        if len(points) == 1:
            (x, y), kind = points[0], f"dot {style.css}"
            self.parts.append(svg.tag("circle", title, cx=x, cy=y, r=2, class_=kind))
        else:
            shown = {"d": svg.path(points), "class": f"{class_} {style.css}"}
            dash = style.dash or None
            self.parts.append(svg.tag("path", title, **shown, stroke_dasharray=dash))

    def band(
        self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], style: Style
    ) -> None:
        """The area between two lines, faint."""
        there = [(self.px(a), self.py(b)) for a, b in zip(xs, high, strict=True)]
        back = [(self.px(a), self.py(b)) for a, b in zip(xs, low, strict=True)]
        shape = svg.path([*there, *reversed(back)], close=True)
        self.parts.append(svg.tag("path", d=shape, class_=f"band {style.css}"))

    def end_labels(self, labels: Sequence[EndLabel], most: int) -> None:
        """Names right of the plot, at their line's height as far as there is room."""
        top, right, bottom, _ = self.margins
        edge = self.width - right
        heights = spread([label.y for label in labels], 1.18 * self.font, top, self.height - bottom)
        for label, y in zip(labels, heights, strict=True):
            start = label.x if label.x is not None else edge
            inner = [svg.text(edge + 12, y + 0.35 * self.font, label.text, "label", most=most)]
            if abs(y - label.y) > 2 or start < edge - 2:
                inner.append(svg.line((start + 4, label.y), (edge + 9, y), "leader"))
            self.parts.append(svg.tag("g", *inner, class_=label.style.css))

    def point_labels(self, labels: Sequence[EndLabel], most: int) -> None:
        """Each name where it hides least: next to, above or below its point."""
        taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in ((_.x or 0.0, _.y) for _ in labels)]
        frame = (self.margins[3], self.margins[0], self.width, self.height - self.margins[2])
        for label in labels:
            x, y, high = label.x or 0.0, label.y, self.font
            wide = svg.width(svg.shorten(label.text, most), high)
            steps = sorted(range(-5, 6), key=abs)  # the nearest place wins among equals
            corners = [
                (side, y + (1.1 * step - 0.5) * high)
                for step in steps
                for side in (x + 10, x - 10 - wide)
            ]
            corners[2:2] = [(x - wide / 2, y - 9 - high), (x - wide / 2, y + 9)]
            boxes = [(a, b, a + wide, b + high) for a, b in corners]
            best = min(
                boxes,
                key=lambda box: (
                    sum(_shared(box, other) for other in taken)
                    + 4 * (_shared(box, box) - _shared(box, frame))
                ),
            )
            taken.append(best)
            inner = [svg.text(best[0], best[1] + 0.8 * high, label.text, "label", most=most)]
            if abs(best[1] + high / 2 - y) > 1.5 * high:
                near = best[2] if best[0] < x else best[0]
                inner.append(svg.line((x, y), (near, best[1] + high / 2), "leader"))
            self.parts.append(svg.tag("g", *inner, class_=label.style.css))

    def draw(self, name: str, class_: str = "") -> Markup:
        """The finished drawing; ``name`` is what a screen reader says."""
        return svg.tag(
            "svg",
            *self.parts,
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            role="img",
            aria_label=name,
            class_=f"chart {class_}".strip(),
            font_size=self.font,
        )


def _shared(box: Box, other: Box) -> float:
    """The area that two boxes share."""
    wide = min(box[2], other[2]) - max(box[0], other[0])
    high = min(box[3], other[3]) - max(box[1], other[1])
    return max(0.0, wide) * max(0.0, high)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least ``gap`` apart and, in squares, as near as can be to those wanted.

    >>> spread([10, 11, 50], 10, 0, 100)
    [5.5, 15.5, 50.0]
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    pools: list[list[float]] = []  # [sum, number] of wanted places less the room taken before
    for rank, index in enumerate(order):
        pools.append([wanted[index] - rank * gap, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    flat = [total / number for total, number in pools for _ in range(int(number))]
    top = high - (len(wanted) - 1) * gap
    heights = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        heights[index] = min(max(flat[rank], low), top) + rank * gap
    return heights
