"""Shared by both renderers: which numbers of a panel can be drawn, and a name for its file.

Figures and their panels are in :mod:`vitascope.figure`.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

from vitascope.figure import Lines, Series
from vitascope.report.figures.axes import thin


def known(value: Any, log: bool = False) -> bool:
    """Return whether a number is there and may be drawn."""
    return isinstance(value, (int, float)) and math.isfinite(value) and (value > 0 or not log)


def runs_of(series: Series, panel: Lines, most: int = 200) -> list[list[int]]:
    """Indices of unbroken stretches of a line, at most about ``most`` points in all.

    >>> line = Series(label="a", x=[0, 1, 2, 3], y=[1, None, 3, 4])
    >>> runs_of(line, Lines(x_label="", y_label="", series=(line,)))
    [[0], [2, 3]]
    """
    runs: list[list[int]] = [[]]
    for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if known(x, panel.x_log) and known(y, panel.y_log):
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    stretches = [run for run in runs if run]
    share = max(2, most // max(len(stretches), 1))
    return [[run[i] for i in thin(len(run), share)] for run in stretches]


def file_name(text: str, taken: Iterable[str] = ()) -> str:
    """A name for a file from words that may hold anything; unlike those taken.

    >>> file_name("a/../b <x>"), file_name("top1", ["top1"])
    ('a_b_x', 'top1-2')
    """
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_")[:60] or "figure"
    others, name, turn = set(taken), plain, 1
    while name in others:
        turn += 1
        name = f"{plain}-{turn}"
    return name
