"""A figure as data: panels of lines, dots, matrices, surfaces and maps, and the words around them.

Studies keep figures in their records (``stored`` and ``restored``); the report makes others from
records and draws all of them, as SVG for the page and with matplotlib for papers. Numbers may be
missing: a line has a gap there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from vitascope.errors import UserError

__all__ = [
    "DotSeries",
    "Dots",
    "Figure",
    "Heat",
    "Lines",
    "Maps",
    "Panel",
    "Series",
    "Style",
    "Surface",
    "check_photographs",
    "head_panels",
    "restored",
    "stored",
    "thin",
]

Numbers = Sequence[float | None]
FEW_POINTS = 12  # of a line, to mark each of them
NUM_COLOURS = 8
MARKERS = ("circle", "square", "triangle", "diamond")
DASHES = ("", "7 4", "2 3")


@dataclass(frozen=True)
class Style:
    """Look of a model in figures: its colour's number, the shape of its marks, SVG's dashes."""

    colour: int = 0
    marker: str = "circle"
    dash: str = ""

    @classmethod
    def numbered(cls, number: int) -> "Style":
        """Return one of many styles, each with its own colour, mark and dashes."""
        turn, colour = divmod(number, NUM_COLOURS)
        marker = MARKERS[(colour + turn) % len(MARKERS)]
        return cls(colour=colour, marker=marker, dash=DASHES[turn % len(DASHES)])

    @property
    def css(self) -> str:
        """The class that sets the colour in a page."""
        return f"m{self.colour}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line; ``low`` and ``high`` are a band around it."""

    label: str
    x: Numbers
    y: Numbers
    model: str | None = None  # a report gives all series of a model the same style
    style: Style = Style()
    low: Numbers | None = None
    high: Numbers | None = None
    each: Sequence[Numbers] | None = None  # what a point is the mean of: heads or seeds
    strands: Sequence[Numbers] | None = None  # thin lines that the line is the mean of: heads
    marks: Sequence[str] | None = None  # the shape of each point, in place of the style's

    def __post_init__(self) -> None:
        """Records are read from disk: what is no number is refused before anything is drawn."""
        for part in (self.x, self.y, self.low, self.high):
            if part is not None and not all(v is None or isinstance(v, Real) for v in part):
                raise TypeError(f"the line {self.label!r} has points that are no numbers")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over a common axis."""

    title: str = ""
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    x_names: tuple[str, ...] = ()  # instead of numbers
    x_at: tuple[float, ...] = ()  # where the names stand; at 0, 1, 2, … unless given
    floor: float = -math.inf  # bounds of the vertical axis, where the numbers keep to them
    ceiling: float = math.inf
    include: tuple[float, ...] = ()  # heights that the vertical axis must reach
    marks: bool | None = None  # a mark at each point; where points are few unless given
    joined: bool = True  # or points alone
    levels: tuple[tuple[str, float], ...] = ()  # dashed heights with their names
    rings: tuple[tuple[float, float, str], ...] = ()  # places with what is to be said of them

    @property
    def marked(self) -> bool:
        """Return whether points have marks."""
        few = max((len(line.x) for line in self.series), default=0) <= FEW_POINTS
        return few if self.marks is None else self.marks

    @property
    def names_at(self) -> tuple[float, ...]:
        """Positions of the names along the axis."""
        return self.x_at or tuple(range(len(self.x_names)))


@dataclass(frozen=True, kw_only=True)
class DotSeries:
    """The values of all seeds in each group, and the paper's number."""

    label: str
    values: Sequence[Numbers]
    model: str | None = None
    style: Style = Style()
    paper: Numbers | None = None


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Groups of dots, one row per series."""

    title: str = ""
    y_label: str
    groups: tuple[str, ...]
    series: tuple[DotSeries, ...]


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A matrix (R, C) as colours."""

    title: str = ""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    label: str = ""
    log: bool = False
    low: float | None = None  # ends of the colours; those of the values unless given
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Heights (X, Y) over a plane, as smooth contours."""

    title: str = ""
    x: Sequence[float]
    y: Sequence[float]
    values: np.ndarray
    label: str = ""
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Maps:
    """Small images (R, C, h, w), one per row and column; NaN where a row has fewer.

    Next to photographs they may be colours (R, C, h, w, 3), 0 to 1, which are shown as they are.
    """

    title: str = ""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    log: bool = True
    query: tuple[float, float] | None = None  # the query patch: down, across
    unringed: tuple[str, ...] = ()  # rows in which something else looks
    labels: tuple[tuple[str, ...], ...] = ()  # words on each map (R, C): a gate
    photographs: np.ndarray | None = None  # below the maps of a column (C, H, W, 3), 0 to 1


Panel = Lines | Dots | Heat | Surface | Maps
_PANELS: dict[str, type[Any]] = {
    "lines": Lines,
    "dots": Dots,
    "heat": Heat,
    "surface": Surface,
    "maps": Maps,
}
_TUPLES = ("rows", "columns", "unringed", "groups", "x_names", "x_at", "include")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels under one title, with a sentence on what they show and one on how to read them."""

    name: str
    title: str
    reading: str
    panels: tuple[Panel, ...]
    how: str = ""
    definition: str = ""
    headline: str = ""  # what it means, in a few words
    wide: bool = False  # all of a page's width, among however many figures


