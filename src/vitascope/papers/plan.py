"""A study as data: which numbers it needs, the tables they fill, and the claims about them.

A study is a function from a scale to a :class:`Plan`:

    Measurement   one number of a finished run, with its unit: top-1, a gate, an eigenvalue
    CellSpec      a measurement of one training, and the paper's number  -> one value per seed
    TableSpec     cells by row and column
    Claim         a line that the paper predicts to be true: "top1: convit > vit at 10 %"

Each table is a pivot of one long list of (training, measurement, seed, value), so two studies that
need the same training share its runs, and `paper` and `laptop` fill the same table. Nothing here
needs torch.

A number may be a statistic of a sample: an accuracy of test images, an eigenvalue of mini-batches.
Then part of its noise is the sample's, and :class:`Sample` says where that is stored.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import product
from string import Formatter
from textwrap import dedent
from typing import Any, Literal

import numpy as np

from vitascope.figure import Figure
from vitascope.papers.statements import Position, name_of_table, weights_and_margin
from vitascope.record import Record
from vitascope.runs.spec import FINAL, Reading, Training

Key = str | Callable[..., float | None]  # a value of a seed's record, or a function of its records
ACCURACIES = ("top-1, %", "top-5, %", "error, %")  # units of shares of the test images


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The sample behind a number, which determines the noise of a claim.

    images: one number per image, whose mean is the cell; the same images in all runs. (N,)
    batches: what every mini-batch gave. (b, ...)
    points: the pairs of numbers whose rank correlation is the cell. (2, n)
    """

    kind: Literal["images", "batches", "points"]
    read: Callable[..., np.ndarray | None]  # from the record of a seed; None where it has none
    statistic: Callable[[np.ndarray], float] = np.mean  # of batches


def per_image(array: str) -> Sample:
    """The sample behind a mean over images, stored as this array of the record."""
    return Sample(kind="images", read=lambda record: record.arrays.get(array))


def _correct(record: Record) -> np.ndarray | None:
    arrays = record.arrays
    if "correct" in arrays:  # all that an earlier record has
        return arrays["correct"].astype(bool)
    return arrays["predicted"] == arrays["label"] if "predicted" in arrays else None


CORRECT = Sample(kind="images", read=_correct)  # of a run's final line: its predictions


@dataclass(frozen=True)
class Measurement:
    """One number of a finished run: where it is read, and how a table writes it.

    >>> Measurement("train_nll", "NLL, nats").factor, TOP1.factor
    (1.0, 100.0)
    """

    key: Key = "top1"
    unit: str = "top-1, %"
    reading: Reading = FINAL
    _: KW_ONLY
    digits: int = 1
    log: bool = False  # compare logarithms: values that differ by factors
    sample: Sample | None = None

    @property
    def factor(self) -> float:
        """Shares are fractions on disk and percent in tables."""
        return 100.0 if self.unit.endswith("%") else 1.0

    @property
    def is_accuracy(self) -> bool:
        """Return whether it is a share of the test images, which adds to its noise."""
        return self.unit in ACCURACIES


TOP1 = Measurement(sample=CORRECT)
TOP5 = Measurement("top5", "top-5, %")
BEST_TOP1 = Measurement("best_top1")  # during training
TRAINING_LOSS = Measurement("train_nll", "NLL, nats", digits=3, log=True)


@dataclass(frozen=True, eq=False)
class CellSpec:
    """One number of a table. Cells are compared by identity."""

    training: Training
    measurement: Measurement = TOP1
    paper: float | None = None  # the published number
    others: Sequence[Training] = ()  # further runs of a number of several (an exponent)
    parts: Sequence["CellSpec"] = ()  # cells whose numbers the measurement's key is a function of

    @property
    def runs(self) -> tuple[str, ...]:
        """Keys of the trainings behind the number."""
        return tuple(training.key for training in (self.training, *self.others))


def _gain(before: float, after: float) -> float:
    return 100 * (after / before - 1)


GAIN = Measurement(_gain, "relative gain, %")  # of two numbers


def gain(before: CellSpec, after: CellSpec, paper: float | None = None) -> CellSpec:
    """Return how much larger the second number is than the first, in percent of the first."""
    return CellSpec(after.training, GAIN, paper, (before.training,), (before, after))


