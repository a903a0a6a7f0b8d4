"""Accuracies side by side: who is ahead, by how much, and can we know.

Pure functions on numbers. A cell is one training run: (model, fraction, seed) -> top-1 in percent.

The gain of a model over a reference at one fraction is relative, as in Table 2 of the ConViT paper:
g = 100 (m - r) / r. Its 95 % interval takes two errors together, in percentage points squared,

    var = 2 s^2 / n  +  2 p (1 - p) / N_test,

the spread over seeds and the size of the test set. s^2 is pooled over all models and
fractions, because two or three seeds alone say little about a spread; t has the pooled degrees of
freedom. Both models meet the same test images, so the second term is too large and the verdict
errs towards "within noise". With one seed a run there is no spread to see, and only the test set
speaks: the answer then says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, pairwise
from math import exp, log
from typing import Any, Literal

import numpy as np

from vitascope.studies.noise import half_width, pooled_spread

__all__ = ["Cell", "Entry", "Row", "crossings", "plain_rows", "tabulate"]

Verdict = Literal["reference", "ahead", "behind", "within noise"]


@dataclass(frozen=True)
class Cell:
    """The result of one run."""

    model: str
    fraction: float
    seed: int
    num_images: int
    top1: float  # percent
    values: Mapping[str, Any] = field(default_factory=dict)  # what else is known


@dataclass(frozen=True)
class Entry:
    """One model at one fraction."""

    model: str
    mean: float
    std: float | None  # over seeds; None with one
    num_seeds: int
    gain: float | None  # percent of the reference's top-1; None for the reference
    gain_low: float | None
    gain_high: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Row:
    """All models at one fraction."""

    fraction: float
    num_images: int
    entries: tuple[Entry, ...]

    def entry(self, model: str) -> Entry:
        """The entry of one model."""
        return next(entry for entry in self.entries if entry.model == model)


def tabulate(cells: Sequence[Cell], reference: str, num_test: int) -> tuple[Row, ...]:
    """Means, spreads and gains over ``reference``, one row a fraction, models in their order."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    groups: dict[tuple[float, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.fraction, cell.model), []).append(cell)
    spread = pooled_spread([[cell.top1 for cell in group] for group in groups.values()])
    rows = []
    for fraction in sorted({cell.fraction for cell in cells}):
        present = [model for model in models if (fraction, model) in groups]
        base = groups.get((fraction, reference))
        entries = tuple(
            _entry(model, groups[fraction, model], base, reference, spread, num_test)
            for model in present
        )
        rows.append(Row(fraction, groups[fraction, present[0]][0].num_images, entries))
    return tuple(rows)


def _entry(
    model: str,
    group: Sequence[Cell],
    base: Sequence[Cell] | None,
    reference: str,
    spread: tuple[float, int],
    tests: int,
) -> Entry:
    values = [cell.top1 for cell in group]
    mean = float(np.mean(values))
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if model == reference or not base:
        return Entry(model, mean, std, len(values), None, None, None, "reference")
    other = float(np.mean([cell.top1 for cell in base]))
    half = half_width(mean, other, (len(values), len(base)), spread, tests)
    low, gain, high = (100 * (mean - other + d) / max(other, 1e-9) for d in (-half, 0.0, half))
    verdict: Verdict = "ahead" if low > 0 else "behind" if high < 0 else "within noise"
    return Entry(model, mean, std, len(values), gain, low, high, verdict)


def crossings(cells: Sequence[Cell], num_test: int) -> list[dict[str, Any]]:
    """Where one model's curve passes another's, on a logarithmic axis of images.

    A crossing is certain only if each model is ahead beyond the noise on its side.
    """
    found = []
    models = dict.fromkeys(cell.model for cell in cells)
    for first, second in combinations(models, 2):
        rows = tabulate([c for c in cells if c.model in (first, second)], second, num_test)
        for a, b in pairwise(rows):
            left, right = (row.entry(first).mean - row.entry(second).mean for row in (a, b))
            if left * right >= 0:
                continue
            t = left / (left - right)
            images = exp((1 - t) * log(a.num_images) + t * log(b.num_images))
            fraction = exp((1 - t) * log(a.fraction) + t * log(b.fraction))
            low, high = (first, second) if left > 0 else (second, first)
            certain = all(row.entry(first).verdict != "within noise" for row in (a, b))
            text = f"{low} leads below about {images:,.0f} images, {high} above"
            text += "" if certain else "; the difference is within the noise"
            found.append({"first": low, "second": high, "fraction": fraction, "text": text})
    return found


def plain_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For a record."""
    return [asdict(row) for row in rows]
