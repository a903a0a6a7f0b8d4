"""A model seated before its images: opened, on its device, in its size and statistics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope import capture
from vitascope.data import Dataset, EvalBatches, load
from vitascope.errors import UserError
from vitascope.studies.session.models import Subject, open_subject, reopen
from vitascope.train.device import device_of

__all__ = ["Session", "is_named", "matched", "num_outputs", "open_session", "size_of", "tried"]

FALLBACK = 224  # side of an image for a model that does not say


@dataclass(frozen=True)
class Session:
    """An opened model; its images are loaded when they are asked for."""

    subject: Subject
    device: torch.device
    source: str | None
    image_size: int | None
    random: bool  # nobody trained these weights
    notes: tuple[str, ...] = ()
    map_classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> nn.Module:
        """The model, on its device."""
        return self.subject.model

    @property
    def images(self) -> Dataset:
        """The images in the model's size, with its classes if they have them."""
        return self._joined[0]

    @property
    def class_notes(self) -> tuple[str, ...]:
        """How the images' classes became the model's, where that is not plain."""
        return self.images.notes[len(self.loaded.notes) :]

    def labelled(self, what: str) -> None:
        """For a measure that needs labels.

        Raises:
            UserError: If the labels are not the model's classes.
        """
        if self._joined[1] is not None:
            raise UserError(f"{what} needs labels of the model's own classes: {self._joined[1]}")

    @cached_property
    def _joined(self) -> tuple[Dataset, str | None]:
        """The images with the model's classes; or as they are, and why their labels say nothing."""
        loaded = self.loaded
        try:
            one = torch.zeros(1, *loaded.test.size, device=self.device)
            outputs = num_outputs(self.model, one, self.subject.name)
            found = self.subject.seeing(loaded, outputs, self.map_classes)
        except UserError as error:
            if self.map_classes:
                raise
            return loaded, str(error)
        if self.random:
            found = loaded  # nobody taught it what its outputs mean
        if len(found.classes) != outputs:
            words = f"it has {outputs} outputs, these images have {len(found.classes)} classes"
            return found, words
        return found, None

    @cached_property
    def loaded(self) -> Dataset:
        """The images in the model's size, with the classes they came with."""
        if self.source is None:
            raise UserError(
                f"{self.subject.name} was not trained here: say on what to look at it, with --data"
            )
        size = self.subject.size
        side = self.image_size or (size[-1] if size else None)
        return load(self.source, image_size=side, in_chans=_channels(self.subject))

    @property
    def size(self) -> tuple[int, int, int]:
        """Of the images. (C, H, W)"""
        return self.loaded.test.size

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation the model was trained with, or those of the images."""
        mean, std = self.subject.mean, self.subject.std
        if mean is None or std is None or len(mean) != self.size[0]:
            mean, std = self.loaded.mean, self.loaded.std
        return tuple(mean), tuple(std)

    def batches(self, num_images: int, batch_size: int, seed: int) -> EvalBatches:
        """Some test images in batches of about the size wanted, none under 4 if that can be."""
        test = self.images.test
        count = min(num_images, len(test))
        order = np.random.default_rng(seed).permutation(len(test))[:count]
        size = min(batch_size, count)
        while 0 < count % size < 4 and size < count:
            size += 1
        mean, std = self.statistics
        return EvalBatches(test.take(np.sort(order)), batch_size=size, mean=mean, std=std)


def is_named(text: str) -> bool:
    """Whether ``text`` is a model of ours or timm's, by its name."""
    return not Path(text).is_dir() and text.partition(":")[0] in (text, "timm")


def open_session(
    text: str,
    data: str | None = None,
    *,
    epoch: int | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    seed: int = 0,
    device: str | None = None,
    map_classes: Mapping[str, str] | None = None,
) -> Session:
    """Open the model that ``text`` names; see :mod:`vitascope.studies.session.models`.

    ``map_classes`` says which class of the model a class of the images is that has another name.
    """
    is_run = Path(text).is_dir()
    named = is_named(text)
    if epoch is not None and not is_run:
        raise UserError(f"--epoch is for the kept weights of a run; {text} is not a run's folder")
    if pretrained and not named:
        raise UserError(f"--pretrained is for a model given by name; {text} brings its own weights")
    place = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(seed)
    if is_run:
        subject = _kept(Path(text), epoch)
    elif named:
        subject = _named(text, pretrained, image_size, seed)
    else:
        subject = open_subject(text)
    random = named and not pretrained
    notes = (f"random weights: {text} was built, not trained",) if random else ()
    session = Session(
        subject, place, data or subject.data, image_size, random, notes, dict(map_classes or {})
    )
    if random and data is not None and hasattr(subject.model, "reset_classifier"):
        subject.model.reset_classifier(len(session.loaded.classes))
    subject.model.to(place).eval()
    return session


