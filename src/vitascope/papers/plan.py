"""What a study of a paper's table or figure consists of: trainings, readings, tables, claims.

A study is a function from a scale to a plan. The plan names every number by the training that it
comes from and by what is read off the finished run, so two studies that need the same training
share it, and `paper` and `laptop` fill the same table. Nothing here needs torch.

    rows x columns of Ask(training, reading, key)  --run-->  a list of values per cell, one per seed
    claims: linear contrasts of cells that the paper predicts to be positive

A number may be a statistic of a sample: an accuracy of test images, an eigenvalue of mini-batches.
Then part of its noise is the sample's, and :class:`Sample` says where that is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from vitascope.figure import Figure
from vitascope.record import Record
from vitascope.runs.spec import FINAL, Reading, Training

Cell = tuple[str, str]  # row and column of a table
Contrast = tuple[str, Mapping[Cell, float]]  # a table, and weights of its cells
Key = str | Callable[..., float | None]  # of the record of a seed; with others, of all of theirs


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a number is a statistic of; it determines the noise of a claim.

    images: one number per image, whose mean is the cell; the same images in all runs. (N,)
    batches: what every mini-batch gave. (b, ...)
    points: the pairs of numbers whose rank correlation is the cell. (2, n)
    """

    kind: Literal["images", "batches", "points"]
    of: Callable[..., np.ndarray | None]  # of the record of a seed; None where it was not kept
    statistic: Callable[[np.ndarray], float] = np.mean  # of batches


def _hits(record: Record) -> np.ndarray | None:
    arrays = record.arrays
    if "correct" in arrays:  # all that an earlier record says
        return arrays["correct"].astype(bool)
    return arrays["predicted"] == arrays["label"] if "predicted" in arrays else None


HITS = Sample(kind="images", of=_hits)  # of a run's final line: its predictions


