"""From accuracies to an answer: who is ahead, by how much, and can we know.

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
from math import exp, log, sqrt
from typing import Any, Literal

import numpy as np
from scipy import stats

__all__ = ["Cell", "Entry", "Recommendation", "Row", "crossings", "recommend", "tabulate"]

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


@dataclass(frozen=True)
class Recommendation:
    """The answer in words, and what it rests on."""

    model: str
    headline: str
    sentences: tuple[str, ...]
    evidence: tuple[str, ...]
    confidence: Literal["clear", "within noise"]


def pooled_spread(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Variance within groups, and its degrees of freedom.

    >>> pooled_spread([[1.0, 3.0], [10.0, 12.0]])
    (2.0, 2)
    """
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return (squares / freedom if freedom else 0.0), freedom


def half_width(
    mean: float, reference: float, counts: tuple[int, int], spread: tuple[float, int], tests: int
) -> float:
    """Half of the 95 % interval of ``mean - reference``, in points."""
    variance, freedom = spread
    share = min(max((mean + reference) / 200, 1 / (2 * tests)), 1 - 1 / (2 * tests))
    sampling = 2 * share * (1 - share) / tests * 1e4
    total = variance / counts[0] + variance / counts[1] + sampling
    quantile = stats.t.ppf(0.975, freedom) if freedom else stats.norm.ppf(0.975)
    return float(quantile) * sqrt(total)


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


def recommend(
    cells: Sequence[Cell], num_test: int, cost: Mapping[str, float], reference: str
) -> Recommendation:
    """Which model to take for these images: the best on all of them, or the cheapest of equals.

    Args:
        cost: Multiply-adds of each model, to choose among those that cannot be told apart.
    """
    full = max(cell.fraction for cell in cells)
    best = max(
        dict.fromkeys(cell.model for cell in cells),
        key=lambda model: np.mean(
            [c.top1 for c in cells if (c.model, c.fraction) == (model, full)]
        ),
    )
    against = {row.fraction: row for row in tabulate(cells, best, num_test)}
    rivals = [e for e in against[full].entries if e.model != best and e.verdict != "behind"]
    chosen = min([best, *(e.model for e in rivals)], key=lambda model: cost[model])
    images = against[full].num_images
    lead = against[full].entry(best)
    if rivals:
        names = " and ".join(entry.model for entry in rivals)
        headline = f"Take {chosen}: on {images:,} images nothing beats it beyond the noise."
        first = f"{best} has the highest top-1, {lead.mean:.1f} %, but {names} cannot be told apart"
        first += f" from it; of these {chosen} needs the fewest operations."
    else:
        headline = (
            f"Take {chosen}: {lead.mean:.1f} % top-1 on {images:,} images, ahead of the rest."
        )
        first = f"Every other model is behind it by more than the noise at {images:,} images."
    rows = tabulate(cells, reference, num_test)
    evidence = tuple(_says(row, reference) for row in rows)
    sentences = [first, *_trend(rows, reference)]
    if max(entry.num_seeds for row in rows for entry in row.entries) == 1:
        sentences.append("One seed a model: the spread between runs is unknown, add --seeds 0 1 2.")
    confidence: Literal["clear", "within noise"] = "within noise" if rivals else "clear"
    return Recommendation(chosen, headline, tuple(sentences), evidence, confidence)


def _trend(rows: Sequence[Row], reference: str) -> list[str]:
    """How each gain over the reference changes from the most images to the fewest."""
    if len(rows) < 2:
        return []
    said = []
    for entry in rows[-1].entries:
        if entry.model == reference or entry.gain is None:
            continue
        few = rows[0].entry(entry.model)
        if few.gain is None or few.gain_low is None or entry.gain_low is None:
            continue
        apart = few.gain_low > (entry.gain_high or 0) or (few.gain_high or 0) < entry.gain_low
        change = "grows" if few.gain > entry.gain else "shrinks"
        how = f"{change} with fewer images" if apart else "does not change beyond the noise"
        said.append(
            f"The gain of {entry.model} over {reference} {how}: {few.gain:+.1f} % at "
            f"{rows[0].num_images:,} images, {entry.gain:+.1f} % at {rows[-1].num_images:,}."
        )
    return said


def _says(row: Row, reference: str) -> str:
    parts = []
    for entry in row.entries:
        spread = f" ± {entry.std:.1f}" if entry.std is not None else ""
        part = f"{entry.model} {entry.mean:.1f}{spread} %"
        if entry.gain is not None:
            part += f" ({entry.gain:+.1f} % [{entry.gain_low:+.1f}, {entry.gain_high:+.1f}] "
            part += f"against {reference}: {entry.verdict})"
        parts.append(part)
    return f"{row.num_images:,} images: " + "; ".join(parts)


def plain_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For a record."""
    return [asdict(row) for row in rows]
