"""What a part of the page is made of: its answer, its figures and tables, and how to reproduce it.

The other modules here make one from each record of their kind, or one from all of them together;
:mod:`vitascope.report.page` lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vitascope.figure import Figure, Style
from vitascope.formatting import duration
from vitascope.record import Record
from vitascope.table import Table

VERDICTS = {  # word of a verdict: its shape, and the class that colours it
    "agrees": ("✓", "good"),
    "disagrees": ("✗", "bad"),
    "undecided": ("?", "unsure"),
    "not testable here": ("○", "unsure"),
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image with a model's prediction."""

    source: str  # data: the image itself; empty where it is not at hand
    coarse: bool  # of so few pixels that each should be seen
    alt: str
    prediction: str
    facts: tuple[str, ...]
    file: str  # its name, and the folder it lies in
    path: str


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Pictures under a title; the table has the same in words."""

    title: str
    how: str
    pictures: tuple[Picture, ...]
    table: Table


@dataclass(frozen=True, kw_only=True)
class Badge:
    """A verdict as a word with a symbol, which does not depend on colour."""

    text: str
    sign: str = "≈"
    tone: str = "unsure"  # good, unsure or bad


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A claim of a paper, and what became of it."""

    source: str
    text: str
    reading: str
    badge: Badge
    p_value: float | None = None  # None if it was not tested
    stored: Mapping[str, Any] = field(default_factory=dict)  # as the record has it


@dataclass(frozen=True, kw_only=True)
class ModelBar:
    """A model's accuracy in percent, with its 95 % interval where it is known."""

    label: str
    style: Style
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""  # a few words about the model


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Details that a reader opens: sentences, and figures, tables and galleries by name."""

    title: str
    names: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Again:
    """Command that reproduces a section, and the circumstances of each record."""

    command: str = ""
    rows: tuple[tuple[str, Any], ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the page."""

    kind: str
    label: str  # what kind of thing it is, for the list of contents
    title: str
    question: str
    answer: str
    badge: Badge | None = None
    leads: tuple[str, ...] = ()  # the evidence, in a line or two
    cautions: tuple[str, ...] = ()  # reasons not to trust the answer
    bars: tuple[ModelBar, ...] = ()
    bars_title: str = ""
    steps: tuple[tuple[str, str], ...] = ()  # what to do next, and the command
    mistakes: Gallery | None = None  # the first of its pictures stand under the answer
    facts: tuple[tuple[str, str], ...] = ()  # what, and how much
    claims: tuple[JudgedClaim, ...] = ()
    figures: tuple[Figure, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    tables: tuple[Table, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()  # words and their definitions
    agains: tuple[Again, ...] = ()
    source: str = ""  # the file the numbers are in
    num_models: int = 1  # drawn together in each figure
    folds: tuple[Fold, ...] = ()
    explored: tuple[str, ...] = ()  # the models that the explorer opens with

    @property
    def unfolded(self) -> tuple[str, ...]:
        """The names of the figures, galleries and tables that are shown at once."""
        tables = (*(gallery.table for gallery in self.galleries), *self.tables)
        folded = {name for fold in self.folds for name in fold.names}
        names = [*(figure.name for figure in self.figures), *(table.name for table in tables)]
        return tuple(name for name in names if name not in folded)


def again(record: Record, command: str = "", **more: Any) -> Again:
    """The circumstances of a record: seed, commit, versions, machine, time, seconds."""
    made = record.made
    rows: list[tuple[str, Any]] = [
        ("seed", more.pop("seed", record.seed)),
        ("commit", made.get("commit") or "unknown"),
        ("versions", made.get("versions") or "unknown"),
        ("machine", made.get("machine") or "unknown"),
        ("time", made.get("time") or "unknown"),
        ("took", more.pop("took", None) or duration(record.seconds)),
    ]
    return Again(command=command, rows=tuple(rows), **more)


def made_by(record: Record, *commands: str) -> str:
    """The line that was typed to make a record, if it was one of these commands; else nothing.

    >>> made_by(Record(kind="run", made={"command": "vitascope train --seed 1"}), "train")
    'vitascope train --seed 1'
    """
    line = str(record.made.get("command") or "")
    return line if line.split(" ")[1:2] in [[command] for command in commands] else ""


def pinned(record: Record) -> list[tuple[str, Any]]:
    """Options that a command needs besides to give a record's numbers again: classes, threads.

    >>> pinned(Record(kind="run", made={"machine": {"threads": 2}}))
    [('--map-classes', ()), ('--threads', 2)]
    """
    machine, mapped = record.made.get("machine"), record.config.get("map_classes")
    pairs = mapped.items() if isinstance(mapped, Mapping) else ()
    threads = machine.get("threads") if isinstance(machine, Mapping) else None
    named = ("--map-classes", tuple(f"{new}={own}" for new, own in pairs))
    return [named, ("--threads", threads)]