def thin(length: int, most: int) -> list[int]:
    """Return at most ``most`` of the indices below ``length``, evenly, with the first and the last.

    >>> thin(9, 3)
    [0, 4, 8]
    """
    if length <= most:
        return list(range(length))
    return sorted({int(index) for index in np.linspace(0, length - 1, most).round()})


def head_panels(
    epochs: Sequence[float], values: np.ndarray, layers: Sequence[str], **panel: Any
) -> tuple[Lines, ...]:
    """Gates or nonlocality over training, a panel per layer: a thin line per head, a thick mean.

    Args:
        epochs: E of them.
        values: (E, L, H); NaN for heads that a layer lacks.
        layers: L titles.
        panel: Fields of every panel: ``x_label``, ``y_label``, ...

    >>> two = np.array([[[0.2, 0.4, np.nan]], [[0.4, 0.8, np.nan]]])
    >>> (line,) = head_panels([0, 1], two, ["layer 1"], x_label="", y_label="")[0].series
    >>> [round(y, 1) for y in line.y], len(line.strands)
    ([0.3, 0.6], 2)
    """
    panels = []
    for index, title in enumerate(layers):
        heads = values[:, index][:, np.isfinite(values[:, index]).all(0)]
        means = heads.mean(1).tolist() if heads.size else [None] * len(epochs)
        line = Series(label="mean", x=list(epochs), y=means, strands=heads.T.tolist())
        panels.append(Lines(title=title, series=(line,), **panel))
    return tuple(panels)


def stored(figure: Figure) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A figure as a record holds it: plain values, and the arrays that they name."""
    item = _changed(figure)
    panels, arrays = [], {}
    for index, panel in enumerate(figure.panels):
        kind = next(name for name, made in _PANELS.items() if isinstance(panel, made))
        plain = {"kind": kind, **_changed(panel)}
        if "values" in plain:
            plain["array"] = f"{figure.name}/{index}"
            arrays[plain["array"]] = plain.pop("values")
        if "photographs" in plain:
            arrays[f"{figure.name}/{index}/photographs"] = plain.pop("photographs")
        if "series" in plain:
            plain["series"] = [_changed(line) for line in plain["series"]]
        panels.append(plain)
    return {**item, "panels": panels}, arrays


def _changed(part: Any) -> dict[str, Any]:
    """Fields that are not at their default; a style belongs to a page."""
    changed = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name != "style" and (isinstance(value, np.ndarray) or value != field.default):
            changed[field.name] = value
    return changed


def restored(item: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """The figure that a record holds.

    Raises:
        UserError: If there is no such panel, or the record does not have its array.
    """
    panels = tuple(_panel(dict(panel), arrays) for panel in item.get("panels") or ())
    title = str(item.get("title") or "")
    return Figure(
        name=str(item.get("name") or "figure"),
        title=title,
        reading=str(item.get("reading") or title),
        how=str(item.get("how") or ""),
        panels=panels,
    )


def _panel(item: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Panel:
    made = _PANELS.get(str(item.get("kind")))
    if made is None:
        raise UserError(f"there are panels of {', '.join(_PANELS)}, not of {item.get('kind')!r}")
    given = _fields_of(made, {"title": "", "x_label": "", "y_label": "", **item})
    if "series" in given:
        line = Series if made is Lines else DotSeries
        given["series"] = tuple(line(**_fields_of(line, one)) for one in given["series"])
    else:
        given["values"] = _array(item, arrays, 4 if made is Maps else 2)
        if made is Maps:
            given["photographs"] = arrays.get(f"{item['array']}/photographs")
            check_photographs(given["photographs"], len(given["columns"]))
    return made(**given)


def check_photographs(photographs: np.ndarray | None, count: int) -> None:
    """Photographs, if there are any, are one a column of maps, and in colour.

    Raises:
        UserError: If not.
    """
    if photographs is None:
        return
    if photographs.ndim != 4 or photographs.shape[::3] != (count, 3) or not photographs.size:
        raise UserError(
            f"photographs must be of the shape ({count}, height, width, 3), not {photographs.shape}"
        )


def _fields_of(made: type[Any], item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a class has fields for, with words as words and lists that do not change."""
    values = {name: item[name] for name in (f.name for f in fields(made)) if name in item}
    for name in ("title", "label", "x_label", "y_label"):
        if name in values:
            values[name] = str(values[name] or "")
    for name in _TUPLES:
        if name in values:
            values[name] = tuple(values[name])
    for name in ("rows", "columns", "unringed", "groups", "x_names"):
        if name in values:
            values[name] = tuple(map(str, values[name]))
    for name in ("levels", "rings", "labels"):
        if name in values:
            values[name] = tuple(map(tuple, values[name]))
    return values


def _array(item: Mapping[str, Any], arrays: Mapping[str, np.ndarray], sides: int) -> np.ndarray:
    values = arrays.get(str(item.get("array")))
    down, across = (
        len(item.get(name) or item.get(other) or ())
        for name, other in (("rows", "x"), ("columns", "y"))
    )
    if values is None or values.ndim != sides or values.shape[:2] != (down, across):
        raise UserError(
            f"the record has no array {item.get('array')!r} of {down} rows and {across} columns"
        )
    return np.asarray(values, float)