def _kept(folder: Path, epoch: int | None) -> Subject:
    kept = sorted(int(p.stem.split("-")[1]) for p in folder.glob("weights/epoch-*.safetensors"))
    if epoch is not None and epoch not in kept:
        there = ", ".join(map(str, kept)) or "none"
        raise UserError(f"{folder} kept no weights of epoch {epoch}; there are: {there}")
    return reopen(folder, epoch)


def _named(text: str, pretrained: bool, image_size: int | None, seed: int) -> Subject:
    """Built for another image size if it can be."""
    wanted: dict[str, Any] = {"pretrained": True} if pretrained else {}
    attempts = [{**wanted, "img_size": image_size}, wanted] if image_size else [wanted]
    for kwargs in attempts:
        torch.manual_seed(seed)
        try:
            return open_subject(text, **kwargs)
        except (UserError, TypeError, AssertionError) as error:
            last = error
    if isinstance(last, UserError):
        raise last
    raise UserError(f"cannot build {text}: {str(last).splitlines()[0]}")


def _channels(subject: Subject) -> int | None:
    if subject.size:
        return subject.size[0]
    convolutions = (m for m in subject.model.modules() if isinstance(m, nn.Conv2d))
    first = next(convolutions, None)
    return None if first is None or first.in_channels not in (1, 3) else first.in_channels


def size_of(
    subject: Subject, image_size: int | None, otherwise: tuple[int, int, int] | None = None
) -> tuple[int, int, int]:
    """The images a model takes. (C, H, W)"""
    if image_size is not None:
        return (_channels(subject) or 3, image_size, image_size)
    if subject.size is not None:
        channels, height, width = subject.size
        return channels, height, width
    side = otherwise[-1] if otherwise else FALLBACK
    return (_channels(subject) or 3, side, side)


def tried(model: nn.Module, images: Tensor, name: str) -> None:
    """One image must go through.

    Raises:
        UserError: If it does not, with the reason in one line.
    """
    _tried(model, images, name)


def num_outputs(model: nn.Module, images: Tensor, name: str) -> int:
    """How many classes a model tells apart, found on one image.

    Raises:
        UserError: If the image does not go through, or no logits come out.
    """
    return int(capture.logits_of(_tried(model, images, name)).shape[-1])


def _tried(model: nn.Module, images: Tensor, name: str) -> Any:
    try:
        with capture.evaluating(model):
            return model(images[:1])
    except (RuntimeError, AssertionError, ValueError, TypeError, IndexError) as error:
        size = " x ".join(map(str, images.shape[1:]))
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name} cannot take images of {size}: {reason}; give --image-size"
        ) from None


def matched(
    session: Session, peer: Session, size: tuple[int, int, int]
) -> Callable[[Tensor], Tensor]:
    """Brings one model's images into the statistics, channels and size of another's."""

    def column(values: tuple[float, ...], images: Tensor) -> Tensor:
        return torch.tensor(values, dtype=images.dtype, device=images.device).view(1, -1, 1, 1)

    mean, std = session.statistics
    own = peer.subject
    channels, *sides = size

    def prepare(images: Tensor) -> Tensor:
        pixels = images * column(std, images) + column(mean, images)
        if channels != pixels.shape[1]:
            grey = pixels.mean(1, keepdim=True)
            pixels = grey.expand(-1, channels, -1, -1)
        if tuple(sides) != tuple(pixels.shape[2:]):
            pixels = F.interpolate(pixels, sides, mode="bicubic", antialias=True)
        if own.mean is not None and own.std is not None and len(own.mean) == channels:
            theirs = (own.mean, own.std)
        else:
            theirs = (
                (mean, std)
                if len(mean) == channels
                else ((mean[0],) * channels, (std[0],) * channels)
            )
        return (pixels - column(theirs[0], pixels)) / column(theirs[1], pixels)

    return prepare
