"""A session: an opened model on its device, with its images in its size and normalisation.

:mod:`vitascope.loading.opening` opens one. Training takes the model from it; evaluation,
inspection, comparison and the live explorer also take its images, which are loaded when they are
first asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope import capture
from vitascope.data import Dataset, EvalBatches, load
from vitascope.data.held_out import one_fold
from vitascope.errors import UserError
from vitascope.training.classes import joined

FALLBACK = 224  # side of an image for a model that does not say
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Session:
    """An opened model, what is known of it, and its images."""

    model: nn.Module
    name: str
    config: dict[str, Any]  # enough to build the model again, or where it came from
    size: tuple[int, int, int] | None = None  # images it was made for, (C, H, W)
    data: str | None = None  # what a run was trained on
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_pct: float | None = None  # share of a resized image that it was made for
    interpolation: str | None = None  # of the resizing
    classes: tuple[str, ...] | None = None  # in the order of its outputs, where they are known
    first_classes: int | None = None  # of its data, that a run was trained on
    random: bool = False  # the weights are untrained
    device: torch.device = CPU
    source: str | None = None  # images to load: those asked for, or a run's own
    given: Dataset | None = None  # images that are loaded already
    image_size: int | None = None  # side to load the images in; the model's own when left out
    map_classes: Mapping[str, str] = field(default_factory=dict)  # images' class -> model's
    fold: tuple[int, int] | None = None  # of its data, that a run was not trained on
    whole: bool = False  # images without a test set of their own are all for testing

    @cached_property
    def loaded(self) -> Dataset:
        """The images in the model's size, with the classes they came with."""
        if self.given is not None:
            return self.given
        if self.source is None:
            raise UserError(
                f"{self.name} was not trained here: say on what to measure it, with --data"
            )
        side = self.image_size or (self.size[-1] if self.size else None)
        how: dict[str, Any] = {"image_size": side, "in_chans": self.channels}
        if not self.random:
            how |= {"crop_pct": self.crop_pct, "interpolation": self.interpolation or "bicubic"}
        if self.whole:
            return load(self.source, **how, test_fraction=1.0)
        if self.fold is None or self.source != self.data:
            return load(self.source, **how)
        whole = load(self.source, **how, test_fraction=0.0)
        return whole if len(whole.test) else one_fold(whole, self.fold)

    @cached_property
    def _output(self) -> Any:
        """The model's output for a blank image of the loaded size."""
        return self.try_image(torch.zeros(1, *self.loaded.test.size, device=self.device))

    @property
    def num_outputs(self) -> int:
        """How many classes the model tells apart.

        Raises:
            UserError: If it does not take the images, or no logits come out.
        """
        return int(capture.logits_of(self._output).shape[-1])

    @cached_property
    def labelled_images(self) -> Dataset:
        """The images with the model's classes; see :func:`vitascope.training.classes.joined`.

        Raises:
            UserError: If they have other classes.
        """
        own = self.loaded.name == self.data
        return joined(
            self.loaded,
            self.classes,
            self.num_outputs,
            given=self.map_classes,
            strict="run" in self.config,
            first_classes=self.first_classes if own else None,
        )

    @property
    def images(self) -> Dataset:
        """The images with the model's classes if they have them, otherwise as they are.

        Raises:
            UserError: If the model does not take them.
        """
        return self._images_and_problem[0]

    def require_labels(self, what: str) -> None:
        """For a measure that needs labels.

        Raises:
            UserError: If the labels are not the model's classes.
        """
        problem = self._images_and_problem[1]
        if problem is not None:
            raise UserError(f"{what} needs labels of the model's own classes: {problem}")

    @cached_property
    def _images_and_problem(self) -> tuple[Dataset, str | None]:
        """The images, and why their labels are not the model's, if they are not."""
        _ = self._output  # images that do not go through are an error, other classes are not
        try:
            found = self.labelled_images
        except UserError as error:
            if self.map_classes:
                raise
            return self.loaded, str(error)
        if self.random:
            found = self.loaded  # outputs of untrained weights mean no classes yet
        count = len(found.classes)
        if count != self.num_outputs:
            return found, f"it has {self.num_outputs} outputs, these images have {count} classes"
        return found, None

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the model."""
        return [f"random weights: {self.name} was built, not trained"] if self.random else []

    @property
    def class_notes(self) -> list[str]:
        """How the images' classes were matched with the model's, unless they are the same."""
        return list(self.images.notes[len(self.loaded.notes) :])

    @property
    def channels(self) -> int | None:
        """Channels of the images the model takes, as it says or as its first convolution does."""
        if self.size:
            return self.size[0]
        convolutions = (m for m in self.model.modules() if isinstance(m, nn.Conv2d))
        first = next(convolutions, None)
        return None if first is None or first.in_channels not in (1, 3) else first.in_channels

    def input_size(self, otherwise: int = FALLBACK) -> tuple[int, int, int]:
        """The images the model takes, known without any; ``otherwise`` is a side. (C, H, W)"""
        if self.size is not None and self.image_size is None:
            return self.size
        side = self.image_size or otherwise
        return self.channels or 3, side, side

    def try_image(self, images: Tensor) -> Any:
        """The output for the first of some images.

        Raises:
            UserError: If the model does not take it, with the reason in one line.
        """
        name = self.config.get("run", self.name)
        return capture.try_image(self.model, images, name, "give --image-size")

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation the model was trained with, or those of the images."""
        own = self._own_statistics(self.loaded.test.size[0])
        return own or (tuple(self.loaded.mean), tuple(self.loaded.std))

    def _own_statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        if self.mean is None or self.std is None or len(self.mean) != channels:
            return None
        return tuple(self.mean), tuple(self.std)

    def draw(self, num_images: int | None, seed: int, split: str = "test") -> np.ndarray:
        """Positions of some images, drawn with the seed, in rising order; all for None."""
        count = len(self.images.train if split == "train" else self.images.test)
        return np.sort(np.random.default_rng(seed).permutation(count)[:num_images])

    def batches(
        self,
        positions: np.ndarray,
        batch_size: int,
        *,
        split: str = "test",
        smallest: int = 1,
        num_workers: int = 0,
    ) -> EvalBatches:
        """The images at these positions, normalised for the model.

        Batches grow until the last one has ``smallest`` images, or all images are in one.
        """
        images = self.images.train if split == "train" else self.images.test
        count = len(positions)
        size = min(batch_size, count) if smallest > 1 else batch_size
        while 0 < count % size < smallest and size < count:
            size += 1
        mean, std = self.statistics
        return EvalBatches(
            images.take(positions), batch_size=size, mean=mean, std=std, num_workers=num_workers
        )


def image_converter(session: Session, other: Session) -> Callable[[Tensor], Tensor]:
    """A function from one model's images to another's size, channels and normalisation."""
    mean, std = session.statistics
    channels, *sides = other.input_size(session.loaded.test.size[-1])
    theirs = other._own_statistics(channels)
    if theirs is None:
        same = len(mean) == channels
        theirs = (mean, std) if same else ((mean[0],) * channels, (std[0],) * channels)

    def column(values: tuple[float, ...], images: Tensor) -> Tensor:
        return torch.tensor(values, dtype=images.dtype, device=images.device).view(1, -1, 1, 1)

    def convert(images: Tensor) -> Tensor:
        pixels = images * column(std, images) + column(mean, images)
        if channels != pixels.shape[1]:
            pixels = pixels.mean(1, keepdim=True).expand(-1, channels, -1, -1)
        if tuple(sides) != tuple(pixels.shape[2:]):
            pixels = F.interpolate(pixels, sides, mode="bicubic", antialias=True)
        return (pixels - column(theirs[0], pixels)) / column(theirs[1], pixels)

    return convert
