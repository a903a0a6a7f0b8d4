"""What an instrument says of itself, and the parts that figures and tables of instruments share.

Nothing here or in the ``figures.py`` of a family needs torch: reports are made without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from vitascope.figure import Figure, Lines, Numbers, Series, Style
from vitascope.formatting import short_names
from vitascope.record import Record
from vitascope.table import Cell, TableRow, row


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """One model's record of an instrument, with the model's name and style in a report."""

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


ON_REQUEST = ("attribution", "readout", "robustness", "curvature")  # families that take longer


@dataclass(frozen=True)
class Instrument:
    """An instrument: where its function is, and how a report shows its records.

    The function NAME is in the file ``measure/FAMILY/NAME.py``; :meth:`load` imports it, and torch.
    """

    name: str
    family: str
    figure: Callable[[Sequence[ModelRecord]], Figure]  # of one or several models
    rows: Callable[[Record], list[TableRow]]  # in the table of all instruments
    sentence: Callable[[Record], str] | None = None  # what a record says, below that table
    streaming: bool = False  # runs in one pass over the images with others
    options: tuple[str, ...] = ()  # arguments that are options of `vitascope evaluate --on`
    passes: int = 0  # forward passes per image, for estimates of time; 0 where they do not count

    @property
    def by_default(self) -> bool:
        """Return whether `vitascope inspect` takes it where --measures names none."""
        return self.family not in ON_REQUEST

    def load(self) -> Callable[..., Any]:
        """Import the function that measures."""
        return getattr(import_module(f"vitascope.measure.{self.family}.{self.name}"), self.name)


def mean_over(along: str, key: str, label: str) -> Callable[[Record], list[TableRow]]:
    """One row: the mean of ``key`` over ``along`` (layers or units), its lowest and highest."""
    return lambda record: [mean_row(record.kind, label, record.values[along], record.values[key])]


def mean_row(name: str, label: str, where: Sequence[str], numbers: Sequence[float]) -> TableRow:
    """The mean of numbers, and where they are lowest and highest."""
    low, high = (
        f"{where[index]}: {numbers[index]:.3g}"
        for index in (int(np.argmin(numbers)), int(np.argmax(numbers)))
    )
    return table_row(name, label, f"{np.mean(numbers):.3g}", low, high)


def table_row(
    name: str, quantity: str, value: str | Cell = "", lowest: str = "", highest: str = ""
) -> TableRow:
    """A row of the table of all instruments."""
    return row(name, [quantity, value, lowest, highest])


MARKS = {  # of a unit's kind: the shape, and its legend
    "attention": ("circle", "● attention"),
    "mlp": ("square", "■ MLP"),
    "convolution": ("triangle", "▲ convolution"),
}

REST = ("diamond", "◆ other units")


def along(
    models: Sequence[ModelRecord],
    names_key: str,
    key: str,
    heads: Callable[[ModelRecord], Sequence[np.ndarray]] | None = None,
    *,
    factor: float = 1.0,
    **panel: Any,
) -> Lines:
    """A line per model through its layers or units, named where all models have the same ones.

    ``key`` names the record's values of them, which are drawn multiplied by ``factor``.
    ``heads`` are the values of the heads of each layer: dots behind the line of one model, bands
    from the least to the most around those of several.
    """
    lists = [tuple(model.values[names_key]) for model in models]
    same = len(set(lists)) == 1
    series = []
    for model, names in zip(models, lists, strict=True):
        ys = [factor * float(value) for value in model.values[key]]
        last = max(len(names) - 1, 1)
        xs = [index if same else 100 * index / last for index in range(len(names))]
        more: dict[str, Any] = {"marks": _marks(model)} if names_key == "units" else {}
        if heads is not None:
            layers = [part[np.isfinite(part)].tolist() for part in heads(model)]
            if len(models) == 1:
                more["each"] = layers
            else:
                more["low"] = [min(layer, default=None) for layer in layers]
                more["high"] = [max(layer, default=None) for layer in layers]
        series.append(model.line(xs, ys, **more))
    noun = "attention layer" if names_key == "layers" else "unit"
    return Lines(
        x_label=noun if same else f"depth (% of the {noun}s)",
        series=tuple(series),
        x_names=layer_names(lists[0]) if same else (),
        marks=True,
        **panel,
    )


def layer_names(names: Sequence[str]) -> tuple[str, ...]:
    """Short names of layers or units; those that are only numbered count from 1.

    >>> layer_names(["blocks.0.attn", "blocks.1.attn"])
    ('1', '2')
    """
    return tuple(f"{int(name) + 1}" if name.isdigit() else name for name in short_names(names))


def _marks(model: ModelRecord) -> list[str] | None:
    """The shape of each unit's mark."""
    kinds = model.values.get("kind")
    return None if kinds is None else [MARKS.get(kind, REST)[0] for kind in kinds]


def marks_legend(models: Sequence[ModelRecord]) -> str:
    """Return the legend of the shapes that are drawn; empty where kinds of units are unknown.

    >>> marks_legend([])
    ''
    """
    kinds = {kind for model in models for kind in model.values.get("kind") or ()}
    parts = [text for kind, (_, text) in MARKS.items() if kind in kinds]
    parts += [REST[1]] if kinds - set(MARKS) else []
    return f"Marks: {', '.join(parts)}." if parts else ""
