"""Lines through the layers or units of several models, and sentences that figures share."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Lines
from vitascope.report.formatting import short_names
from vitascope.report.instruments.instrument import Seen

MARKS = {  # of a unit's kind: the shape, and its legend
    "attention": ("circle", "● attention"),
    "mlp": ("square", "■ MLP"),
    "convolution": ("triangle", "▲ convolution"),
}

REST = ("diamond", "◆ other units")


def along(
    models: Sequence[Seen],
    places: str,
    key: str,
    heads: Callable[[Seen], Sequence[np.ndarray]] | None = None,
    *,
    factor: float = 1.0,
    **panel: Any,
) -> Lines:
    """A line per model through its layers or units, named where all models have the same ones.

    ``key`` names the record's values of them, which are drawn multiplied by ``factor``.
    ``heads`` are the values of the heads of each layer: dots behind the line of one model, bands
    from the least to the most around those of several.
    """
    lists = [tuple(seen.values[places]) for seen in models]
    same = len(set(lists)) == 1
    series = []
    for seen, names in zip(models, lists, strict=True):
        ys = [factor * float(value) for value in seen.values[key]]
        last = max(len(names) - 1, 1)
        xs = [index if same else 100 * index / last for index in range(len(names))]
        more: dict[str, Any] = {"marks": _marks(seen)} if places == "units" else {}
        if heads is not None:
            layers = [part[np.isfinite(part)].tolist() for part in heads(seen)]
            if len(models) == 1:
                more["each"] = layers
            else:
                more["low"] = [min(layer, default=None) for layer in layers]
                more["high"] = [max(layer, default=None) for layer in layers]
        series.append(seen.line(xs, ys, **more))
    noun = "attention layer" if places == "layers" else "unit"
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


def _marks(seen: Seen) -> list[str] | None:
    """The shape of each unit's mark."""
    kinds = seen.values.get("kind")
    return None if kinds is None else [MARKS.get(kind, REST)[0] for kind in kinds]


def marks_legend(models: Sequence[Seen]) -> str:
    """Which shape is which kind of unit, of those that are there; empty where kinds are unknown.

    >>> marks_legend([])
    ''
    """
    kinds = {kind for seen in models for kind in seen.values.get("kind") or ()}
    parts = [text for kind, (_, text) in MARKS.items() if kind in kinds]
    parts += [REST[1]] if kinds - set(MARKS) else []
    return f"Marks: {', '.join(parts)}." if parts else ""


def joined(parts: Sequence[str], most: int = 4) -> str:
    """Parts of a sentence, the first few of them.

    >>> joined(["a is 1", "b is 2"]), joined(list("abcde"), 3)
    ('a is 1; b is 2.', 'a; b; c; and 2 more.')
    """
    text = "; ".join(parts[:most])
    return text + (f"; and {len(parts) - most} more." if len(parts) > most else ".")


def sentence(text: str) -> str:
    """Words that begin as a sentence does; a model keeps its name.

    >>> sentence("at first"), sentence("vit_micro looks")
    ('At first', 'vit_micro looks')
    """
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]
