"""Subsets of images or classes, and test splits.

A fraction is kept *of each class* (ConViT, Table 2, https://arxiv.org/abs/2103.10697), so the
classes stay as balanced as they were. The paper does not say which images are kept; its released
code keeps the first files by name. Here they are drawn at random from a seed, and ``order="first"``
gives the released code's choice. A smaller fraction with the same seed is contained in a larger
one. The paper multiplies the epochs by 1 / fraction: see the recipe's ``scale_epochs``.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from vitascope.data.random_streams import Purpose, stream
from vitascope.errors import UserError

if TYPE_CHECKING:
    from vitascope.data.images import ImageSet

__all__ = ["Subset", "folds", "split", "subset"]


@dataclass(frozen=True, kw_only=True)
class Subset:
    """Part of a data set to keep."""

    fraction: float = 1.0  # of each class, at least one image
    first_classes: int | None = None  # the first by sorted name: 100 gives ImageNet-100
    order: Literal["random", "first"] = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UserError(f"fraction {self.fraction} is out of range; give 0 < fraction <= 1")
        if self.first_classes is not None and self.first_classes < 1:
            raise UserError(f"first_classes {self.first_classes} is out of range; give 1 or more")
        if self.order not in ("random", "first"):
            raise UserError(f"unknown order {self.order!r}; there are: first, random")


def subset(images: "ImageSet", spec: Subset) -> "ImageSet":
    """The part of ``images`` that ``spec`` keeps, in the order it had."""
    classes = images.classes
    if spec.first_classes is not None:
        if spec.first_classes > len(classes):
            raise UserError(
                f"first_classes={spec.first_classes} of a set with {len(classes)} classes; "
                f"give at most {len(classes)}"
            )
        classes = tuple(sorted(classes)[: spec.first_classes])
    numbers = {name: number for number, name in enumerate(images.classes)}
    order = np.argsort(images.labels, kind="stable")  # images class by class
    ends = np.cumsum(np.bincount(images.labels, minlength=len(numbers)))
    parts = []
    for name in classes:
        number = numbers[name]
        members = order[ends[number - 1] if number else 0 : ends[number]]
        count = min(len(members), max(1, round(spec.fraction * len(members))))
        if spec.order == "random" and count < len(members):
            rng = stream(Purpose.SUBSET, spec.seed, sample=number)
            members = rng.permutation(members)
        parts.append(members[:count])
    chosen = images.take(np.sort(np.concatenate(parts)))
    if classes == images.classes:
        return chosen
    renumbered = np.full(len(images.classes), -1)
    renumbered[[numbers[name] for name in classes]] = np.arange(len(classes))
    chosen.labels = renumbered[chosen.labels]
    return chosen.of_classes(classes)


def split(
    labels: np.ndarray, fraction: float, seed: int, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions for training and for testing, ``fraction`` of each class for the latter.

    A class with one image keeps it for training; every other class has images on both sides. With
    groups all images of a group are on one side, and the share is only about right.
    """
    if not 0 < fraction < 1:
        raise UserError(f"test_fraction {fraction} is out of range; give 0 < test_fraction < 1")
    if groups is not None:
        parts = _folds_of_groups(labels, max(2, round(1 / fraction)), seed, groups)
        return np.flatnonzero(parts != 0), np.flatnonzero(parts == 0)
    test = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(len(members) - 1, max(1, round(fraction * len(members))))
        test.append(stream(Purpose.SPLIT, seed, sample=int(label)).permutation(members)[:count])
    held_out = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def folds(
    labels: np.ndarray, count: int, seed: int = 0, groups: np.ndarray | None = None
) -> np.ndarray:
    """For each image the fold it is tested in, 0 to ``count`` - 1, each class dealt out evenly.

    With groups all images of a group are in one fold, and classes are only about even.

    >>> folds(np.array([0, 0, 0, 1, 1, 1]), 3).tolist()
    [1, 0, 2, 1, 0, 2]
    """
    if not 2 <= count <= len(labels):
        raise UserError(f"{len(labels)} images cannot be dealt out to {count} folds")
    if groups is not None:
        return _folds_of_groups(labels, count, seed, groups)
    dealt, numbers = 0, np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        shuffled = stream(Purpose.FOLDS, seed, sample=int(label)).permutation(members)
        numbers[shuffled] = (dealt + np.arange(len(members))) % count
        dealt += len(members)
    return numbers


def _folds_of_groups(labels: np.ndarray, count: int, seed: int, groups: np.ndarray) -> np.ndarray:
    """The fold of each image, by scikit-learn's ``StratifiedGroupKFold``."""
    from sklearn.model_selection import StratifiedGroupKFold

    if len(np.unique(groups)) < count:
        raise UserError(
            f"{len(np.unique(groups))} groups cannot be dealt out to {count} parts, none of them "
            "in two; give a pattern that makes more groups, fewer --folds, or a test set"
        )
    if np.bincount(labels).max() < count:
        raise UserError(f"no class has an image for each of {count} parts; give fewer --folds")
    numbers = np.empty(len(labels), dtype=np.int64)
    parts = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        for number, (_, out) in enumerate(parts.split(labels, labels, groups)):
            numbers[out] = number
    return numbers
