"""Accuracy under the corruptions of CIFAR-C and ImageNet-C, and mCE.

15 corruptions of 5 severities (Hendrycks & Dietterich 2019, https://arxiv.org/abs/1903.12261), made
on the fly by :mod:`.corruptions`, or read from the published files:

    accuracy(c, s)              share of images got right under corruption c at severity s
    CE(c) = mean_s (1 - accuracy(c, s)) / mean_s (error of AlexNet)(c, s)
    mCE   = 100 mean_c CE(c)

AlexNet's errors were measured on ImageNet-C at 224 x 224, so mCE is given only there: all 15 x 5,
224 pixels, 1000 classes, ImageNet-C's constants; elsewhere it is None and the mean accuracy counts.
A model as good as AlexNet has mCE 100; the paper's ResNet-50 has 76.7.

Images made on the fly are close to the published ones but not the same (see
:mod:`.corruptions.operations`): an mCE to put next to others' needs the published files.
Accuracies are fractions, 0 to 1.

Shapes: K corruptions, S severities.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError, unknown
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.robustness.changed_images import (
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
)
from vitascope.measure.robustness.corruptions.constants import (
    ALEXNET,
    CORRUPTIONS,
    SEVERITIES,
    table_for,
)
from vitascope.measure.robustness.corruptions.operations import corrupt
from vitascope.measure.streaming.batches import first_images
from vitascope.settings import checked

__all__ = ["Corruption", "corruption", "corruption_of_sets", "mean_corruption_error"]

OnStep = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class Corruption(InstrumentResult, kind="corruption"):
    """Accuracy, 0 to 1, under each corruption at each severity."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    accuracy: np.ndarray  # (K, S)
    clean: float | None  # of the images as they are; None if they were not given
    constants: str  # "cifar", "imagenet", or "given" for images that were read
    mce: float | None  # in percent; None where AlexNet's errors do not apply
    num_images: int  # of one corruption and severity
    seed: int | None
    # of the corruptions and severities, under which each image was right; (N,)
    share: np.ndarray | None = per_image(np.float32)

    @property
    def mean(self) -> float:
        """Mean accuracy over everything."""
        return float(self.accuracy.mean())

    @property
    def by_corruption(self) -> dict[str, float]:
        """Mean accuracy over the severities."""
        return dict(zip(self.corruptions, self.accuracy.mean(1).tolist(), strict=True))

    def summary(self) -> dict[str, Any]:
        """Return the means over severities, and over everything."""
        return {"mean": self.mean, "by_corruption": self.by_corruption}


def mean_corruption_error(errors: Mapping[str, float]) -> float:
    """MCE in percent, from the error of each of the 15 corruptions (mean over severities).

    >>> round(mean_corruption_error(ALEXNET), 6)
    100.0
    """
    return 100 * float(np.mean([errors[name] / ALEXNET[name] for name in CORRUPTIONS]))


