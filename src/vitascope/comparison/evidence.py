"""Accuracies per model and fraction, with confidence intervals of the leads and a verdict.

Pure functions of the predictions that the runs of a comparison made on one set of images. The
difference of a model and a reference at one fraction is paired over the images, which both met, and
crossed with the seeds; its 95 % interval is that of :func:`vitascope.stats.difference`. The
relative gain is the same as a share of the reference's accuracy r, as in Table 2 of the ConViT
paper: g = 100 (m - r) / r.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise
from math import exp, log
from typing import Any, Literal

import numpy as np

from vitascope import stats

LeadVerdict = Literal["reference", "ahead", "behind", "within noise"]


@dataclass(frozen=True)
class RunResult:
    """The result of one run."""

    model: str
    fraction: float
    seed: int
    num_images: int  # it was trained on
    correct: np.ndarray  # (images,) was the image classified right?


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Predictions of all runs on the same images, and the groups of these."""

    name: str  # of the images: "validation", "held-out" or "test"
    runs: tuple[RunResult, ...]
    labels: np.ndarray | None = None  # true classes, where the accuracy is balanced over them
    # of each image, where every one was tested once a seed; (seeds, images) where dealt anew
    folds: np.ndarray | None = None
    groups: np.ndarray | None = None  # a patient or video for each image

    @property
    def num_images(self) -> int:
        """Return the number of images."""
        return len(self.runs[0].correct)

    @property
    def called(self) -> str:
        """The images in words: ``359 test images``, or ``359 test images of 12 groups``."""
        groups = "" if self.groups is None else f" of {len(np.unique(self.groups))} groups"
        return f"{self.num_images:,} {self.name} images{groups}"

    @property
    def kinds(self) -> dict[str, Any]:
        """Labels, groups and metric, as the statistics need them."""
        return {"labels": self.labels, "folds": self.folds, "groups": self.groups}

    @property
    def most(self) -> float:
        """The largest fraction of the images that was trained on."""
        return max(run.fraction for run in self.runs)

    def trained_on(self, fraction: float) -> int:
        """Return how many images a fraction is."""
        return max(run.num_images for run in self.runs if run.fraction == fraction)

    def correct(self, fraction: float) -> Mapping[str, np.ndarray]:
        """Per model at one fraction, which images each run got right. (runs, images)"""
        by_model: dict[str, list[np.ndarray]] = {}
        for run in self.runs:
            if run.fraction == fraction:
                by_model.setdefault(run.model, []).append(run.correct)
        return {model: np.stack(runs) for model, runs in by_model.items()}

    def of(self, *models: str) -> "Evidence":
        """Restrict the evidence to these models."""
        return replace(self, runs=tuple(run for run in self.runs if run.model in models))


@dataclass(frozen=True)
class ModelResult:
    """One model at one fraction; differences from the reference are None for the reference."""

    model: str
    mean: float
    std: float | None  # over seeds; None with one
    num_seeds: int
    low: float | None = None  # of the mean's 95 % interval
    high: float | None = None
    points: float | None = None  # ahead of the reference
    points_low: float | None = None  # of the 95 % interval
    points_high: float | None = None
    gain: float | None = None  # the same in percent of the reference's top-1
    gain_low: float | None = None
    gain_high: float | None = None
    verdict: LeadVerdict = "reference"  # one run each is never ahead or behind: seeds may differ


@dataclass(frozen=True)
class FractionResults:
    """All models at one fraction."""

    fraction: float
    num_images: int
    entries: tuple[ModelResult, ...]

    def entry(self, model: str) -> ModelResult:
        """The entry of one model."""
        return next(entry for entry in self.entries if entry.model == model)

    def plain(self) -> dict[str, Any]:
        """Return the row as plain types, for a record."""
        return asdict(self)


def tabulate(evidence: Evidence, reference: str) -> tuple[FractionResults, ...]:
    """Means, spreads and gains over ``reference``, one row per fraction, models in their order."""
    rows = []
    for fraction in sorted({run.fraction for run in evidence.runs}):
        correct = evidence.correct(fraction)
        base = correct.get(reference)
        entries = tuple(
            _entry(model, runs, None if model == reference else base, evidence)
            for model, runs in correct.items()
        )
        rows.append(FractionResults(fraction, evidence.trained_on(fraction), entries))
    return tuple(rows)


def _entry(
    model: str, runs: np.ndarray, base: np.ndarray | None, evidence: Evidence
) -> ModelResult:
    images = stats.Images(evidence.num_images, **evidence.kinds)
    accuracies = 100 * images.mean(runs)
    level = stats.accuracy(runs, **evidence.kinds)
    own: dict[str, Any] = {
        "model": model,
        "mean": float(accuracies.mean()),
        "std": float(accuracies.std(ddof=1)) if len(runs) > 1 else None,
        "num_seeds": len(runs),
        "low": level.low,
        "high": level.high,
    }
    if base is None:
        return ModelResult(**own)
    estimate = stats.difference(runs, base, **evidence.kinds)
    verdict: LeadVerdict = "within noise"
    if not estimate.one_run and (estimate.low > 0 or estimate.high < 0):
        verdict = "ahead" if estimate.low > 0 else "behind"
    share = 100 / max(100 * float(images.mean(base).mean()), 1e-9)
    return ModelResult(
        **own,
        points=estimate.value,
        points_low=estimate.low,
        points_high=estimate.high,
        gain=share * estimate.value,
        gain_low=share * estimate.low,
        gain_high=share * estimate.high,
        verdict=verdict,
    )


def crossings(evidence: Evidence) -> list[dict[str, Any]]:
    """Find where one model's curve crosses another's, on a logarithmic axis of images.

    A crossing is certain only if each model is ahead beyond the noise on its side.
    """
    crossed = []
    models = dict.fromkeys(run.model for run in evidence.runs)
    for first, second in combinations(models, 2):
        rows = tabulate(evidence.of(first, second), second)
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
            crossed.append({"first": low, "second": high, "fraction": fraction, "text": text})
    return crossed
