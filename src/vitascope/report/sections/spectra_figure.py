"""Hessian spectra of several runs as a figure (Fig. 4 of Park & Kim 2022)."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vitascope.record import Record, atomic_write
from vitascope.report.figures.comparison_paper import STYLE
from vitascope.report.instruments.paper_curvature import draw_hessians

__all__ = ["draw", "write_figures"]


def draw(record: Record, epoch: int | None) -> Figure:
    """All runs at one epoch in one figure."""
    parts = {}
    for row in record.values["rows"]:
        if row["epoch"] == epoch:
            values = {"nep": row["nep"][0], "ape": row["ape"][0]}
            arrays = {"eigenvalues": record.arrays[row["name"]]}
            parts[row["run"]] = Record(kind="hessian", values=values, arrays=arrays)
    with matplotlib.rc_context(STYLE):
        return draw_hessians(parts)


def write_figures(folder: Path, record: Record) -> list[Path]:
    """Write ``folder/figures/spectra[-epoch-N].{png,svg,pdf}``."""
    written = []
    for epoch in dict.fromkeys(row["epoch"] for row in record.values["rows"]):
        figure = draw(record, epoch)
        name = "spectra" if epoch is None else f"spectra-epoch-{epoch}"
        for kind in ("png", "svg", "pdf"):
            path = Path(folder) / "figures" / f"{name}.{kind}"
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            with matplotlib.rc_context(STYLE), atomic_write(path) as stream:
                figure.savefig(stream, format=kind, dpi=200, metadata=dated)
            written.append(path)
    return written
