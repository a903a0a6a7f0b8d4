"""What a part of the page is made of: its answer, its figures and tables, and how to get it again.

A builder turns the records of one kind into sections; ``KINDS`` says which reads which.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from vitascope.record import Record
from vitascope.report.exhibits import Figure, Table
from vitascope.report.words import duration

__all__ = ["Again", "Badge", "Claim", "Section", "again", "command_line"]

VERDICTS = {  # word of a verdict: its shape, and the class that colours it
    "agrees": ("✓", "good"),
    "within noise": ("≈", "unsure"),
    "disagrees": ("✗", "bad"),
}


@dataclass(frozen=True, kw_only=True)
class Badge:
    """A word with a shape: never colour alone."""

    words: str
    sign: str = "≈"
    tone: str = "unsure"  # good, unsure or bad


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper, and what became of it."""

    source: str
    text: str
    reading: str
    badge: Badge


@dataclass(frozen=True, kw_only=True)
class Again:
    """How to get it again: a command, and the circumstances of each record."""

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
    leads: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # what, and how much
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()  # words and their definitions
    agains: tuple[Again, ...] = ()
    source: str = ""  # the file the numbers are in
    special: Any = None  # what a template of its own needs
    body: Markup = field(default_factory=Markup)  # rendered by such a template


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


def command_line(words: Sequence[str], options: Iterable[tuple[str, Any]]) -> str:
    """A command; options that are None, False or empty are left out.

    >>> command_line(["vitascope", "train"], [("--model", "a b"), ("--seed", 0), ("--quiet", None)])
    "vitascope train --model 'a b' --seed 0"
    """
    said = [shlex.quote(str(word)) for word in words]
    for name, value in options:
        if value is None or value is False or value == ():
            continue
        many = value if isinstance(value, (tuple, list)) else [value]
        said += [name, *([] if value is True else (shlex.quote(str(item)) for item in many))]
    return " ".join(said)
