"""From what a reader found to a complete data set: size, channels, split, statistics."""

from dataclasses import dataclass

import numpy as np
import torch

from vitascope.data.dataset import Dataset, pixel_statistics
from vitascope.data.images import FileImages, ImageSet, MemoryImages, covering, gray
from vitascope.data.memory import MEMORY_LIMIT
from vitascope.data.subsets import split
from vitascope.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of ``load``."""

    image_size: int | None = None
    in_chans: int | None = None
    test_fraction: float = 0.2
    seed: int = 0
    crop_pct: float | None = None  # share of the resized image to keep; None: the source's own
    interpolation: str = "bicubic"
    groups: str | None = None  # column of a table, or pattern on the names of files
    empty_classes: bool = False  # take class folders without images


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a source: ``test`` is split off where there is none, ``train`` stays empty."""

    train: ImageSet | None
    test: ImageSet | None = None
    flips: bool = True
    notes: tuple[str, ...] = ()
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # None: measured
    class_map: np.ndarray | None = None
    label_sets: tuple[frozenset[int], ...] | None = None


def in_form(images: MemoryImages, request: Request) -> MemoryImages:
    """Images in memory with the channels and the size asked for.

    They are resized at once if the result fits in memory, else batch by batch.
    """
    pixels = images.pixels(np.arange(len(images)))
    if request.in_chans == 1 and pixels.shape[1] == 3:
        pixels = gray(pixels).to(torch.uint8)
    if request.in_chans == 3 and pixels.shape[1] == 1:
        pixels = pixels.repeat(1, 3, 1, 1)
    side = request.image_size
    how = (request.crop_pct or 1.0, request.interpolation)
    if side is not None and pixels[0].numel() and (pixels.shape[-1] != side or how[0] != 1.0):
        if len(pixels) * pixels.shape[1] * side * side > MEMORY_LIMIT:
            crop_pct, interpolation = how
            return MemoryImages(
                pixels,
                images.labels,
                images.classes,
                side=side,
                crop_pct=crop_pct,
                interpolation=interpolation,
            )
        parts = [covering(chunk, side, side, *how) for chunk in pixels.split(4096)]
        pixels = torch.cat(parts)
    return MemoryImages(pixels, images.labels, images.classes)


def _check_groups(train: np.ndarray, test: np.ndarray) -> None:
    """Refuse a given split that has images of one group on both sides.

    Raises:
        UserError: Naming one.
    """
    both = sorted(set(train) & set(test))
    if both:
        raise UserError(
            f"{len(both)} groups are in the training and in the test images, {str(both[0])!r} for "
            "one; keep a group on one side, or give no split"
        )


def complete(name: str, parts: Parts, request: Request) -> Dataset:
    """Split off a test set where there is none, and measure the training pixels."""
    train, test, notes = parts.train, parts.test, parts.notes
    if train is None:
        assert test is not None
        train = test.take(np.arange(0))
        notes += ("for evaluation only: there are no training images",)
    elif test is None and request.test_fraction == 0:
        test = train.take(np.arange(0))
        notes += ("there are no test images: all are for training",)
    elif test is None and request.test_fraction == 1:
        train, test = train.take(np.arange(0)), train
        notes += ("all images are for testing",)
    elif test is None:
        rows, held_out = split(train.labels, request.test_fraction, request.seed, train.groups)
        percent = f"{100 * request.test_fraction:g} %"
        how = "stratified" if train.groups is None else "groups kept together"
        notes += (f"split {percent} off for testing, {how}, seed {request.seed}",)
        train, test = train.take(rows), train.take(held_out)
    elif train.groups is not None and test.groups is not None:
        _check_groups(train.groups, test.groups)
    if parts.statistics is None:
        mean, std, note = pixel_statistics(train)
        notes += (note,) if note else ()
    else:
        mean, std = (s if train.size[0] == 3 else (s[1],) for s in parts.statistics)
    return Dataset(
        name=name,
        train=train,
        test=test,
        classes=train.classes,
        mean=mean,
        std=std,
        flips=parts.flips,
        notes=notes,
        class_map=parts.class_map,
        label_sets=parts.label_sets,
        crop_pct=test.crop_pct if isinstance(test, FileImages) else request.crop_pct or 1.0,
        interpolation=request.interpolation,
    )
