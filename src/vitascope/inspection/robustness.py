"""Robustness and calibration of a model: occlusion, FGSM, PGD, noise, corruptions.

A trial names the measures and the options that differ from their defaults. Every measure gets the
same images, in the same order; all randomness comes from the seed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

# Measure -> its options.
ROBUSTNESS: dict[str, tuple[str, ...]] = {
    "occlusion": ("sizes", "fill"),
    "fgsm": ("epsilons", "against"),
    "pgd": ("epsilons", "against", "steps"),
    "frequency": ("frequencies", "window", "rms", "clamp"),
    "corruption": ("severities", "corrupted"),
    "calibration": ("num_bins",),
}
SEEDED = ("pgd", "frequency", "corruption", "calibration")  # measures with randomness
ON = tuple("corruptions" if name == "corruption" else name for name in ROBUSTNESS)  # as --on says


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Which robustness measures, with which options of `vitascope evaluate`."""

    on: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)  # option -> value
    seed: int = 0

    def __post_init__(self) -> None:
        for option in self.given:
            names = [name for name, options in ROBUSTNESS.items() if option in options]
            if not set(names) & {*self.on}:
                measures = " or ".join(names).replace("corruption", "corruptions")
                raise UserError(f"--{option.replace('_', '-')} is for {measures}: add that to --on")

    def options(self, name: str) -> dict[str, Any]:
        """Arguments of one measure that are not left to its defaults."""
        seed = {"seed": self.seed} if name in SEEDED else {}
        return {key: self.given[key] for key in ROBUSTNESS[name] if key in self.given} | seed


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
    if name == "corruption" and "corrupted" in trial.given:
        results = _published(trial, model, batches, statistics, on_step, relabel)
    elif name == "calibration":
        results = measure.calibration(model, batches, **trial.options(name), on_step=on_step)
    else:
        run = getattr(measure, name)
        results = run(model, batches, mean=mean, std=std, **trial.options(name), on_step=on_step)
    record: Record = results.to_record()
    asked = {"on": trial.on, **trial.given, "seed": trial.seed}
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
    options = trial.options("corruption")
    options.pop("seed")
    folder = options.pop("corrupted")
    if images.shape[1] != 3:
        raise UserError(f"{folder} has colour images; the model takes grey ones")
    sets = corrupted_sets(folder, image_size=images.shape[-1])
    mean, std = (tuple(part) for part in statistics)

    def read(name: str, severity: int) -> Any:
        images = relabel(sets.images(name, severity))
        return EvalBatches(images, batch_size=batches.batch_size, mean=mean, std=std)

    names = [name for name in CORRUPTIONS if name in sets.names]
    if not names:
        raise UserError(f"{folder} has none of the 15 corruptions: {', '.join(sets.names)}")
    return corruption_of_sets(
        model, read, clean=batches, corruptions=names, on_step=on_step, **options
    )
