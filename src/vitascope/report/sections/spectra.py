"""Hessian spectra of several runs: how convex and how sharp each loss is (Park & Kim, Fig. 4)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.formatting import number
from vitascope.measure.curvature.figures import in_order, shares
from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.settings import command_line
from vitascope.table import Table, row

_TERMS = (
    ("NEP", "Share of the largest Hessian eigenvalues that are below zero: how far from convex."),
    ("APE", "Mean of the positive ones: how sharp."),
)


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of the runs."""
    return [(row["run"], "other") for source in sources for row in source.record.values["rows"]]


def section(source: Source, styles: Styles) -> Section:
    """Return one section per study."""
    record = source.record
    rows = record.values["rows"]
    epochs = list(dict.fromkeys(row["epoch"] for row in rows))
    panels = []
    for epoch in epochs:
        series = []
        for each in (each for each in rows if each["epoch"] == epoch):
            x, y = shares(record.arrays[each["name"]])
            series.append(Series(label=each["run"], x=x, y=y, style=styles.of(each["run"])))
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


def spectra_table(record: Record, styles: Styles | None = None) -> Table:
    """A line for each run and epoch; next to NEP and APE the verdict against the first run."""
    rows = []
    for each in record.values["rows"]:
        run, epoch = each["run"], each["epoch"]
        cells = [
            "last" if epoch is None else str(epoch),
            _with_error(each["nep"], 100),
            _against(each, "nep", 100),
            _with_error(each["ape"]),
            _against(each, "ape"),
            _with_error(each["loss"]),
        ]
        rows.append(row(run, cells, style=styles.of(run) if styles else None))
    return Table(
        name="spectra",
        title="Over mini-batches, with standard errors; differences with 95 % intervals",
        corner="Run",
        columns=(
            "Epoch",
            "NEP, % below 0",
            "NEP against the first",
            "APE, mean above 0",
            "APE against the first",
            "NLL + l2",
        ),
        rows=tuple(rows),
    )


def _against(measured: Mapping[str, Any], name: str, scale: float = 1.0) -> str:
    """More, less or undecided against the first run, with the 95 % interval of the difference.

    >>> _against({"nep_verdict": "more", "nep_low": 0.1, "nep_high": 0.3}, "nep", 100)
    'more [+10, +30]'
    """
    verdict, low, high = (measured.get(f"{name}_{part}") for part in ("verdict", "low", "high"))
    if low is None or high is None:
        return str(verdict)
    return f"{verdict} [{scale * low:+.3g}, {scale * high:+.3g}]".replace("-", "−")


def _with_error(pair: Sequence[Any], scale: float = 1.0) -> str:
    """A mean with its standard error.

    >>> _with_error([0.25, 0.0125], 100), _with_error([None, None])
    ('25 ± 1.2', 'none')
    """
    if pair[0] is None:
        return "none"
    error = "" if pair[1] is None else f" ± {scale * pair[1]:.2g}"
    return f"{scale * pair[0]:.3g}{error}"
