"""Validation images and folds, held out of the training set, so that the test set decides nothing.

Choosing a model on the test images makes its test accuracy too high. Here a share of *each class*
of the training images, or one fold of them after the other, takes the test set's place while a
study chooses; the real test images are measured afterwards, next to it. Images of a group (a
patient, a video) stay on one side. Pixel statistics stay those of all training images.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitascope.data import Dataset, ImageSet
from vitascope.data.subsets import folds, split
from vitascope.errors import UserError


def positions(
    dataset: Dataset, share: float = 0.0, count: int | None = None, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return which training images are trained on and which are held out, as a share or a fold.

    Args:
        dataset: The images.
        share: Of each class, to hold out.
        count: Folds, instead.
        seed: Of the draw.
    """
    if not len(dataset.train):
        raise UserError(f"{dataset.name} has no training images; give a source that has some")
    labels, groups = dataset.train.labels, dataset.train.groups
    if count is not None:
        dealt = folds(labels, count, seed, groups)
        return [(np.flatnonzero(dealt != w), np.flatnonzero(dealt == w)) for w in range(count)]
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out; give one in (0, 1)")
    train, out = split(labels, share, seed, groups)
    if not len(out):
        raise UserError(f"{dataset.name} has one image a class: none can be held out")
    return [(train, out)]


def dealt_out(dataset: Dataset, count: int, seeds: Sequence[int]) -> np.ndarray:
    """The fold of each training image, dealt anew with each seed. (seeds, images)"""
    numbers = np.empty((len(seeds), len(dataset.train)), dtype=np.int64)
    for row, seed in enumerate(seeds):
        for fold, (_, out) in enumerate(positions(dataset, count=count, seed=seed)):
            numbers[row, out] = fold
    return numbers


def held_out(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """The data set with ``share`` of its training images, of each class, in place of the test set.

    >>> from vitascope import data
    >>> digits = data.load("digits")
    >>> chooser = held_out(digits, 0.25)
    >>> len(chooser.train), len(chooser.test), len(digits.train)
    (1079, 359, 1438)
    """
    note = f"held {100 * share:g} % of the training images out to choose by, seed {seed}"
    return _tested_on(dataset, *positions(dataset, share, seed=seed)[0], note)


def one_fold(dataset: Dataset, fold: tuple[int, ...]) -> Dataset:
    """The data set with one fold (from 0) of so many of its training images as its test set.

    A third number is the seed by which the images are dealt out; 0 when it is left out.

    >>> from vitascope import data
    >>> fifth = one_fold(data.load("digits", test_fraction=0), (4, 5))
    >>> len(fifth.train), len(fifth.test)
    (1438, 359)
    """
    which, count, *draw = fold
    if not 0 <= which < count:
        raise UserError(
            f"there is no fold {which + 1} of {count}; give 1/{count} to {count}/{count}"
        )
    note = f"held fold {which + 1} of {count} out{''.join(f', draw {seed}' for seed in draw)}"
    held = _tested_on(dataset, *positions(dataset, count=count, seed=sum(draw))[which], note)
    return replace(held, fold=fold)


def _tested_on(dataset: Dataset, train: np.ndarray, out: np.ndarray, note: str) -> Dataset:
    """The data set with its training images ``kept`` to train on and ``out`` to test on."""
    return replace(
        dataset,
        train=dataset.train.take(train),
        test=dataset.train.take(out),
        label_sets=None,
        notes=(*dataset.notes, note),
    )


def check_groups(images: ImageSet, what: str) -> None:
    """Refuse images of one group: they say nothing about other groups.

    Raises:
        UserError: Before anything is trained.
    """
    if images.groups is not None and len(np.unique(images.groups)) == 1:
        raise UserError(
            f"all {len(images)} {what} images are of the group {str(images.groups[0])!r}, so "
            "nothing can be said about other groups; give images of more groups, or --folds"
        )
