"""How a report shows an instrument: its figure, and its lines in the table of all instruments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitascope.figure import Figure, Numbers, Series, Style
from vitascope.record import Record
from vitascope.report.tables.table import Cell, TableRow, row


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One model's record of an instrument."""

    label: str
    style: Style
    record: Record

    @property
    def values(self) -> Mapping[str, Any]:
        """The record's values."""
        return self.record.values

    def line(self, x: Numbers, y: Numbers, **more: Any) -> Series:
        """A line of this model, with its name and style."""
        return Series(label=self.label, x=x, y=y, style=self.style, **more)


@dataclass(frozen=True)
class Instrument:
    """The figure of one or several models, and the table rows of one record."""

    draw: Callable[[Sequence[Seen]], Figure]
    rows: Callable[[Record], list[TableRow]]


def mean_over(places: str, key: str, label: str) -> Callable[[Record], list[TableRow]]:
    """One row: the mean of ``key`` over ``places`` (layers or units), its lowest and highest."""
    return lambda record: [mean_row(record.kind, label, record.values[places], record.values[key])]


def mean_row(name: str, label: str, where: Sequence[str], numbers: Sequence[float]) -> TableRow:
    """The mean of numbers, and where they are lowest and highest."""
    low, high = (
        f"{where[index]}: {numbers[index]:.3g}"
        for index in (int(np.argmin(numbers)), int(np.argmax(numbers)))
    )
    return table_row(name, label, f"{np.mean(numbers):.3g}", low, high)


def table_row(
    name: str, what: str, value: str | Cell = "", lowest: str = "", highest: str = ""
) -> TableRow:
    """A row of the table of all instruments."""
    return row(name, [what, value, lowest, highest])
