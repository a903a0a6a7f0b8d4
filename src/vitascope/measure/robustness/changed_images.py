"""Accuracy lost when the images are changed: shared by corruptions, noise and attacks.

    lost(c) = accuracy(images) - accuracy(c(images))

for changes c that are stated in pixels, between 0 (black) and 1 (white). Models take normalised
images, x = (pixel - mean) / std, so :class:`Pixels` goes there and back. Images that are not pixels
once mean and deviation are undone are refused: an epsilon of 1/255 would mean nothing for them.

Batches are changed and forgotten one by one: memory does not grow with the number of images. Random
numbers are drawn from (seed, number of the image), so they do not depend on the batch size.

Shapes: B images, C channels, H x W pixels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.streaming.batches import each_batch, labelled_in

SLACK = 0.01  # of the range from black to white: what normalising and back may be off


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Mean and deviation of each channel, which normalised the images."""

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not len(self.mean) or min(self.std) <= 0:
            raise UserError(
                "mean and std are one number a channel, std above 0; "
                f"got {list(self.mean)} and {list(self.std)}"
            )

    def of(self, images: Tensor) -> Tensor:
        """From normalised images to pixels in [0, 1]. (B, C, H, W)"""
        mean, std = self._columns(images)
        pixels = images * std + mean
        low, high = pixels.min().item(), pixels.max().item()
        if not -SLACK <= low <= high <= 1 + SLACK:
            raise UserError(
                f"without mean and std the images go from {low:.2f} to {high:.2f}, not 0 to 1; "
                "give the mean and std they were normalised with"
            )
        return pixels.clamp(0, 1)

    def normalised(self, pixels: Tensor) -> Tensor:
        """From pixels to what the model takes."""
        mean, std = self._columns(pixels)
        return (pixels - mean) / std

    def _columns(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if images.ndim != 4 or images.shape[1] != len(self.mean):
            raise UserError(
                f"images of shape {tuple(images.shape)} do not fit a mean and std of "
                f"{len(self.mean)} channels"
            )
        return (
            images.new_tensor(list(self.mean)).view(1, -1, 1, 1),
            images.new_tensor(list(self.std)).view(1, -1, 1, 1),
        )


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with what the changes need to know."""

    images: Tensor  # (B, C, H, W), normalised
    labels: Tensor  # (B,) classes
    numbers: list[int]  # positions in their set, which seed the random numbers


Change = Callable[[LabelledBatch], Iterable[tuple[Any, Tensor]]]  # names and normalised images


@dataclass(frozen=True)
class ChangedImageAccuracy:
    """Correct predictions of the images as they are and changed. (N,) bool each"""

    unchanged: np.ndarray
    changed: dict[Any, np.ndarray] = field(default_factory=dict)

    @property
    def clean(self) -> float:
        """Accuracy, 0 to 1, on the images as they are."""
        return float(self.unchanged.mean())

    @property
    def accuracy(self) -> dict[Any, float]:
        """Accuracy, 0 to 1, on each changed version."""
        return {name: float(right.mean()) for name, right in self.changed.items()}

    @property
    def num_images(self) -> int:
        """Number of images."""
        return len(self.unchanged)

    @property
    def correct(self) -> np.ndarray:
        """All of them, the images as they are first. (1 + changes, N) uint8"""
        return np.stack([self.unchanged, *self.changed.values()]).astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class ChangedImageResult(InstrumentResult):
    """Accuracy, 0 to 1, on the images as they are and on each changed version."""

    clean: float
    accuracy: tuple[float, ...]  # in the order of the changes
    num_images: int
    correct: np.ndarray | None = per_image(np.uint8)  # clean first. (1 + changes, N)

    @classmethod
    def of(cls, measured: ChangedImageAccuracy, **settings: Any) -> Self:
        """Return the result with these settings of an instrument."""
        return cls(
            clean=measured.clean,
            accuracy=tuple(measured.accuracy.values()),
            num_images=measured.num_images,
            correct=measured.correct,
            **settings,
        )


def labelled_batches(batches: Iterable[Any], model: nn.Module) -> Iterable[LabelledBatch]:
    """Labelled batches on the model's device, with the images' positions in their set."""
    done = 0
    for batch in each_batch(batches):
        ((images, labels),) = labelled_in([batch], model)
        given = getattr(batch, "indices", None)
        numbers = list(range(done, done + len(images))) if given is None else given.tolist()
        done += len(images)
        if len(images):
            yield LabelledBatch(images, labels.argmax(1) if labels.ndim == 2 else labels, numbers)
    if not done:
        raise UserError("no images to measure on: the batches are empty")


def classes_of(logits: Tensor, labels: Tensor) -> Tensor:
    """The predictions; labels must be among the classes. (B,)"""
    if logits.ndim != 2:
        raise UserError(f"accuracy needs logits (B, classes), got {tuple(logits.shape)}")
    if logits.isnan().any():
        raise UserError("the model's answers are not numbers (NaN): look at its weights")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= logits.shape[1]:
        raise UserError(f"labels go from {low} to {high}; the model has {logits.shape[1]} classes")
    return logits.argmax(1)


def drawn(seed: int, numbers: Iterable[int], draw: Callable[[np.random.Generator], Any]) -> Tensor:
    """One draw for each image, from its own generator. (B, ...) float64"""
    rows = [draw(np.random.default_rng((seed, number))) for number in numbers]
    return torch.from_numpy(np.stack(rows))


def accuracy_on_changed_images(
    model: nn.Module,
    batches: Iterable[Any],
    change: Change,
    *,
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
    name: str = "images",
) -> ChangedImageAccuracy:
    """Measure accuracy on the images and on every changed version of them.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), gone through once.
        change: Gives the versions of a batch, by name.
        on_step: Called before each batch with ``name`` and the number of batches ahead.
        name: Of the measure.
    """
    plain: list[np.ndarray] = []
    changed: dict[Any, list[np.ndarray]] = {}
    length = length_hint(batches, 0)
    with capture.evaluating(model):
        for done, batch in enumerate(labelled_batches(batches, model)):
            on_step(name, max(length - done, 1))
            plain.append(_hits(model, batch.images, batch.labels))
            for version, images in change(batch):
                changed.setdefault(version, []).append(_hits(model, images, batch.labels))
    return ChangedImageAccuracy(
        np.concatenate(plain), {name: np.concatenate(hits) for name, hits in changed.items()}
    )


def _hits(model: nn.Module, images: Tensor, labels: Tensor) -> np.ndarray:
    right: Tensor = classes_of(capture.logits_of(model(images)), labels) == labels
    return right.cpu().numpy()
