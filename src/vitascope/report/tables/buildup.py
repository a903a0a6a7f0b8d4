"""The table of a build-up search: every network that was tried, and what became of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.figures.scale import count
from vitascope.report.formatting import number
from vitascope.report.tables.table import Table, row

__all__ = ["buildup_table", "tried_networks"]


def tried_networks(record: Record) -> Sequence[Mapping[str, Any]]:
    """The networks of the record in the order tried, the base first.

    Raises:
        UserError: For a record of another kind, or of a search that has tried nothing.
    """
    if record.kind != "buildup":
        raise UserError(f"this is a record of {record.kind!r}; give one of 'buildup'")
    rows: Sequence[Mapping[str, Any]] = record.values.get("candidates") or ()
    if not rows:
        raise UserError("the build-up has tried nothing yet; the same command goes on with it")
    return rows


def buildup_table(record: Record) -> Table:
    """All networks, accuracies in percent."""
    rows = []
    for place, network in enumerate(tried_networks(record)):
        new, change, verdict = "", "", "base"
        if place:
            new = f"c{network['stage'] + 1}"
            sign = "+" if network["change"] >= 0 else ""
            change = f"{sign}{number(network['change'], 2)} ± {number(network['noise'], 2)}"
            verdict = "kept" if network["kept"] else "not kept"
        cells = [
            new,
            str(network["num_msa"]),
            _with_spread(network, "top1"),
            change,
            verdict,
            _with_spread(network, "test_top1"),
            count(network["parameters"]),
            count(network["seconds"]),
        ]
        rows.append(row(" ".join(network["kinds"]), cells))
    return Table(
        name="buildup",
        title="All networks in the order tried; change against the last one kept",
        corner="Blocks",
        columns=(
            "New in",
            "MSAs",
            "Validation (%)",
            "Change",
            "Verdict",
            "Test (%)",
            "Parameters",
            "Seconds",
        ),
        rows=tuple(rows),
    )


def _with_spread(network: Mapping[str, Any], name: str) -> str:
    std = network.get(f"{name}_std")
    return number(network[name], 2) + ("" if std is None else f" ± {number(std, 2)}")
