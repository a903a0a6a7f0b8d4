"""The table of evaluations: how often models are right on labelled images."""

from collections.abc import Sequence
from math import sqrt

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.figures.scale import count
from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, row

__all__ = ["evaluation_table", "standard_error"]


def standard_error(record: Record) -> float:
    """Of the accuracy: sqrt(p (1 - p) / n)."""
    right, images = float(record.values["top1"]), int(record.values["num_images"])
    return sqrt(right * (1 - right) / max(images, 1))


def evaluation_table(
    records: Sequence[Record], names: Sequence[str], styles: Sequence[Style | None]
) -> Table:
    """One line per model; the highest top-1 of several is bold."""
    best = max(float(record.values["top1"]) for record in records)
    rows = []
    for record, name, style in zip(records, names, styles, strict=True):
        values, config = record.values, record.config
        top1 = f"{number(100 * values['top1'], 1)} ± {number(100 * standard_error(record), 1)}"
        cells: list[str | Cell] = [
            Cell(words=top1, bold=len(records) > 1 and values["top1"] == best),
            number(100 * values["top5"], 1) if values.get("top5") is not None else "",
            number(values["nll"], 3),
            number(100 * values["ece"], 1),
            f"{count(values['num_images'])} of {config.get('data')}, {config.get('split')}",
        ]
        rows.append(row(name, cells, style=style))
    return Table(
        name="evaluations",
        title="On labelled images",
        corner="Model",
        columns=("Top-1 (%)", "Top-5 (%)", "NLL", "ECE (%)", "Images"),
        rows=tuple(rows),
    )