@dataclass(frozen=True, kw_only=True, eq=False)
class Ask:
    """One number of a table: where it comes from, and the paper's. Each is itself alone."""

    training: Training
    reading: Reading = FINAL
    key: Key = "top1"  # of the record's values, or a function of the record
    paper: float | None = None
    factor: float = 100.0  # accuracies are fractions on disk, percent in tables
    others: Sequence[Training] = ()  # a number of several runs (an exponent): the key takes all
    sample: Sample | None = None  # of an accuracy, key "top1": HITS

    @property
    def runs(self) -> tuple[str, ...]:
        """Keys of the trainings behind the number."""
        return tuple(training.key for training in (self.training, *self.others))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table; None where the paper has no number either."""

    label: str
    paper_label: str | None = None
    cells: Sequence[Ask | None]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table to be filled: which number goes into each cell."""

    name: str
    title: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    unit: str = "top-1, %"
    digits: int = 1
    accuracy: bool = True  # percent of test images: they add to the noise also where no Sample is
    num_test: int | None = None  # test images behind each accuracy; the run's own when left out
    log: bool = False  # compare logarithms: values that differ by factors

    @classmethod
    def of_runs(
        cls,
        name: str,
        title: str,
        runs: Mapping[str, Training],
        asked: Mapping[str, Mapping[str, Any]],
        *,
        corner: str = "network",
        **how: Any,
    ) -> "Sheet":
        """A row per run and a column per question; ``asked``: column -> arguments of `Ask`."""
        rows = [
            Row(label=label, cells=[Ask(training=run, **ask) for ask in asked.values()])
            for label, run in runs.items()
        ]
        return cls(name=name, title=title, corner=corner, columns=list(asked), rows=rows, **how)

    @classmethod
    def of_grid(
        cls,
        name: str,
        title: str,
        columns: Sequence[str],
        runs: Mapping[str, Sequence[Training | None]],
        *,
        ask: Mapping[str, Any] | None = None,
        paper: Mapping[str, Sequence[float | None]] | None = None,
        called: Mapping[str, str] | None = None,
        **how: Any,
    ) -> "Sheet":
        """A run per cell, all asked alike.

        Args:
            name: Of the table.
            title: Of the table.
            columns: Their names.
            runs: Label of a row -> the run of each column; None leaves a cell empty.
            ask: Arguments of every `Ask`.
            paper: Label of a row -> the paper's number for each column.
            called: Label of a row -> its name in the paper.
            how: Other fields of the table.
        """
        rows = []
        for label, trainings in runs.items():
            known = (paper or {}).get(label) or [None] * len(trainings)
            cells = [
                None if run is None else Ask(training=run, paper=number, **(ask or {}))
                for run, number in zip(trainings, known, strict=True)
            ]
            rows.append(Row(label=label, paper_label=(called or {}).get(label), cells=cells))
        return cls(name=name, title=title, columns=columns, rows=rows, **how)

    def above(self, larger: str, smaller: str, column: str = "", other: str = "") -> Contrast:
        """That one row is above another, in a column (the first) or in one each."""
        column = column or self.columns[0]
        return self.name, {(larger, column): 1, (smaller, other or column): -1}

    def further(self, *cells: Cell) -> Contrast:
        """That the first cell is further above the second than the third above the fourth."""
        return self.name, dict(zip(cells, (1, -1, -1, 1), strict=True))

    def sign(self, row: str, column: str, sign: float) -> Contrast:
        """That a number is positive (1) or negative (-1)."""
        return self.name, {(row, column): sign}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A contrast of cells that the paper predicts to lie above ``margin``.

    ``cells`` maps (row label, column) of ``table`` to weights: {(convit, 10 %): 1, (vit, 10 %): -1}
    says that ConViT is ahead of ViT at 10 %. ``paper`` is the contrast in the paper where its cells
    are not in the table; with the paper's numbers beside ours it follows from them.
    """

    source: str
    text: str
    table: str
    cells: Mapping[Cell, float]
    margin: float = 0.0
    paper: float | None = None


def claimed(source: str, claims: Mapping[str, Contrast]) -> list[Claim]:
    """Claims of one source: text -> contrast of cells of a table."""
    return [
        Claim(source=source, text=text, table=table, cells=cells)
        for text, (table, cells) in claims.items()
    ]


@dataclass(frozen=True)
class Findings:
    """What the runs gave: records by training and reading, one per seed.

    A seed that an earlier study tells about may have no record; then its numbers are ``known``, by
    its place among the seeds, as tables have them.
    """

    records: Mapping[tuple[str, str], Sequence[Record | None]]
    known: Mapping[Ask, Mapping[int, float | None]] = field(default_factory=dict)

    def of(self, training: Training, reading: Reading = FINAL) -> list[Record]:
        """The records of one training, in the order of the seeds."""
        return [found for found in self.records[training.key, reading.key] if found is not None]

    def per_seed(self, ask: Ask) -> list[float | None]:
        """One number per seed; None where there is none."""
        known = self.known.get(ask, {})
        return [
            known[place] if place in known else self._number(ask, records)
            for place, records in enumerate(self._together(ask))
        ]

    @staticmethod
    def _number(ask: Ask, records: tuple[Record, ...] | None) -> float | None:
        """The number of one seed."""
        if records is None:
            return None
        value = ask.key(*records) if callable(ask.key) else records[0].values.get(ask.key)
        return None if value is None else ask.factor * float(value)

    def values(self, ask: Ask) -> list[float]:
        """One number per seed; a seed without one is left out."""
        return [value for value in self.per_seed(ask) if value is not None]

    def sample(self, ask: Ask) -> np.ndarray | None:
        """What the number is a statistic of, a row per seed; None if a seed did not keep it."""
        known = ask.sample or (HITS if ask.key == "top1" else None)
        rows = [known.of(*rs) if known and rs else None for rs in self._together(ask)]
        found = [row for row in rows if row is not None]
        whole = len(found) == len(rows) and len({row.shape for row in found}) == 1
        return np.stack(found) if whole else None

    def _together(self, ask: Ask) -> list[tuple[Record, ...] | None]:
        """The records behind a number, seed by seed; None where one is missing."""
        runs = [self.records[key, ask.reading.key] for key in ask.runs]
        found = [tuple(r for r in rs if r is not None) for rs in zip(*runs, strict=True)]
        return [rs if len(rs) == len(runs) else None for rs in found]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study at one scale."""

    tables: Sequence[Sheet]
    claims: Sequence[Claim] = ()
    figures: Callable[[Findings], Sequence[Figure]] | None = None
    also: Sequence[tuple[Training, Reading]] = ()  # what the figures need besides

    def asks(self) -> list[Ask]:
        """Every number of the tables."""
        return [ask for t in self.tables for row in t.rows for ask in row.cells if ask is not None]

    def wanted(self) -> dict[str, tuple[Training, dict[str, Reading]]]:
        """Every training by its key, with what is to be read off it."""
        pairs = [(t, ask.reading) for ask in self.asks() for t in (ask.training, *ask.others)]
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
    seeds: Mapping[str, int] = field(default_factory=dict)  # scale -> how many, if not its own
