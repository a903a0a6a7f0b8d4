"""The results of all instruments as one table for terminal, page and files."""

from collections.abc import Mapping

from vitascope.record import Record
from vitascope.report.instruments.curvature import CURVATURE
from vitascope.report.instruments.heads import HEADS
from vitascope.report.instruments.instrument import Instrument
from vitascope.report.instruments.norms import NORMS
from vitascope.report.instruments.relevance import RELEVANCE
from vitascope.report.instruments.robustness import ROBUSTNESS
from vitascope.report.instruments.units import UNITS
from vitascope.report.tables.table import Table, row

INSTRUMENTS: dict[str, Instrument] = (  # in a page's order
    HEADS | NORMS | RELEVANCE | UNITS | ROBUSTNESS | CURVATURE
)


def summary_table(records: Mapping[str, Record], name: str = "summary", title: str = "") -> Table:
    """One or more lines for each instrument: its value, and where it is lowest and highest.

    >>> values = {"layers": ["a", "b"], "per_layer": [0.5, 0.75]}
    >>> table = summary_table({"gates": Record(kind="gates", values=values)})
    >>> table.inline()[1]
    [['gates', 'share of position, mean over layers', '0.625', 'a: 0.5', 'b: 0.75']]
    """
    shown = ((show, records[kind]) for kind, show in INSTRUMENTS.items() if kind in records)
    rows = [line for show, record in shown for line in show.rows(record)]
    columns = ("What", "Value", "Lowest", "Highest")
    used = 1 + max((i for line in rows for i, c in enumerate(line.cells) if c.words), default=1)
    return Table(
        name=name,
        title=title,
        corner="Measure",
        columns=columns[:used],
        rows=tuple(row(line.label, line.cells[:used]) for line in rows),
        beside="lost",
    )


def left_out(records: Mapping[str, Record]) -> list[str]:
    """Return what was not measured, and why; one line for each reason.

    >>> values = {
    ...     "left_out": {"a.attn": "attends over channels", "b.attn": "attends over channels"}
    ... }
    >>> left_out({"nonlocality": Record(kind="nonlocality", values=values)})
    ['left out of nonlocality: a.attn, b.attn: attends over channels']
    """
    instruments: dict[tuple[str, str], list[str]] = {}
    for name, record in records.items():
        for part in ("left_out", "kept"):
            for unit, why in record.values.get(part, {}).items():
                instruments.setdefault((unit, why), []).append(name)
    units: dict[tuple[str, str], list[str]] = {}
    for (unit, why), names in instruments.items():
        units.setdefault((", ".join(names), why), []).append(unit)
    return [f"left out of {names}: {_some(each)}: {why}" for (names, why), each in units.items()]


def _some(units: list[str], most: int = 3) -> str:
    """All of a few names; of many the first and the last, with their number.

    >>> _some(["a", "b", "c", "d"])
    'a ... d (4 in all)'
    """
    if len(units) <= most:
        return ", ".join(units)
    return f"{units[0]} ... {units[-1]} ({len(units)} in all)"
