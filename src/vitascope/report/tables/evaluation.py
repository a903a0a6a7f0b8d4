"""The table of evaluations: how often models are right on labelled images."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.reliability import wilson
from vitascope.report.figures.scale import count
from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, row


def share_right(record: Record) -> str:
    """Top-1 in percent with Wilson's 95 % interval, which is not empty at 0 or 100 %."""
    images = np.array(int(record.values["num_images"]))
    low, high = wilson(images * float(record.values["top1"]), images)
    inside = ", ".join(number(100 * float(end), 1) for end in (low, high))
    return f"{number(100 * record.values['top1'], 1)} [{inside}]"


def evaluation_table(
    records: Sequence[Record], names: Sequence[str], styles: Sequence[Style | None]
) -> Table:
    """One line per model; the highest top-1 of several is bold."""
    best = max(float(record.values["top1"]) for record in records)
    rows = []
    for record, name, style in zip(records, names, styles, strict=True):
        values, config = record.values, record.config
        cells: list[str | Cell] = [
            Cell(words=share_right(record), bold=len(records) > 1 and values["top1"] == best),
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
