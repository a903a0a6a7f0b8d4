"""A session: an opened model with images in its size and normalisation.

The images are loaded when they are first asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope import capture
from vitascope.data import Dataset, EvalBatches, load
from vitascope.data.held_out import one_fold
from vitascope.data.sources.given import GivenImages
from vitascope.errors import UserError
from vitascope.loading.model import FALLBACK, OpenedModel
from vitascope.loading.opening import is_named, open_model
from vitascope.training.classes import joined

GUESSING = 1.2  # times the accuracy of guessing: below, a run has learned little


@dataclass(frozen=True, kw_only=True)
class Session:
    """An opened model and its images."""

    opened: OpenedModel
    source: str | None = None  # images to load: those asked for, or a run's own
    given: Dataset | None = None  # images that are loaded already
    image_size: int | None = None  # side to load the images in; the model's own when left out
    map_classes: Mapping[str, str] = field(default_factory=dict)  # images' class -> model's
    whole: bool = False  # images without a test set of their own are all for testing

    @property
    def model(self) -> nn.Module:
        """The opened network."""
        return self.opened.model

    @property
    def config(self) -> dict[str, Any]:
        """Return how the model was opened, for records."""
        return self.opened.config

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        first = next(self.model.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def _run_data(self) -> dict[str, Any]:
        """The images that a run was trained on."""
        return dict(self.opened.run.config["data"]) if self.opened.run else {}

    @cached_property
    def loaded(self) -> Dataset:
        """The images in the model's size, with the classes they came with."""
        if self.given is not None:
            return self.given
        if self.source is None:
            raise UserError(
                f"{self.opened.name} was not trained here: say on what to measure it, with --data"
            )
        stated = self.opened.preprocessing
        options: dict[str, Any] = {"image_size": self.image_size or stated.side}
        options |= {"in_chans": self.opened.channels}
        if not self.opened.random:
            options |= {"crop_pct": stated.crop_pct}
            options |= {"interpolation": stated.interpolation or "bicubic"}
        if self.whole:
            return load(self.source, **options, test_fraction=1.0)
        fold = self._run_data.get("fold")  # that the run was not trained on
        if not fold or self.source != self._run_data["name"]:
            return load(self.source, **options)
        whole = load(self.source, **options, test_fraction=0.0)
        return whole if len(whole.test) else one_fold(whole, tuple(fold))

    @cached_property
    def _output(self) -> Any:
        """The model's output for a blank image of the loaded size."""
        return self.try_image(torch.zeros(1, *self.loaded.test.size, device=self.device))

    @property
    def num_outputs(self) -> int:
        """Number of classes of the model.

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
        if isinstance(self.source, GivenImages):
            if not self.source.labelled:
                raise UserError("these images have no labels; give batches of (images, labels)")
            classes = self.opened.classes or tuple(map(str, range(self.num_outputs)))
            test = self.loaded.test.of_classes(classes)  # labels are numbers of the outputs
            train = self.loaded.train.of_classes(classes)
            return replace(self.loaded, train=train, test=test, classes=classes)
        run, own = self.opened.run, self.loaded.name == self._run_data.get("name")
        return joined(
            self.loaded,
            self.opened.classes,
            self.num_outputs,
            given=self.map_classes,
            strict=run is not None,
            first_classes=run.recipe.subset.first_classes if run is not None and own else None,
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
            images = self.labelled_images
        except UserError as error:
            if self.map_classes:
                raise
            return self.loaded, str(error)
        if self.opened.random:
            images = self.loaded  # outputs of untrained weights mean no classes yet
        count = len(images.classes)
        if count != self.num_outputs:
            return images, f"it has {self.num_outputs} outputs, these images have {count} classes"
        return images, None

    @property
    def notes(self) -> list[str]:
        """Notes that belong to every result, such as random weights."""
        name, run = self.opened.name, self.opened.run
        if self.opened.random:
            return [
                f"random weights: {name} was built, not trained, so this shows its architecture "
                "and nothing it has learned; take a trained run, or `--pretrained`"
            ]
        top1 = None if run is None else run.final.get("top1")
        guessing = 1 / max(len((run and run.classes) or ()), 1)
        if top1 is None or guessing == 1 or top1 > GUESSING * guessing:
            return []
        return [
            f"at chance: {name} is right on {100 * top1:.0f} % of its test images, and guessing on "
            f"{100 * guessing:.0f} %, so it has learned little; train it longer"
        ]

    @property
    def class_notes(self) -> list[str]:
        """Say how the images' classes were matched with the model's, unless they are the same."""
        return list(self.images.notes[len(self.loaded.notes) :])

    def input_size(self, otherwise: int = FALLBACK) -> tuple[int, int, int]:
        """Size of the images the model takes, known without any image. (C, H, W)

        Args:
            otherwise: Side for a model that does not say.
        """
        return self.opened.input_size(self.image_size, otherwise)

    def try_image(self, images: Tensor) -> Any:
        """The output for the first of some images.

        Raises:
            UserError: If the model does not take it, with the reason in one line.
        """
        return self.opened.try_image(images)

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation the model was trained with, or those of the images."""
        own = self.opened.preprocessing.statistics(self.loaded.test.size[0])
        return own or (tuple(self.loaded.mean), tuple(self.loaded.std))

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


def open_session(
    text: str | nn.Module,
    data: str | None = None,
    *,
    image_size: int | None = None,
    map_classes: Mapping[str, str] | None = None,
    new_head: bool = True,
    **options: Any,
) -> Session:
    """Open the model that ``text`` names with its images, which are loaded when asked for.

    Args:
        text: A model, as :func:`vitascope.loading.opening.open_model` takes it.
        data: Images; a run's own when left out.
        image_size: Side of the images; the model's own when left out.
        map_classes: Class of the images -> class of the model, where the names differ.
        new_head: Give a model with untrained weights a head for the classes of ``data``.
        options: Of :func:`vitascope.loading.opening.open_model`.

    Raises:
        UserError: If there is no such model, or an option does not go with it.
    """
    arguments = options.get("arguments")
    if arguments and not (isinstance(text, str) and is_named(text)):
        name = text if isinstance(text, str) else type(text).__name__
        raise UserError(
            f"--model-args ({', '.join(arguments)}) is for a model given by name; {name} is built "
            "already, with arguments of its own"
        )
    opened = open_model(text, image_size=image_size, **options)
    session = Session(
        opened=opened,
        source=opened.run.config["data"]["name"] if data is None and opened.run else data,
        image_size=image_size,
        map_classes=dict(map_classes or {}),
    )
    new_head = new_head and opened.random and data is not None
    if new_head and hasattr(opened.model, "reset_classifier"):
        device = session.device
        opened.model.reset_classifier(len(session.loaded.classes))
        opened.model.to(device)
    return session


def image_converter(session: Session, other: Session) -> Callable[[Tensor], Tensor]:
    """A function from one model's images to another's size, channels and normalisation."""
    mean, std = session.statistics
    channels, *sides = other.input_size(session.loaded.test.size[-1])
    theirs = other.opened.preprocessing.statistics(channels)
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
