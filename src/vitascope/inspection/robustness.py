"""Robustness and calibration of a model: occlusion, FGSM, PGD, noise, corruptions.

An option that is left out is the measure's own default. Every measure gets the same images, in the
same order; all randomness comes from the seed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from inspect import Parameter, signature
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitascope import capture
from vitascope.data import EvalBatches
from vitascope.data.images import ImageSet
from vitascope.data.sources.corrupted import corrupted_sets
from vitascope.errors import UserError, unknown
from vitascope.inspection.options import EvaluateOptions
from vitascope.measure.registry import INSTRUMENTS, family
from vitascope.measure.robustness.corruption import corruption_of_sets
from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS
from vitascope.record import Record

# Measure -> its options.
ROBUSTNESS = {name: each.options for name, each in family("robustness").items()}


def _parameters(name: str) -> Mapping[str, Parameter]:
    """The arguments of a measure's function."""
    return signature(INSTRUMENTS[name].load()).parameters


def on_names(words: Iterable[str]) -> tuple[str, ...]:
    """Measures from words with commas between them, each once.

    >>> on_names(["fgsm,corruptions", "fgsm"])
    ('fgsm', 'corruption')
    """
    names = [name for word in words for name in word.replace(",", " ").split()]
    names = ["corruption" if name == "corruptions" else name for name in names]
    for name in names:
        if name not in ROBUSTNESS:
            raise unknown("measure", name, ROBUSTNESS)
    return tuple(dict.fromkeys(names))


def given_options(options: EvaluateOptions) -> dict[str, Any]:
    """Return the options of measures that are given, as the measures take them.

    Raises:
        UserError: If one is given without its measure.
    """
    epsilons, corrupted = options.epsilons, options.corrupted
    values = {
        "sizes": options.sizes,
        "fill": options.fill,
        "epsilons": None if epsilons is None else tuple(map(_number, epsilons)),
        "against": options.against,
        "steps": options.steps,
        "frequencies": options.frequencies,
        "window": options.window,
        "rms": options.rms,
        "clamp": options.clamp or None,
        "severities": options.severities,
        "corrupted": None if corrupted is None else str(corrupted),
        "num_bins": options.num_bins,
    }
    given = {name: value for name, value in values.items() if value is not None}
    on = on_names(options.on)
    for option in given:
        names = [name for name in ROBUSTNESS if option in ROBUSTNESS[name]]
        if not set(names) & {*on}:
            option = option.replace("_", "-")
            raise UserError(f"--{option} is for {' or '.join(names)}: add that to --on")
    return given


def _number(text: str) -> float:
    """A number or a fraction.

    >>> _number("0.5"), _number("1/4")
    (0.5, 0.25)
    """
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise UserError(f"--epsilons takes numbers like 8/255 or 0.03, not {text!r}") from None


def _arguments(name: str, options: EvaluateOptions) -> dict[str, Any]:
    """Arguments of one measure that are not left to its defaults."""
    given = given_options(options)
    seed = {"seed": options.seed} if "seed" in _parameters(name) else {}
    return {key: given[key] for key in ROBUSTNESS[name] if key in given} | seed


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
    options: EvaluateOptions,
    model: nn.Module,
    batches: Any,
    statistics: tuple[Sequence[float], Sequence[float]],
    on_step: Callable[[str, int], None] = lambda what, ahead: None,
    relabel: Callable[[ImageSet], ImageSet] = lambda images: images,
) -> Record:
    """Run one robustness measure.

    Args:
        name: One of ``ROBUSTNESS``.
        options: Those of the measure among them are used.
        model: Any classifier.
        batches: Labelled and normalised.
        statistics: Mean and deviation they were normalised with.
        on_step: Called with what is done and how many steps are ahead.
        relabel: Gives published corrupted images the labels of the model.
    """
    begun = perf_counter()
    mean, std = statistics
    arguments = _arguments(name, options)
    if "corrupted" in arguments:
        results = _published(arguments, model, batches, statistics, on_step, relabel)
    else:
        pixels = {"mean": mean, "std": std} if "mean" in _parameters(name) else {}
        run = INSTRUMENTS[name].load()
        results = run(model, batches, **pixels, **arguments, on_step=on_step)
    record: Record = results.to_record()
    asked = {"on": on_names(options.on), **given_options(options), "seed": options.seed}
    return replace(record, config=asked, seed=options.seed, seconds=perf_counter() - begun)


def _published(
    arguments: Mapping[str, Any],
    model: nn.Module,
    batches: Any,
    statistics: tuple[Sequence[float], Sequence[float]],
    on_step: Callable[[str, int], None],
    relabel: Callable[[ImageSet], ImageSet],
) -> Any:
    """Corrupted images as they were published; the clean ones are those of the batches."""
    images = next(iter(batches)).images
    folder = arguments["corrupted"]
    options = {key: arguments[key] for key in arguments if key not in ("corrupted", "seed")}
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
