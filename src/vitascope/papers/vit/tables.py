"""Tables that several studies have, a row per network: accuracy, robustness, loss, throughput.

Park and Kim 2022, https://arxiv.org/abs/2202.06709, section 2 and Fig. 12. They read CIFAR-100-C
and ImageNet-C as published; here the corruptions are made from the test images.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.papers.plan import Reading, Sample, Sheet, Training
from vitascope.papers.scale import Scale
from vitascope.record import Record

Runs = Mapping[str, Training]
SPEED = Reading(name="throughput", options={"mode": "training", "batch_size": 96})


def accuracy(runs: Runs, title: str, name: str = "top1", corner: str = "network") -> Sheet:
    """Top-1 on the test images."""
    return Sheet.of_runs(name, title, runs, {"top-1": {}}, corner=corner)


def corrupted(scale: Scale, runs: Runs, where: str, name: str = "top1") -> Sheet:
    """Top-1 on clean images, and its mean over 15 corruptions and their severities."""
    reading = Reading(name="corruption", options=scale.look())
    share = Sample(kind="images", of=lambda record: record.arrays.get("images/share"))
    asked = {"clean": {}, "corrupted": {"reading": reading, "key": "mean", "sample": share}}
    return Sheet.of_runs(name, f"Accuracy and robustness ({where})", runs, asked)


def lost_images(chosen: Callable[[Record], Sequence[int]]) -> Sample:
    """Accuracy lost on each image, mean over the chosen units or frequencies of a record."""

    def lost(record: Record) -> np.ndarray | None:
        right, changes = record.arrays.get("images/correct"), chosen(record)
        if right is None or not changes:
            return None
        return right[0] - right[[1 + i for i in changes]].mean(0)  # row 0: nothing changed

    return Sample(kind="images", of=lost)


def training_loss(runs: Runs, title: str, name: str = "nll") -> Sheet:
    """The loss on the training images in the last epoch."""
    asked = {"NLL": {"key": "train_nll", "factor": 1}}
    how: dict[str, Any] = {"unit": "NLL, nats", "digits": 3, "accuracy": False, "log": True}
    return Sheet.of_runs(name, title, runs, asked, **how)


def training_throughput(runs: Runs, known: Mapping[str, float], where: str) -> Sheet:
    """Images a second of updates, batches of 96; ``known`` is the paper's, by its names."""
    called = dict(zip(runs, known, strict=True))
    return Sheet.of_grid(
        "throughput",
        f"Training throughput ({where}; the paper's on an RTX 2080 Ti or a T4)",
        ["updates"],
        {label: [run] for label, run in runs.items()},
        ask={"reading": SPEED, "key": "images_per_second", "factor": 1},
        paper={label: [known[name]] for label, name in called.items()},
        called=called,
        corner="network",
        unit="images a second",
        digits=0,
        accuracy=False,
        log=True,
    )
