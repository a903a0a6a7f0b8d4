"""Hessian spectra of several runs: how convex and how sharp each loss is (Park & Kim, Fig. 4)."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number
from vitascope.report.instruments.curvature import in_order, shares
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.searches import spectra_table
from vitascope.settings import command_line

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
    rows = record.values["rows"]
    epochs = list(dict.fromkeys(row["epoch"] for row in rows))
    panels = []
    for epoch in epochs:
        series = []
        for row in rows:
            if row["epoch"] == epoch:
                x, y = shares(record.arrays[row["name"]])
                series.append(Series(label=row["run"], x=x, y=y, style=styles.of(row["run"])))
        when = "the last weights" if epoch is None else f"epoch {epoch}"
        panels.append(in_order(f"Eigenvalues, {when}", series))
    last = [row for row in rows if row["epoch"] == epochs[-1]]
    least = min(last, key=lambda row: row["nep"][0] if row["nep"][0] is not None else np.inf)
    most = max(last, key=lambda row: row["nep"][0] if row["nep"][0] is not None else -np.inf)
    answer = (
        f"{least['run']} has the most convex loss ({number(100 * (least['nep'][0] or 0), 1)} % of "
        f"eigenvalues below zero), {most['run']} the least "
        f"({number(100 * (most['nep'][0] or 0), 1)} %)."
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
        how="Left of zero are directions in which the loss curves downwards.",
        panels=tuple(panels),
    )
    return Section(
        kind="spectra",
        label="Study",
        title="Hessian spectra",
        question="How convex and how sharp is each model's loss?",
        answer=answer,
        leads=(
            "“Undecided” in the table: with other mini-batches the difference might be the other "
            "way round. This holds for these runs; another seed may differ.",
        ),
        figures=(figure,),
        tables=(spectra_table(record, styles),),
        terms=_TERMS,
        source=source.path.name,
        agains=(made,),
    )
