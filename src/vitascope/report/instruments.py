"""Figures for papers from the records of the instruments: PNG and SVG, without torch.

One figure an instrument, in the style of the other figures: text as outlines, the same file from
the same record.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vitascope.errors import unknown
from vitascope.record import Record, atomic_write
from vitascope.report.figures import STYLE
from vitascope.report.instruments_curvature import (
    draw_density,
    draw_hessian,
    draw_landscape,
    draw_trajectory,
)
from vitascope.report.instruments_heads import draw_entropy, draw_gates, draw_nonlocality
from vitascope.report.instruments_maps import draw_maps
from vitascope.report.instruments_units import (
    draw_cka,
    draw_fourier,
    draw_lesion,
    draw_masking,
    draw_variance,
)
from vitascope.report.robustness import FIGURES as ROBUSTNESS

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
    """Write ``folder/figures/<measure>.{png,svg}``, or other ``kinds``, for each record."""
    written = []
    for name, record in records.items():
        figure = draw(record)
        with matplotlib.rc_context(STYLE):
            for kind in kinds:
                path = Path(folder) / "figures" / f"{name}.{kind}"
                with atomic_write(path) as stream:
                    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                    figure.savefig(stream, format=kind, dpi=200, metadata=dated)
                figure.set_layout_engine("none")  # it is laid out now
                written.append(path)
    return written
