"""Tables and figures that several studies have: accuracy, robustness, loss, spectra, noise.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. A table has a row per network.

Corruptions (section 2 and Fig. 12): the paper reads CIFAR-100-C and ImageNet-C as published; here
the corruptions are made from the test images.

Hessian spectra (Fig. 4 and appendix C): of each mini-batch of 16 augmented images the five
eigenvalues of largest magnitude. NEP is the share of the negative ones, APE the mean of the
positive ones, compared by its logarithm. A spectrum is early at the kept epoch nearest to a tenth
of the training (the paper: "in an early phase").

Noise of one frequency (Fig. 2b and appendix B): the accuracy that it costs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import (
    TOP1,
    TRAINING_LOSS,
    Grid,
    Measurement,
    Reading,
    Results,
    Sample,
    TableSpec,
    Training,
    per_image,
)
from vitascope.papers.scale import Scale
from vitascope.record import Record

Runs = Mapping[str, Training]
EARLY, LATE = 0.1, 1.0  # shares of the training
UPDATES = Measurement(
    "images_per_second",
    "images a second",
    Reading(name="throughput", options={"mode": "training", "batch_size": 96}),
    digits=0,
    log=True,
)


def accuracy(runs: Runs, title: str, name: str = "top1", corner: str = "network") -> TableSpec:
    """Top-1 on the test images."""
    return TableSpec.of_runs(name, title, runs, {"top-1": TOP1}, corner=corner)


def published_corruptions(data: str) -> Reading | None:
    """CIFAR-10-C, CIFAR-100-C or ImageNet-C in the folder next to the images; None if not there."""
    kind, _, path = data.partition(":")
    names = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C", "imagenet": "ImageNet-C"}
    if kind not in names or not path:
        return None
    places = (Path(path).parent / name for name in (names[kind], names[kind].lower()))
    there = next((place for place in places if place.is_dir()), None)
    if there is None:
        return None
    return Reading(name="published-corruptions", options={"folder": str(there)})


def corrupted(scale: Scale, runs: Runs, where: str, name: str = "top1") -> TableSpec:
    """Top-1 on clean images, and its mean over 15 corruptions and their severities.

    At the paper's scale the published sets are read where they lie next to the images.
    """
    reading = published_corruptions(scale.data) if scale.is_paper else None
    mean = Measurement(
        "mean",
        reading=reading or scale.reading("corruption"),
        sample=per_image("images/share"),
    )
    columns = {"clean": TOP1, "corrupted": mean}
    return TableSpec.of_runs(name, f"Accuracy and robustness ({where})", runs, columns)


def training_loss(runs: Runs, title: str, name: str = "nll") -> TableSpec:
    """The loss on the training images in the last epoch."""
    return TableSpec.of_runs(name, title, runs, {"NLL": TRAINING_LOSS})


def training_throughput(runs: Runs, published: Mapping[str, float], where: str) -> TableSpec:
    """Images a second of updates, batches of 96; the paper's by its names of the networks."""
    names = dict(zip(runs, published, strict=True))
    return Grid(["updates"], {label: [run] for label, run in runs.items()}, paper_rows=names).table(
        "throughput",
        f"Training throughput ({where}; the paper's on an RTX 2080 Ti or a T4)",
        UPDATES,
        {label: [published[name]] for label, name in names.items()},
    )


