"""Figures for papers from the records of the instruments: PNG and SVG, without torch.

One figure an instrument, in the style of the other figures: text as outlines, the same file from
the same record.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vitascope.errors import unknown
from vitascope.record import Record
from vitascope.report.contents import compose
from vitascope.report.figures.comparison_paper import STYLE
from vitascope.report.instruments.paper_curvature import (
    draw_density,
    draw_hessian,
    draw_landscape,
    draw_trajectory,
)
from vitascope.report.instruments.paper_heads import draw_entropy, draw_gates, draw_nonlocality
from vitascope.report.instruments.paper_maps import draw_maps
from vitascope.report.instruments.paper_robustness import FIGURES as ROBUSTNESS
from vitascope.report.instruments.paper_units import (
    draw_cka,
    draw_fourier,
    draw_lesion,
    draw_masking,
    draw_variance,
)
from vitascope.report.records import Found, Source

__all__ = ["FIGURES", "draw", "write_figures"]

FIGURES: dict[str, Callable[[Record], Figure]] = {
    "nonlocality": draw_nonlocality,
    "gates": draw_gates,
    "entropy": draw_entropy,
    "maps": draw_maps,
    "fourier": draw_fourier,
    "variance": draw_variance,
    "cka": draw_cka,
    "masking": draw_masking,
    "lesion": draw_lesion,
}
CURVATURE: dict[str, Callable[[Record], Figure]] = {
    "hessian": draw_hessian,
    "density": draw_density,
    "landscape": draw_landscape,
    "trajectory": draw_trajectory,
}


def draw(record: Record) -> Figure:
    """The figure of one instrument's record."""
    known = FIGURES | ROBUSTNESS | CURVATURE
    if record.kind not in known:
        raise unknown("instrument", record.kind, known)
    with matplotlib.rc_context(STYLE):
        return known[record.kind](record)


def write_figures(
    folder: str | Path, records: Mapping[str, Record], kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write ``folder/figures/<measure>.{png,svg}``, or other ``kinds``: a report's own figures."""
    from vitascope.report import exports

    folder = Path(folder)
    sources = tuple(
        Source(path=folder / f"{name}.json", record=record) for name, record in records.items()
    )
    return exports.write_figures(compose(Found(sources=sources)), folder, kinds) if sources else []