@dataclass(frozen=True)
class TableSpec:
    """A table to be filled: which number goes into which row and column.

    Rows and columns are in the order in which ``cells`` first names them; a cell that is None or
    left out stays empty. All cells have the unit of the first one.
    """

    name: str
    title: str
    cells: Mapping[Position, CellSpec | None]
    _: KW_ONLY
    corner: str = "network"
    paper_rows: Mapping[str, str] = field(default_factory=dict)  # a row's name in the paper
    num_test: int | None = None  # test images behind each accuracy; the run's own when left out

    @classmethod
    def of_runs(
        cls,
        name: str,
        title: str,
        runs: Mapping[str, Training],
        columns: Mapping[str, Measurement],
        **layout: Any,
    ) -> "TableSpec":
        """A row per run and a column per measurement."""
        cells = {(r, c): CellSpec(run, m) for r, run in runs.items() for c, m in columns.items()}
        return cls(name, title, cells, **layout)

    @cached_property
    def rows(self) -> list[str]:
        """Labels of the rows, from top to bottom."""
        return list(dict.fromkeys(row for row, _ in self.cells))

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns, from left to right."""
        return list(dict.fromkeys(column for _, column in self.cells))

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement of the first cell, whose unit all cells have."""
        return next((cell.measurement for cell in self.filled.values()), TOP1)

    @cached_property
    def filled(self) -> dict[Position, CellSpec]:
        """The cells with a number, row by row."""
        pairs = ((r, c) for r in self.rows for c in self.columns)
        return {pair: cell for pair in pairs if (cell := self.cells.get(pair)) is not None}

    def row(self, label: str) -> list[CellSpec | None]:
        """The cells of a row, column by column."""
        return [self.cells.get((label, column)) for column in self.columns]


@dataclass(frozen=True)
class Grid:
    """Trainings by row and column; every measurement of them is a table."""

    columns: Sequence[str]
    rows: Mapping[str, Sequence[Training | None]]  # None leaves a cell empty
    _: KW_ONLY
    corner: str = "network"
    paper_rows: Mapping[str, str] = field(default_factory=dict)  # a row's name in the paper

    def table(
        self,
        name: str,
        title: str,
        measurement: Measurement = TOP1,
        paper: Mapping[str, Sequence[float | None]] | None = None,
        num_test: int | None = None,
    ) -> TableSpec:
        """The table of one measurement; ``paper`` has its published numbers, by row."""
        cells = {
            (row, column): CellSpec(run, measurement, number) if run else None
            for row, runs in self.rows.items()
            for column, run, number in zip(
                self.columns, runs, (paper or {}).get(row) or [None] * len(runs), strict=True
            )
        }
        return TableSpec(
            name, title, cells, corner=self.corner, paper_rows=self.paper_rows, num_test=num_test
        )

    @property
    def runs(self) -> list[Training]:
        """All trainings, row by row."""
        return [run for runs in self.rows.values() for run in runs if run is not None]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's prediction, in words and as a statement about a table (`papers.statements`).

    ``paper`` is the size of the effect in the paper where its numbers are not in the table; with
    the paper's numbers next to ours it follows from them.
    """

    source: str
    text: str
    statement: str
    paper: float | None = None


def read_claims(block: str, **names: Any) -> list[Claim]:
    """Read claims from lines: a source in brackets, each claim in words, below it the statement.

    ``{name}`` stands for what ``names`` has. Where that is a list, there is a claim for each of its
    items, and none if it is empty. A statement may end with ``(paper: 2.7)``, the paper's effect.

        [ConViT Table 1]
        at size {size}, ConViT is ahead of the plain ViT
            top1: {convit} > {vit} at {size}
    """
    source, declared = "", []
    lines = iter(dedent(block).strip().splitlines())
    for line in lines:
        if line.startswith("["):
            source = line.strip("[]")
            continue
        text, statement = line, next(lines, "")
        if not source or not statement.startswith(" "):
            raise ValueError(f"the claim {text!r} needs a [source] above and a statement below it")
        statement, _, paper = statement.strip().partition(" (paper: ")
        for chosen in _choices(source + text + statement, names):
            declared.append(
                Claim(
                    source=source.format(**chosen),
                    text=text.format(**chosen),
                    statement=statement.format(**chosen),
                    paper=float(paper.strip(")")) if paper else None,
                )
            )
    return declared


def _choices(template: str, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The names with one item in place of each list that the template uses."""
    used = {re.split(r"[.\[]", part)[0] for _, part, _, _ in Formatter().parse(template) if part}
    lists = {name: names[name] for name in names if name in used and isinstance(names[name], list)}
    for items in product(*lists.values()):
        yield {**names, **dict(zip(lists, items, strict=True))}


@dataclass(frozen=True)
class Contrast:
    """A claim as arithmetic: a weighted sum of cells of a table that should exceed a margin."""

    table: TableSpec
    cells: Mapping[Position, float]
    margin: float = 0.0


