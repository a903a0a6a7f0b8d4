"""Panels as SVG: the drawing function of each kind, and the width that a figure gets.

Figures and their panels are in :mod:`vitascope.figure`.
"""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from vitascope.figure import Dots, Figure, Heat, Lines, Maps, Panel, Surface
from vitascope.report.figures.heat import draw_heat, draw_surface
from vitascope.report.figures.lines import MOST_POINTS, MOST_SEEDS, draw_dots, draw_lines
from vitascope.report.figures.maps import MOST_COLUMNS, MOST_ROWS, draw_maps

_DRAW: dict[type[Any], Callable[..., Markup]] = {
    Lines: draw_lines,
    Dots: draw_dots,
    Heat: draw_heat,
    Surface: draw_surface,
    Maps: draw_maps,
}

_SIZES = {"wide": (860, 400), "lone": (540, 340), "half": (420, 290), "narrow": (380, 330)}

_MANY = 3  # figures of a section; more of them stand two next to each other

_PANEL_POINTS = 1200  # of a line in all panels of a figure; many small ones need few each


def room(figure: Figure, among: int = 1) -> str:
    """Return how much of the page a figure takes, ``among`` that many of its section.

    ``wide``: all of it, drawn once more for a phone; ``half``: two stand next to each other;
    ``lone``: one matrix or set of maps, drawn twice too; ``row``: panels next to each other.
    """
    if len(figure.panels) != 1:
        return "row"
    if isinstance(figure.panels[0], (Lines, Dots)):
        return "half" if among > _MANY and not figure.wide else "wide"
    return "lone"


def across(panel: Panel) -> bool:
    """Return whether a panel takes all of the width among others: photographs do."""
    return isinstance(panel, Maps) and panel.photographs is not None


def num_points(figure: Figure, most: int = MOST_POINTS) -> int:
    """Return how many points of a line are drawn."""
    return min(most, max(30, _PANEL_POINTS // max(len(figure.panels), 1)))


def draw_panel(panel: Panel, size: str = "half", most: int = MOST_POINTS) -> Markup:
    """One panel: ``wide``, ``lone``, ``half`` or ``narrow``; ``most`` bounds a line's points."""
    width, height = _SIZES[size]
    return _DRAW[type(panel)](panel, width=width, height=height, most=most)


def left_out(figure: Figure, most: int = MOST_POINTS) -> str:
    """Return what is not drawn, because it would be too much; empty when all is."""
    names = []
    for panel in figure.panels:
        if isinstance(panel, Lines):
            longest = max((len(line.x) for line in panel.series), default=0)
            if longest > most:
                names.append(f"{most} of {longest} points per line are drawn")
        elif isinstance(panel, Dots):
            seeds = max((len(v) for line in panel.series for v in line.values), default=0)
            if seeds > MOST_SEEDS:
                names.append(f"{MOST_SEEDS} of {seeds} seeds per mark are drawn")
        elif isinstance(panel, Maps) and panel.values.ndim == 4:
            rows, columns = panel.values.shape[:2]
            if rows > MOST_ROWS or columns > MOST_COLUMNS:
                shown = f"{min(rows, MOST_ROWS)} x {min(columns, MOST_COLUMNS)}"
                names.append(f"{shown} of {rows} x {columns} maps are shown")
    return "; ".join(dict.fromkeys(names))
