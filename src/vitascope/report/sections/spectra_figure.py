"""Hessian spectra of several runs as a table and a figure (Fig. 4 of Park & Kim 2022)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from vitascope.record import Record, atomic_write
from vitascope.report.figures.comparison_paper import STYLE
from vitascope.report.instruments.paper_curvature import draw_hessians

__all__ = ["HEAD", "draw", "rows", "write_figures"]

HEAD = ("run", "epoch", "NEP, % below 0", "", "APE, mean above 0", "", "NLL + l2")


def _number(pair: Sequence[Any], scale: float = 1.0) -> str:
    """A mean with its standard error.

    >>> _number([0.25, 0.0125], 100), _number([None, None])
    ('25 ± 1.2', 'none')
    """
    if pair[0] is None:
        return "none"
    error = "" if pair[1] is None else f" ± {scale * pair[1]:.2g}"
    return f"{scale * pair[0]:.3g}{error}"


def rows(record: Record) -> list[list[str]]:
    """A line a run and epoch, the verdicts beside the numbers."""
    return [
        [row["run"], "last" if row["epoch"] is None else str(row["epoch"]),
         _number(row["nep"], 100), row["nep_verdict"], _number(row["ape"]), row["ape_verdict"],
         _number(row["loss"])]
        for row in record.values["rows"]
    ]  # fmt: skip


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
