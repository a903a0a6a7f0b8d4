"""The table of a study of Hessian spectra: how convex and how sharp each run's loss is."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.tables.table import Table, row


def spectra_table(record: Record, styles: Styles | None = None) -> Table:
    """A line for each run and epoch; beside NEP and APE the verdict against the first run."""
    rows = []
    for found in record.values["rows"]:
        run, epoch = found["run"], found["epoch"]
        cells = [
            "last" if epoch is None else str(epoch),
            _with_error(found["nep"], 100),
            _against(found, "nep", 100),
            _with_error(found["ape"]),
            _against(found, "ape"),
            _with_error(found["loss"]),
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


def _against(found: Mapping[str, Any], what: str, scale: float = 1.0) -> str:
    """More, less or undecided against the first run, with the 95 % interval of the difference.

    >>> _against({"nep_verdict": "more", "nep_low": 0.1, "nep_high": 0.3}, "nep", 100)
    'more [+10, +30]'
    """
    verdict, low, high = (found.get(f"{what}_{name}") for name in ("verdict", "low", "high"))
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
