"""Hessian spectra in studies: how they are taken, their tables, their figure, their power law.

Park and Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 4 and appendix C: of each mini-batch of 16
augmented images the five eigenvalues of largest magnitude. NEP is the share of the negative ones,
APE the mean of the positive ones.

A spectrum is early at the kept epoch nearest to a tenth of the training (the paper: "in an early
phase"). APE is compared by its logarithm.
"""

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.papers.figures import lines
from vitascope.papers.plan import Findings, Reading, Sample, Sheet, Training
from vitascope.papers.scale import Scale
from vitascope.record import Record

EARLY, LATE = 0.1, 1.0  # shares of the training


def _batches(record: Record) -> np.ndarray | None:
    return record.arrays.get("eigenvalues")


def _nep(eigenvalues: np.ndarray) -> float:
    from vitascope.measure.curvature.spectrum import negative_share  # needs torch

    return negative_share(eigenvalues)


def _ape(eigenvalues: np.ndarray) -> float:
    from vitascope.measure.curvature.spectrum import positive_mean  # needs torch

    return positive_mean(eigenvalues)


SPECTRA = {
    "nep": Sample(kind="batches", of=_batches, statistic=_nep),
    "ape": Sample(kind="batches", of=_batches, statistic=_ape),
}


def spectrum(scale: Scale, at: float = EARLY, *, half: bool = False) -> Reading:
    """Five eigenvalues of each mini-batch of 16 images.

    ``half`` of a scale's mini-batches are enough for some; at a desk all have the same few.
    """
    fewer = half and scale.name != "desk"
    batches = max(1, scale.batches // 2) if fewer else scale.batches
    rough = {"batch_size": 4, "num_eigenvalues": 6, "tolerance": 0.1}
    quick = scale.pick(paper={}, laptop={}, smoke=rough)
    return Reading(name="hessian", options={"num_batches": batches, "at": at, **quick})


def eigenvalues(
    runs: Mapping[str, Training], readings: Mapping[str, Reading], where: str, prefix: str = ""
) -> list[Sheet]:
    """NEP and APE, a row per network and a column per reading."""

    def table(name: str, title: str, factor: float, **how: Any) -> Sheet:
        asked = {"key": name, "factor": factor, "sample": SPECTRA[name]}
        columns = {column: {"reading": reading, **asked} for column, reading in readings.items()}
        title = f"{title} ({where})"
        return Sheet.of_runs(prefix + name, title, runs, columns, accuracy=False, **how)

    return [
        table("nep", "Negative eigenvalues", 100.0, unit="NEP, %"),
        table("ape", "Mean positive eigenvalue", 1.0, unit="APE", digits=2, log=True),
    ]


def slope_weights(steps: list[float]) -> list[float]:
    """Weights whose sum with log y is the slope of log y against log x.

    >>> [round(w, 3) for w in slope_weights([1.0, 10.0])]
    [-0.434, 0.434]
    """
    x = np.log(steps) - np.log(steps).mean()
    return (x / (x @ x)).tolist()


def exponent(steps: list[float]) -> Any:
    """The exponent of APE in a power law of ``steps``, fitted to the records of one seed."""

    def key(*records: Record) -> float | None:
        found = [record.values["ape"] for record in records]
        if any(ape is None or ape <= 0 for ape in found):
            return None
        return sum(w * log(ape) for w, ape in zip(slope_weights(steps), found, strict=True))

    return key


def spectra_figure(
    findings: Findings,
    runs: Mapping[str, Training],
    reading: Reading | Mapping[str, Reading],
    title: str,
    name: str = "spectra",
) -> Figure:
    """Shares of eigenvalues beyond a magnitude, the negative and the positive side apart.

    A line starts at the share of its side (negative: the NEP) and reaches as far as its largest
    eigenvalue; seeds are pooled. No bins: the paper's histograms are the slopes of these lines.
    """
    times = {"": reading} if isinstance(reading, Reading) else reading
    found = {
        f"{label}, {when}" if when else label: np.concatenate(
            [record.arrays["eigenvalues"].ravel() for record in findings.of(training, one)]
        )
        for when, one in times.items()
        for label, training in runs.items()
    }
    panels, told = [], []
    for side, sign in (("negative", -1.0), ("positive", 1.0)):
        series = []
        for label, values in found.items():
            x, y = beyond(sign * values)
            series.append(Series(label=label, model=label, x=x, y=y))
        panels.append(
            lines(
                f"{side} eigenvalues",
                series,
                x="magnitude, at least",
                y="share of all eigenvalues, %",
                x_log=True,
            )
        )
    for label, values in found.items():
        told.append(f"{label} {100 * (values < 0).mean():.0f} %")
    said = f"Below zero: {', '.join(told)}; a line further right is a sharper loss."
    return Figure(name=name, title=title, reading=said, panels=tuple(panels))


def beyond(values: np.ndarray, points: int = 60) -> tuple[list[float], list[float]]:
    """Magnitudes and the share of all values, in percent, that are positive and at least as large.

    >>> beyond(np.array([1.0, 2.0, -3.0, 4.0]), points=2)
    ([1.0, 4.0], [75.0, 25.0])
    """
    positive = np.sort(values[values > 0])
    if not positive.size:
        return [], []
    rank = np.unique(np.linspace(0, len(positive) - 1, min(points, len(positive))).round())
    at = rank.astype(int)
    return positive[at].tolist(), (100 * (len(positive) - at) / values.size).tolist()
