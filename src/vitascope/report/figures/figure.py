"""Tables before they are written, and what both renderers ask of a panel.

Figures and their panels are in :mod:`vitascope.figure`.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vitascope.figure import Lines, Series, Style
from vitascope.report.figures.axes import thin

__all__ = ["Cell", "Row", "Table", "file_name", "known", "runs_of"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in a table: words, and what is beside them (the paper's number)."""

    words: str
    note: str = ""
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table."""

    label: str
    cells: tuple[Cell, ...]
    note: str = ""  # under the label
    style: Style | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its title; ``beside`` names what the cells' notes are."""

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    beside: str = "paper"
    numeric: bool = True

    def flat(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of plain words; notes stand in columns of their own."""
        places = range(len(self.columns))
        noted = [any(row.cells[place].note for row in self.rows) for place in places]
        named = any(row.note for row in self.rows)
        head = [self.corner, *([f"{self.corner} ({self.beside})".strip()] if named else [])]
        for place, column in enumerate(self.columns):
            head += [column, *([f"{column} ({self.beside})"] if noted[place] else [])]
        body = []
        for row in self.rows:
            line = [row.label, *([row.note] if named else [])]
            for place, cell in enumerate(row.cells):
                line += [cell.words, *([cell.note] if noted[place] else [])]
            body.append(line)
        return head, body


def known(value: Any, log: bool = False) -> bool:
    """Whether a number is there and may be drawn."""
    return isinstance(value, (int, float)) and math.isfinite(value) and (value > 0 or not log)


def runs_of(series: Series, panel: Lines, most: int = 200) -> list[list[int]]:
    """Indices of unbroken stretches of a line, at most about ``most`` points in all.

    >>> line = Series(label="a", x=[0, 1, 2, 3], y=[1, None, 3, 4])
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