@dataclass(frozen=True)
class Results:
    """Records of the runs by training and measurement, one per seed.

    A seed that only an earlier study has may have no record; then its numbers are ``earlier``, by
    cell and index of the seed.
    """

    records: Mapping[tuple[str, str], Sequence[Record | None]]
    earlier: Mapping[CellSpec, Mapping[int, float | None]] = field(default_factory=dict)

    def of(self, training: Training, reading: Reading = FINAL) -> list[Record]:
        """The records of one training, in the order of the seeds."""
        return [r for r in self.records[training.key, reading.key] if r is not None]

    def per_seed(self, cell: CellSpec) -> list[float | None]:
        """One number per seed; None where there is none."""
        if cell.parts:
            numbers = zip(*(self.per_seed(part) for part in cell.parts), strict=True)
            key: Any = cell.measurement.key
            return [None if None in each else key(*each) for each in numbers]
        earlier = self.earlier.get(cell, {})
        return [
            earlier[index] if index in earlier else _number(cell, records)
            for index, records in enumerate(self._together(cell))
        ]

    def values(self, cell: CellSpec | None) -> list[float]:
        """One number per seed; a seed without one is left out."""
        return [] if cell is None else [v for v in self.per_seed(cell) if v is not None]

    def sample(self, cell: CellSpec) -> np.ndarray | None:
        """Return the sample behind a number, one row per seed; None if a seed lacks it."""
        sample = cell.measurement.sample
        if sample is None:
            return None
        rows = [sample.read(*records) if records else None for records in self._together(cell)]
        present = [row for row in rows if row is not None]
        whole = len(present) == len(rows) and len({row.shape for row in present}) == 1
        return np.stack(present) if whole else None

    def _together(self, cell: CellSpec) -> Iterator[tuple[Record, ...] | None]:
        """The records behind a number, seed by seed; None where one is missing."""
        runs = [self.records[key, cell.measurement.reading.key] for key in cell.runs]
        for records in zip(*runs, strict=True):
            present = tuple(record for record in records if record is not None)
            yield present if len(present) == len(runs) else None


def _number(cell: CellSpec, records: tuple[Record, ...] | None) -> float | None:
    """The number of one seed."""
    if records is None:
        return None
    key = cell.measurement.key
    value = key(*records) if callable(key) else records[0].values.get(key)
    return None if value is None else cell.measurement.factor * float(value)


Drawing = Callable[[Results], Figure]


def drawing(figure: Callable[..., Figure], *args: Any, **options: Any) -> Drawing:
    """A figure to be drawn of results: ``figure(results, *args, **options)``."""
    return lambda results: figure(results, *args, **options)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study at one scale.

    Raises:
        ValueError: If a claim names a table or a cell that is not there.
    """

    tables: Sequence[TableSpec]
    claims: Sequence[Claim] = ()
    figures: Sequence[Drawing] = ()
    for_figures: Sequence[tuple[Training, Reading]] = ()  # what the figures need besides the tables

    def __post_init__(self) -> None:
        """Read all claims, so that a mistake shows before anything is trained."""
        for claim in self.claims:
            self.contrast(claim)

    def contrast(self, claim: Claim) -> Contrast:
        """The cells that a claim compares."""
        name = name_of_table(claim.statement)
        table = next((table for table in self.tables if table.name == name), None)
        if table is None:
            names = [table.name for table in self.tables]
            raise ValueError(f"{claim.statement!r}: no table {name!r}; there are {names}")
        return Contrast(
            table, *weights_and_margin(claim.statement, table.rows, table.columns, table.filled)
        )

    def cells(self) -> list[CellSpec]:
        """Every number of the tables."""
        return [cell for table in self.tables for cell in table.filled.values()]

    def wanted(self) -> dict[str, tuple[Training, dict[str, Reading]]]:
        """Every training by its key, with what is to be read off it."""
        pairs = [(t, c.measurement.reading) for c in self.cells() for t in (c.training, *c.others)]
        wanted: dict[str, tuple[Training, dict[str, Reading]]] = {}
        for training, reading in (*pairs, *self.for_figures):
            _, readings = wanted.setdefault(training.key, (training, {FINAL.key: FINAL}))
            readings[reading.key] = reading
        return wanted


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question of a paper, with the tables and figures that answer it."""

    name: str
    title: str
    claim: str  # the paper's, in a line
    covers: tuple[str, ...]  # "ConViT Table 2", ...
    plan: Callable[[Any], Plan]  # of a papers.scale.Scale
    data: Mapping[str, str]  # scale -> what images it needs
    seeds: Mapping[str, int] = field(default_factory=dict)  # scale -> how many, if not its own


def study(
    title: str,
    *,
    claim: str,
    covers: tuple[str, ...],
    data: Mapping[str, str],
    seeds: Mapping[str, int] | None = None,
) -> Callable[[Callable[[Any], Plan]], Study]:
    """Declare the function below as the plan of a study, which has its name (with hyphens)."""

    def declared(plan: Callable[[Any], Plan]) -> Study:
        return Study(
            name=plan.__name__.replace("_", "-"),
            title=title,
            claim=claim,
            covers=covers,
            plan=plan,
            data=data,
            seeds=seeds or {},
        )

    return declared
