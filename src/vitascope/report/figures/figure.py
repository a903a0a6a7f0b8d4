"""Figures as data, before they are drawn: panels under a title.

A panel says what is drawn and not how: the page draws it as SVG (``panels.py``), papers get it
through matplotlib (``paper.py``), both with the same looks. Numbers may be missing: a line has a
gap there, a cell a dash.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitascope.report.figures.axes import thin
from vitascope.report.figures.style import Look

__all__ = [
    "DotSeries",
    "Dots",
    "Figure",
    "Heat",
    "Lines",
    "Maps",
    "Panel",
    "Series",
    "file_name",
    "known",
    "runs_of",
]

Numbers = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line; ``low`` and ``high`` are a band around it."""

    label: str
    x: Numbers
    y: Numbers
    look: Look
    low: Numbers | None = None
    high: Numbers | None = None
    marks: Sequence[str] | None = None  # the shape of each point, in place of the look's


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    x_names: tuple[str, ...] = ()  # instead of the numbers 0, 1, 2, …
    floor: float = -math.inf  # bounds of the vertical axis, where the numbers keep to them
    ceiling: float = math.inf
    include: tuple[float, ...] = ()  # heights that the vertical axis must reach
    marks: bool = False  # a dot at each point
    joined: bool = True  # or dots alone
    levels: tuple[tuple[str, float], ...] = ()  # dashed heights with their names


@dataclass(frozen=True, kw_only=True)
class DotSeries:
    """Per group the values of all seeds, and the paper's number."""

    label: str
    values: Sequence[Numbers]
    look: Look
    paper: Numbers | None = None


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Groups beside each other, a mark a series."""

    title: str
    y_label: str
    groups: tuple[str, ...]
    series: tuple[DotSeries, ...]


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A matrix (R, C) as colours."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    label: str = ""
    log: bool = False
    low: float | None = None  # ends of the colours; those of the values unless given
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Maps:
    """Small images (R, C, h, w): one a row and column; a row of all NaN columns is shorter."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    log: bool = True
    query: tuple[float, float] | None = None  # the patch that looks: down, across


Panel = Lines | Dots | Heat | Maps


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels under one title, with a sentence on what they show and one on how to read them."""

    name: str
    title: str
    reading: str
    panels: tuple[Panel, ...]
    how: str = ""
    definition: str = ""


def known(value: Any, log: bool = False) -> bool:
    """Whether a number is there and may be drawn."""
    return isinstance(value, (int, float)) and math.isfinite(value) and (value > 0 or not log)


def runs_of(series: Series, panel: Lines, most: int = 200) -> list[list[int]]:
    """Indices of unbroken stretches of a line, at most about ``most`` points in all.

    >>> look = Look(0, "circle", "")
    >>> line = Series(label="a", x=[0, 1, 2, 3], y=[1, None, 3, 4], look=look)
    >>> runs_of(line, Lines(title="", x_label="", y_label="", series=(line,)))
    [[0], [2, 3]]
    """
    found: list[list[int]] = [[]]
    for place, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if known(x, panel.x_log) and known(y, panel.y_log):
            found[-1].append(place)
        elif found[-1]:
            found.append([])
    stretches = [run for run in found if run]
    share = max(2, most // max(len(stretches), 1))
    return [[run[i] for i in thin(len(run), share)] for run in stretches]


def file_name(words: str, taken: Iterable[str] = ()) -> str:
    """A name for a file from words that may hold anything; unlike those taken.

    >>> file_name("a/../b <x>"), file_name("top1", ["top1"])
    ('a_b_x', 'top1-2')
    """
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", words).strip("_")[:60] or "figure"
    others, name, turn = set(taken), plain, 1
    while name in others:
        turn += 1
        name = f"{plain}-{turn}"
    return name
