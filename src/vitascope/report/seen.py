"""What an instrument saw in several models, ready to be drawn together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitascope.record import Record
from vitascope.report.exhibits import Figure, Lines, Series
from vitascope.report.palette import Look
from vitascope.report.words import short_names

__all__ = ["Instrument", "Seen", "along", "joined"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One model's record of an instrument."""

    label: str
    look: Look
    record: Record

    @property
    def values(self) -> Mapping[str, Any]:
        """The record's values."""
        return self.record.values


Instrument = Callable[[Sequence[Seen]], Figure]


def along(
    models: Sequence[Seen],
    places: str,
    numbers: Callable[[Seen], Sequence[float]],
    spread: Callable[[Seen], Sequence[tuple[float, float]]] | None = None,
    **panel: Any,
) -> Lines:
    """A line a model through its layers or units, named where all models have the same ones."""
    lists = [tuple(seen.values[places]) for seen in models]
    same = len(set(lists)) == 1
    series = []
    for seen, names in zip(models, lists, strict=True):
        ys = [float(value) for value in numbers(seen)]
        last = max(len(names) - 1, 1)
        xs = [place if same else 100 * place / last for place in range(len(names))]
        ends = spread(seen) if spread is not None else None
        low = None if ends is None else [float(end[0]) for end in ends]
        high = None if ends is None else [float(end[1]) for end in ends]
        series.append(Series(label=seen.label, x=xs, y=ys, look=seen.look, low=low, high=high))
    noun = "attention layer" if places == "layers" else "unit"
    short = [f"{int(n) + 1}" if n.isdigit() else n for n in short_names(lists[0])]
    return Lines(
        x_label=noun if same else f"depth (% of the {noun}s)",
        series=tuple(series),
        x_names=tuple(short) if same else (),
        marks=True,
        **panel,
    )


def joined(parts: Sequence[str], most: int = 4) -> str:
    """Parts of a sentence, the first few of them.

    >>> joined(["a is 1", "b is 2"]), joined(list("abcde"), 3)
    ('a is 1; b is 2.', 'a; b; c; and 2 more.')
    """
    said = "; ".join(parts[:most])
    return said + (f"; and {len(parts) - most} more." if len(parts) > most else ".")