def chosen(
    corruptions: str | Iterable[str], severities: Iterable[int]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and severities without repetition.

    Raises:
        UserError: If one is unknown or there are none.
    """
    names = (corruptions,) if isinstance(corruptions, str) else tuple(dict.fromkeys(corruptions))
    levels = tuple(dict.fromkeys(severities))
    for name in names:
        if name not in CORRUPTIONS:
            raise unknown("corruption", name, CORRUPTIONS)
    if not names or not levels or not set(levels) <= set(SEVERITIES):
        raise UserError(f"give corruptions, and severities from 1 to 5, not {list(levels)}")
    return names, levels


@checked
def corruption(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    corruptions: str | Iterable[str] = CORRUPTIONS,
    severities: Iterable[int] = SEVERITIES,
    constants: str = "auto",
    seed: int = 0,
    on_step: OnStep = lambda step, ahead: None,
) -> Corruption:
    """Measure accuracy on images that are corrupted on the fly.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), normalised with ``mean`` and ``std``; gone through once.
        mean: Of each channel, for pixels in [0, 1].
        std: Of each channel.
        corruptions: Names; by default all 15.
        severities: Of 1 to 5.
        constants: "cifar" or "imagenet", or "auto" by the images' size.
        seed: Of the corruptions; each image has its own random numbers.
        on_step: Called before each pass with the corruption and the number of passes ahead.
    """
    names, levels = chosen(corruptions, severities)
    space = Pixels(mean=mean, std=std)
    ahead = len(names) * len(levels) * max(length_hint(batches, 1), 1)
    images, batches = first_images(batches, model)
    shape = _size_and_classes(model, images)
    table = table_for(*shape[:2], constants)

    def change(batch: LabelledBatch) -> Iterable[tuple[tuple[str, int], Tensor]]:
        nonlocal ahead
        pixels = space.of(batch.images)
        for name in names:
            for level in levels:
                on_step(f"{name} {level}", max(ahead, 1))
                ahead -= 1
                made = corrupt(
                    pixels, name, level, seed=seed, indices=batch.numbers, constants=table
                )
                yield (name, level), space.normalised(made)

    measured = accuracy_on_changed_images(model, batches, change)
    return _result(
        measured.accuracy,
        names,
        levels,
        clean=measured.clean,
        constants=table,
        comparable=shape == (224, 224, 1000) and table == "imagenet",
        num_images=measured.num_images,
        seed=seed,
        share=np.mean(list(measured.changed.values()), axis=0),
    )


def corruption_of_sets(
    model: nn.Module,
    sets: Callable[[str, int], Iterable[Any]],
    *,
    clean: Iterable[Any] | None = None,
    corruptions: str | Iterable[str] = CORRUPTIONS,
    severities: Iterable[int] = SEVERITIES,
    on_step: OnStep = lambda step, ahead: None,
) -> Corruption:
    """Measure accuracy on corrupted images that exist: CIFAR-10-C, -100-C, ImageNet-C.

    Args:
        model: Any classifier; it is left unchanged.
        sets: Gives the batches of (images, labels) of a corruption and severity.
        clean: Batches of the images as they were.
        corruptions: Names; by default all 15.
        severities: Of 1 to 5.
        on_step: Called before each set with its corruption and the number of sets ahead.
    """
    names, levels = chosen(corruptions, severities)
    wanted = [(name, level) for name in names for level in levels]
    accuracy, counts, shape = {}, set(), None
    for done, (name, level) in enumerate(wanted):
        on_step(f"{name} {level}", len(wanted) - done)
        images, batches = first_images(sets(name, level), model)
        shape = shape or _size_and_classes(model, images)
        measured = accuracy_on_changed_images(model, batches, lambda batch: ())
        accuracy[name, level] = measured.clean
        counts.add(measured.num_images)
    if len(counts) > 1:
        raise UserError(
            f"the sets have from {min(counts)} to {max(counts)} images; each should have as many"
        )
    return _result(
        accuracy,
        names,
        levels,
        clean=None
        if clean is None
        else accuracy_on_changed_images(model, clean, lambda batch: ()).clean,
        constants="given",
        comparable=shape == (224, 224, 1000),
        num_images=counts.pop(),
        seed=None,
    )


def _size_and_classes(model: nn.Module, images: Tensor) -> tuple[int, int, int]:
    """Height and width of the images, and the model's number of classes."""
    with capture.evaluating(model):
        logits = capture.logits_of(model(images[:1]))
    return images.shape[-2], images.shape[-1], logits.shape[-1]


def _result(
    accuracy: Mapping[tuple[str, int], float],
    names: tuple[str, ...],
    levels: tuple[int, ...],
    *,
    comparable: bool,
    **rest: Any,
) -> Corruption:
    table = np.array([[accuracy[name, level] for level in levels] for name in names])
    mce = None
    if comparable and set(names) == set(CORRUPTIONS) and set(levels) == set(SEVERITIES):
        errors = 1 - table.mean(1)
        mce = mean_corruption_error(dict(zip(names, errors.tolist(), strict=True)))
    return Corruption(corruptions=names, severities=levels, accuracy=table, mce=mce, **rest)
