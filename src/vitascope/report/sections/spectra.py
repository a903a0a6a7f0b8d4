"""Hessian spectra of several runs: how convex and how sharp each loss is (Park & Kim, Fig. 4)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitascope.figure import Figure, Lines, Series
from vitascope.record import Record
from vitascope.report.figures.figure import Cell, Row, Table
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number
from vitascope.report.instruments.curvature import shares
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.settings import command_line

__all__ = ["HEAD", "models", "rows", "section"]

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
    """One line per run and epoch, the verdicts beside the numbers."""
    return [
        [
            row["run"],
            "last" if row["epoch"] is None else str(row["epoch"]),
            _number(row["nep"], 100),
            row["nep_verdict"],
            _number(row["ape"]),
            row["ape_verdict"],
            _number(row["loss"]),
        ]
        for row in record.values["rows"]
    ]


_TERMS = (
    ("NEP", "Share of the largest Hessian eigenvalues that are below zero: how far from convex."),
    ("APE", "Mean of the positive ones: how sharp."),
)


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of the runs."""
    return [(row["run"], "other") for source in sources for row in source.record.values["rows"]]


def section(source: Source, styles: Styles) -> Section:
    """One section per study."""
    record = source.record
    found = record.values["rows"]
    epochs = list(dict.fromkeys(row["epoch"] for row in found))
    panels = []
    for epoch in epochs:
        series = []
        for row in found:
            if row["epoch"] == epoch:
                x, y = shares(record.arrays[row["name"]])
                series.append(Series(label=row["run"], x=x, y=y, style=styles.of(row["run"])))
        when = "the last weights" if epoch is None else f"epoch {epoch}"
        panels.append(
            Lines(
                title=f"Eigenvalues, {when}",
                x_label="eigenvalue",
                series=tuple(series),
                y_label="share no larger (%)",
                floor=0,
                ceiling=100,
            )
        )
    last = [row for row in found if row["epoch"] == epochs[-1]]
    least = min(last, key=lambda row: row["nep"][0] if row["nep"][0] is not None else np.inf)
    most = max(last, key=lambda row: row["nep"][0] if row["nep"][0] is not None else -np.inf)
    answer = (
        f"{least['run']} has the most convex loss ({number(100 * (least['nep'][0] or 0), 1)} % of "
        f"eigenvalues below zero), {most['run']} the least "
        f"({number(100 * (most['nep'][0] or 0), 1)} %)."
    )
    head, *names = HEAD
    table = Table(
        name="spectra",
        title="Mean over mini-batches with its standard error, against the first run",
        corner=head,
        columns=tuple(name or "against the first" for name in names),
        rows=tuple(
            Row(
                label=row[0],
                cells=tuple(Cell(words=word or "–") for word in row[1:]),
                style=styles.of(row[0]),
            )
            for row in rows(record)
        ),
    )
    runs = record.config.get("runs") or ()
    command = command_line(
        ["vitascope", "study", "spectra", *runs],
        [("--epochs", tuple(e for e in epochs if e is not None))],
    )
    made = again(record, made_by(record, "study") or command)
    figure = Figure(
        name="spectra",
        title="Eigenvalues of the Hessian",
        reading=answer,
        how="A line left of zero is a loss that bends down there.",
        panels=tuple(panels),
    )
    return Section(
        kind="spectra",
        label="Study",
        title="Hessian spectra",
        question="How convex and how sharp is each model's loss?",
        answer=answer,
        leads=("“Within noise” in the table: the mini-batches differ as much as the runs.",),
        figures=(figure,),
        tables=(table,),
        terms=_TERMS,
        source=source.path.name,
        agains=(made,),
    )
