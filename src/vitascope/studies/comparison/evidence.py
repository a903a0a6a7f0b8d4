"""Accuracies side by side: who is ahead, by how much, and can we know.

Pure functions on the runs of a comparison. The difference of a model and a reference at one
fraction is paired over the test images, which both met, and crossed with the seeds; its 95 %
interval is that of :func:`vitascope.studies.stats.difference`. The relative gain is the same as a
share of the reference's accuracy r, as in Table 2 of the ConViT paper: g = 100 (m - r) / r.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from math import exp, log
from typing import Any, Literal

import numpy as np

from vitascope.studies.stats import difference

__all__ = [
    "FractionResults",
    "ModelResult",
    "RunResult",
    "correct_of",
    "crossings",
    "plain_rows",
    "tabulate",
]

Verdict = Literal["reference", "ahead", "behind", "within noise"]


@dataclass(frozen=True)
class RunResult:
    """The result of one run."""

    model: str
    fraction: float
    seed: int
    num_images: int  # it was trained on
    correct: np.ndarray  # (test images,) was the image classified right?

    @property
    def top1(self) -> float:
        """In percent."""
        return 100 * float(np.mean(self.correct))


@dataclass(frozen=True)
class ModelResult:
    """One model at one fraction; differences from the reference are None for the reference."""

    model: str
    mean: float
    std: float | None  # over seeds; None with one
    num_seeds: int
    points: float | None = None  # ahead of the reference
    points_low: float | None = None  # of the 95 % interval
    points_high: float | None = None
    gain: float | None = None  # the same in percent of the reference's top-1
    gain_low: float | None = None
    gain_high: float | None = None
    verdict: Verdict = "reference"  # with one run each never ahead or behind: seeds may differ


@dataclass(frozen=True)
class FractionResults:
    """All models at one fraction."""

    fraction: float
    num_images: int
    entries: tuple[ModelResult, ...]

    def entry(self, model: str) -> ModelResult:
        """The entry of one model."""
        return next(entry for entry in self.entries if entry.model == model)


def correct_of(cells: Sequence[RunResult], fraction: float) -> Mapping[str, np.ndarray]:
    """Per model at one fraction, which test images each run got right. (seeds, images)"""
    groups: dict[str, list[np.ndarray]] = {}
    for cell in cells:
        if cell.fraction == fraction:
            groups.setdefault(cell.model, []).append(cell.correct)
    return {model: np.stack(runs) for model, runs in groups.items()}


def tabulate(cells: Sequence[RunResult], reference: str) -> tuple[FractionResults, ...]:
    """Means, spreads and gains over ``reference``, one row per fraction, models in their order."""
    rows = []
    for fraction in sorted({cell.fraction for cell in cells}):
        correct = correct_of(cells, fraction)
        images = next(cell.num_images for cell in cells if cell.fraction == fraction)
        base = correct.get(reference)
        entries = tuple(_entry(model, runs, reference, base) for model, runs in correct.items())
        rows.append(FractionResults(fraction, images, entries))
    return tuple(rows)


def _entry(model: str, runs: np.ndarray, reference: str, base: np.ndarray | None) -> ModelResult:
    accuracies = 100 * runs.mean(1)
    own: dict[str, Any] = {
        "model": model,
        "mean": float(accuracies.mean()),
        "std": float(accuracies.std(ddof=1)) if len(runs) > 1 else None,
        "num_seeds": len(runs),
    }
    if model == reference or base is None:
        return ModelResult(**own)
    found = difference(runs, base)
    verdict: Verdict = "within noise"
    if not found.one_run and (found.low > 0 or found.high < 0):
        verdict = "ahead" if found.low > 0 else "behind"
    share = 100 / max(100 * float(base.mean()), 1e-9)
    return ModelResult(
        **own,
        points=found.value,
        points_low=found.low,
        points_high=found.high,
        gain=share * found.value,
        gain_low=share * found.low,
        gain_high=share * found.high,
        verdict=verdict,
    )


def crossings(cells: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Where one model's curve passes another's, on a logarithmic axis of images.

    A crossing is certain only if each model is ahead beyond the noise on its side.
    """
    found = []
    models = dict.fromkeys(cell.model for cell in cells)
    for first, second in combinations(models, 2):
        rows = tabulate([c for c in cells if c.model in (first, second)], second)
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


def plain_rows(rows: Sequence[FractionResults]) -> list[dict[str, Any]]:
    """For a record."""
    return [asdict(row) for row in rows]
