"""What a study of a paper's table or figure consists of: trainings, readings, tables, claims.

A study is a function from a scale to a plan. The plan names every number by the training that it
comes from and by what is read off the finished run, so two studies that need the same training
share it, and `paper` and `laptop` fill the same table. Nothing here needs torch.

    rows x columns of Ask(training, reading, key)  --run-->  a list of values a cell, one a seed
    claims: linear contrasts of cells that the paper predicts to be positive
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitascope.figure import Figure
from vitascope.record import Record
from vitascope.studies.grid.training import FINAL, Reading, Training

__all__ = [
    "FINAL",
    "Ask",
    "Claim",
    "Findings",
    "Plan",
    "Reading",
    "Row",
    "Study",
    "Table",
    "Training",
]

Key = str | Callable[..., float | None]  # of the record of a seed; with others, of all of theirs


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One number of a table: where it comes from, and the paper's."""

    training: Training
    reading: Reading = FINAL
    key: Key = "top1"  # of the record's values, or a function of the record
    paper: float | None = None
    factor: float = 100.0  # accuracies are shares of 1 on disk, percent in tables
    others: Sequence[Training] = ()  # a number of several runs (an exponent): the key takes all


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table; None where the paper has no number either."""

    label: str
    paper_label: str | None = None
    cells: Sequence[Ask | None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table to be filled."""

    name: str
    title: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    unit: str = "top-1, %"
    digits: int = 1
    accuracy: bool = True  # percent of the test images: their number adds to the noise
    num_test: int | None = None  # test images behind each accuracy; the run's own when left out
    log: bool = False  # compare logarithms: values that differ by factors


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A contrast of cells that the paper predicts to lie above ``margin``.

    ``cells`` maps (row label, column) of ``table`` to weights: {(convit, 10 %): 1, (vit, 10 %): -1}
    says that ConViT is ahead of ViT at 10 %.
    """

    source: str
    text: str
    table: str
    cells: Mapping[tuple[str, str], float]
    margin: float = 0.0


@dataclass(frozen=True)
class Findings:
    """What the runs gave: records by training and reading, one a seed."""

    records: Mapping[tuple[str, str], Sequence[Record]]

    def of(self, training: Training, reading: Reading = FINAL) -> Sequence[Record]:
        """The records of one training, in the order of the seeds."""
        return self.records[training.key, reading.key]

    def values(self, ask: Ask) -> list[float]:
        """One number a seed; a seed without one is left out."""
        found = []
        runs = [self.of(training, ask.reading) for training in (ask.training, *ask.others)]
        for record, *more in zip(*runs, strict=True):
            key = ask.key
            value = key(record, *more) if callable(key) else record.values.get(key)
            if value is not None:
                found.append(ask.factor * float(value))
        return found


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study at one scale."""

    tables: Sequence[Table]
    claims: Sequence[Claim] = ()
    figures: Callable[[Findings], Sequence[Figure]] | None = None
    also: Sequence[tuple[Training, Reading]] = ()  # what the figures need besides

    def wanted(self) -> dict[str, tuple[Training, dict[str, Reading]]]:
        """Every training by its key, with what is to be read off it."""
        asks = [ask for t in self.tables for row in t.rows for ask in row.cells if ask is not None]
        pairs = [(t, ask.reading) for ask in asks for t in (ask.training, *ask.others)]
        pairs += self.also
        found: dict[str, tuple[Training, dict[str, Reading]]] = {}
        for training, reading in pairs:
            found.setdefault(training.key, (training, {FINAL.key: FINAL}))[1][reading.key] = reading
        return found


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question of a paper, with the tables and figures that answer it."""

    name: str
    title: str
    claim: str  # the paper's, in a line
    covers: tuple[str, ...]  # "ConViT Table 2", ...
    plan: Callable[[Any], Plan]  # of a studies.scale.Scale
    data: Mapping[str, str]  # scale -> what images it needs
