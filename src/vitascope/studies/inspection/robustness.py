"""Robustness and calibration of a model: occlusion, FGSM, PGD, noise, corruptions.

A trial names the measures and the options that differ from their defaults. Every measure gets the
same images, in the same order; all randomness comes from the seed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitascope import capture, measure
from vitascope.data import EvalBatches
from vitascope.data.images import ImageSet
from vitascope.data.sources.corrupted import corrupted_sets
from vitascope.errors import UserError, unknown
from vitascope.measure.robustness.corruption import corruption_of_sets
from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS
from vitascope.record import Record

# Measure -> the fields of a trial that it takes.
ROBUSTNESS: dict[str, tuple[str, ...]] = {
    "occlusion": ("sizes", "fill"),
    "fgsm": ("epsilons", "against"),
    "pgd": ("epsilons", "against", "steps", "seed"),
    "frequency": ("frequencies", "window", "rms", "clamp", "seed"),
    "corruption": ("severities", "seed"),
    "calibration": ("num_bins", "seed"),
}
ON = tuple("corruptions" if name == "corruption" else name for name in ROBUSTNESS)  # as --on says


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Which robustness measures, with which options; None is the measure's own default."""

    on: tuple[str, ...]
    sizes: tuple[float, ...] | None = None  # of the hidden centre, shares of the side
    fill: str | None = None  # black or mean
    epsilons: tuple[float, ...] | None = None  # of pixels in [0, 1]
    against: str | None = None  # label or prediction
    steps: int | None = None  # of PGD
    frequencies: tuple[float, ...] | None = None  # in pi
    window: float | None = None  # its width, in pi
    rms: float | None = None  # of the noise, pixels in [0, 1]
    clamp: bool | None = None  # clip the noisy pixels
    severities: tuple[int, ...] | None = None
    corrupted: str | None = None  # folder of a published -C set, read instead of made
    num_bins: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        takers: dict[str, list[str]] = {"corrupted": ["corruption"]}
        for name, fields in ROBUSTNESS.items():
            for field in fields:
                takers.setdefault(field, []).append(name)
        for field, names in takers.items():
            if field != "seed" and getattr(self, field) is not None and not set(names) & {*self.on}:
                words = " or ".join(names).replace("corruption", "corruptions")
                raise UserError(f"--{field.replace('_', '-')} is for {words}: add that to --on")

    def options(self, name: str) -> dict[str, Any]:
        """Arguments of one measure that are not left to its defaults."""
        known = {field: getattr(self, field) for field in ROBUSTNESS[name]}
        return {field: value for field, value in known.items() if value is not None}


def on_names(words: Iterable[str]) -> tuple[str, ...]:
    """Measures from words with commas between them, each once.

    >>> on_names(["fgsm,corruptions", "fgsm"])
    ('fgsm', 'corruption')
    """
    names = [name for word in words for name in word.replace(",", " ").split()]
    for name in names:
        if name not in (*ON, "corruption"):
            raise unknown("measure", name, ON)
    return tuple(dict.fromkeys(name.replace("corruptions", "corruption") for name in names))


class SomeClasses(nn.Module):
    """A model that chooses among some of its classes (ImageNet-A: 200 of 1000)."""

    def __init__(self, model: nn.Module, class_map: Sequence[int] | np.ndarray):
        super().__init__()
        self.model, self.columns = model, [int(column) for column in class_map]

    def forward(self, images: Tensor) -> Tensor:
        """Logits of these classes, in the order of the images' labels."""
        return capture.logits_of(self.model(images))[:, self.columns]


def measure_robustness(
    name: str,
    trial: Trial,
    model: nn.Module,
    batches: Any,
    statistics: tuple[Sequence[float], Sequence[float]],
    on_step: Callable[[str, int], None] = lambda what, ahead: None,
    relabel: Callable[[ImageSet], ImageSet] = lambda images: images,
) -> Record:
    """Run one measure of a trial.

    Args:
        name: One of ``ROBUSTNESS``.
        trial: Its options.
        model: Any classifier.
        batches: Labelled and normalised.
        statistics: Mean and deviation they were normalised with.
        on_step: Called with what is done and how many steps are ahead.
        relabel: Gives published corrupted images the labels of the model.
    """
    begun = perf_counter()
    mean, std = statistics
    if name == "corruption" and trial.corrupted is not None:
        found = _published(trial, model, batches, statistics, on_step, relabel)
    elif name == "calibration":
        found = measure.calibration(model, batches, **trial.options(name), on_step=on_step)
    else:
        run = getattr(measure, name)
        found = run(model, batches, mean=mean, std=std, **trial.options(name), on_step=on_step)
    record: Record = found.to_record()
    asked = {field: value for field, value in asdict(trial).items() if value is not None}
    return replace(record, config=asked, seed=trial.seed, seconds=perf_counter() - begun)


def _published(
    trial: Trial,
    model: nn.Module,
    batches: Any,
    statistics: tuple[Sequence[float], Sequence[float]],
    on_step: Callable[[str, int], None],
    relabel: Callable[[ImageSet], ImageSet],
) -> Any:
    """Corrupted images as they were published; the clean ones are those of the trial."""
    images = next(iter(batches)).images
    if images.shape[1] != 3:
        raise UserError(f"{trial.corrupted} has colour images; the model takes grey ones")
    sets = corrupted_sets(str(trial.corrupted), image_size=images.shape[-1])
    mean, std = (tuple(part) for part in statistics)

    def read(name: str, severity: int) -> Any:
        images = relabel(sets.images(name, severity))
        return EvalBatches(images, batch_size=batches.batch_size, mean=mean, std=std)

    known = trial.options("corruption")
    known.pop("seed", None)
    names = [name for name in CORRUPTIONS if name in sets.names]
    if not names:
        raise UserError(
            f"{trial.corrupted} has none of the 15 corruptions: {', '.join(sets.names)}"
        )
    return corruption_of_sets(
        model, read, clean=batches, corruptions=names, on_step=on_step, **known
    )