def spectrum(scale: Scale, at: float = EARLY, *, half: bool = False) -> Reading:
    """Five eigenvalues of each mini-batch of 16 images.

    ``half`` of a scale's mini-batches are enough for some; at a desk all have the same few.
    """
    fewer = half and scale.name != "desk"
    batches = max(1, scale.batches // 2) if fewer else scale.batches
    rough = {"batch_size": 4, "num_eigenvalues": 6, "tolerance": 0.1}
    quick = scale.pick(paper={}, smoke=rough)
    return Reading(name="hessian", options={"num_batches": batches, "at": at, **quick})


def _nep(eigenvalues: np.ndarray) -> float:
    from vitascope.measure.curvature.spectrum import negative_share  # needs torch

    return negative_share(eigenvalues)


def _ape(eigenvalues: np.ndarray) -> float:
    from vitascope.measure.curvature.spectrum import positive_mean  # needs torch

    return positive_mean(eigenvalues)


def _batches(record: Record) -> np.ndarray | None:
    return record.arrays.get("eigenvalues")


NEP = Measurement("nep", "NEP, %", sample=Sample(kind="batches", read=_batches, statistic=_nep))
APE = Measurement(
    "ape", "APE", digits=2, log=True, sample=Sample(kind="batches", read=_batches, statistic=_ape)
)


def eigenvalues(
    runs: Runs, readings: Mapping[str, Reading], where: str, prefix: str = ""
) -> tuple[TableSpec, TableSpec]:
    """NEP and APE, a column per reading."""
    nep, ape = (
        {column: replace(each, reading=reading) for column, reading in readings.items()}
        for each in (NEP, APE)
    )
    return (
        TableSpec.of_runs(f"{prefix}nep", f"Negative eigenvalues ({where})", runs, nep),
        TableSpec.of_runs(f"{prefix}ape", f"Mean positive eigenvalue ({where})", runs, ape),
    )


def slope_weights(steps: list[float]) -> list[float]:
    """Weights whose sum with log y is the slope of log y against log x.

    >>> [round(w, 3) for w in slope_weights([1.0, 10.0])]
    [-0.434, 0.434]
    """
    x = np.log(steps) - np.log(steps).mean()
    return (x / (x @ x)).tolist()


def exponent(steps: list[float]) -> Callable[..., float | None]:
    """The exponent of APE in a power law of ``steps``, fitted to the records of one seed."""

    def key(*records: Record) -> float | None:
        apes = [record.values["ape"] for record in records]
        if any(ape is None or ape <= 0 for ape in apes):
            return None
        return sum(w * log(ape) for w, ape in zip(slope_weights(steps), apes, strict=True))

    return key


def spectra_figure(
    results: Results,
    runs: Runs,
    reading: Reading | Mapping[str, Reading],
    title: str,
    name: str = "spectra",
) -> Figure:
    """Shares of eigenvalues beyond a magnitude, the negative and the positive side apart.

    A line starts at the share of its side (negative: the NEP) and reaches as far as its largest
    eigenvalue; seeds are pooled. No bins: the paper's histograms are the slopes of these lines.
    """
    times = {"": reading} if isinstance(reading, Reading) else reading
    pooled = {
        f"{label}, {when}" if when else label: np.concatenate(
            [record.arrays["eigenvalues"].ravel() for record in results.of(training, one)]
        )
        for when, one in times.items()
        for label, training in runs.items()
    }
    panels = []
    for side, sign in (("negative", -1.0), ("positive", 1.0)):
        series = []
        for label, values in pooled.items():
            x, y = beyond(sign * values)
            series.append(Series(label=label, model=label, x=x, y=y))
        x_label, y_label = "magnitude, at least", "share of all eigenvalues, %"
        panels.append(lines(f"{side} eigenvalues", series, x=x_label, y=y_label, x_log=True))
    shares = [f"{label} {100 * (values < 0).mean():.0f} %" for label, values in pooled.items()]
    text = f"Below zero: {', '.join(shares)}; a line further right is a sharper loss."
    return Figure(name=name, title=title, reading=text, panels=tuple(panels))


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


def lost_images(chosen: Callable[[Record], Sequence[int]]) -> Sample:
    """Accuracy lost on each image, mean over the chosen units or frequencies of a record."""

    def lost(record: Record) -> np.ndarray | None:
        right, changes = record.arrays.get("images/correct"), chosen(record)
        if right is None or not changes:
            return None
        return right[0] - right[[1 + i for i in changes]].mean(0)  # row 0: nothing changed

    return Sample(kind="images", read=lost)


def lost_to_noise(reading: Reading, low: float, high: float) -> Measurement:
    """Accuracy lost to noise of the frequencies between these, in pi."""

    def band(record: Record) -> list[int]:
        return [i for i, f in enumerate(record.values["frequencies"]) if low <= f <= high]

    def key(record: Record) -> float | None:
        left = [record.values["accuracy"][i] for i in band(record)]
        return record.values["clean"] - float(np.mean(left)) if left else None

    return Measurement(key, "lost, %", reading, sample=lost_images(band))


def noise_table(runs: Runs, reading: Reading, where: str) -> TableSpec:
    """Build the table of accuracy lost to noise of low and high frequencies."""
    title = f"Accuracy lost to noise up to 0.4 pi and from 0.6 pi on ({where})"
    bands = {"low": (0.0, 0.4), "high": (0.6, 1.0)}
    columns = {band: lost_to_noise(reading, *ends) for band, ends in bands.items()}
    return TableSpec.of_runs("noise", title, runs, columns)


def noise_figure(results: Results, runs: Runs, reading: Reading, panel: str, where: str) -> Figure:
    """The accuracy lost at every frequency, a line per network."""
    series = []
    for label, training in runs.items():
        records = [record.values for record in results.of(training, reading)]
        at = records[0]["frequencies"]
        drops = [[100 * (v["clean"] - v["accuracy"][i]) for v in records] for i in range(len(at))]
        series.append(over(at, drops, label))
    drawn = lines(panel, series, x="frequency of the noise, pi", y="accuracy lost, %")
    text = "A higher line loses more accuracy."
    title = f"Noise of one frequency ({where})"
    return Figure(name="noise", title=title, reading=text, panels=(drawn,))
