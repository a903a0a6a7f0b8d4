"""Survey of a data set before training: number of images, sizes, class balance and duplicates.

- *exact* duplicates have the same pixels, at 64 x 64.
- *near* duplicates have perceptual hashes (imagehash's phash, 64 bits) that differ in at most 4
  bits, and 16 x 16 thumbnails that differ by less than 10 of 255 on average: hashes of plain images
  agree by chance.

Accuracy on a test image that is also a training image says nothing about new images. Two labels of
one image cannot both be learned.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitascope.data.dataset import Dataset
from vitascope.data.images import ImageSet, resize
from vitascope.data.memory import headers
from vitascope.data.sources.folder import list_files, parts_of
from vitascope.data.sources.load import load

SIDE = 64  # of the images that are compared
BITS = 4  # of 64, by which near duplicates differ at most
LEVELS = 10.0  # of 255, by which their thumbnails differ on average at most
MOST = 20_000  # images of which all pairs are compared
SHOWN = 20  # pairs that are named
MANY_ALIKE = 0.05  # of the test images: among few pixels, some look alike by chance


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The result of :func:`survey`."""

    name: str
    classes: tuple[str, ...]
    train: tuple[int, ...]  # images of each class
    test: tuple[int, ...]
    unreadable: tuple[str, ...]
    imbalance: float  # largest class over smallest, in training
    exact: int  # pairs within training or within test
    near: int
    exact_across: int  # test images that are in the training set too
    near_across: int
    two_labels: int  # pairs of the same image with two labels
    pairs: tuple[tuple[str, str, str], ...]  # what, one, other
    compared: bool  # all pairs; not where there are too many images

    @property
    def across(self) -> int:
        """Test images with an exact or near duplicate among the training images."""
        return self.exact_across + self.near_across

    @property
    def short(self) -> str:
        """The short form, in a line or two."""
        parts = [
            f"{sum(self.train):,} training and {sum(self.test):,} test images of "
            f"{len(self.classes)} classes, {_balance(self.imbalance)}"
        ]
        counts = (
            (len(self.unreadable), "file", "that cannot be read"),
            (self.exact + self.near, "pair", "of duplicates inside a part"),
            (self.two_labels, "pair", "of the same image with two labels"),
        )
        parts += [f"{_some(number, noun)} {finding}" for number, noun, finding in counts if number]
        return "; ".join([*parts, *([self.leak] if self.leak else [])])

    @property
    def leak(self) -> str:
        """How many test images are duplicates of training images, in words; may be empty."""
        kinds = (
            (self.exact_across, "also in the training set, so accuracy is too good"),
            (self.near_across, "nearly the same as a training image"),
        )
        total = max(1, sum(self.test))
        return "; ".join(
            f"{_some(number, 'test image')} ({100 * number / total:.0f} %) {finding}"
            for number, finding in kinds
            if number
        )

    @property
    def leaks(self) -> bool:
        """Return whether accuracy is unreliable for it: any exact duplicate, or many near ones."""
        return bool(self.exact_across) or self.near_across > MANY_ALIKE * sum(self.test)

    def values(self) -> dict[str, Any]:
        """The result as plain types, for JSON."""
        return {
            "name": self.name,
            "classes": [
                {"name": name, "train": train, "test": test}
                for name, train, test in zip(self.classes, self.train, self.test, strict=True)
            ],
            "num_train": sum(self.train),
            "num_test": sum(self.test),
            "unreadable": list(self.unreadable),
            "imbalance": self.imbalance,
            "duplicates": {
                "exact": self.exact,
                "near": self.near,
                "exact_across": self.exact_across,
                "near_across": self.near_across,
                "two_labels": self.two_labels,
                "pairs": [list(pair) for pair in self.pairs],
                "all_compared": self.compared,
            },
            "short": self.short,
        }


def _balance(imbalance: float) -> str:
    """Return how much larger the largest class is.

    >>> _balance(1.02), _balance(1.6)
    ('of about the same size', 'the largest 1.6 times the smallest')
    """
    if imbalance < 1.05:
        return "of about the same size"
    return f"the largest {imbalance:.1f} times the smallest"


def surveyed(source: str) -> Survey:
    """Survey the images of a source; loaded small, whatever their size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # broken images: the survey names them
        return survey(load(source, image_size=SIDE))


def survey(dataset: Dataset) -> Survey:
    """Look at images that were loaded; any size will do, they are compared at 64 x 64."""
    parts = [dataset.train, dataset.test]
    sizes = [np.bincount(part.labels, minlength=len(dataset.classes)) for part in parts]
    small = np.concatenate([_small(part) for part in parts])  # (N, 64 * 64) grey
    labels = np.concatenate([part.labels for part in parts])
    inside = np.arange(len(labels)) < len(dataset.train)
    one, other, same = _pairs(small)
    across = inside[one] != inside[other]
    conflict = labels[one] != labels[other]

    def tests(which: np.ndarray) -> set[int]:
        return {int(b if inside[a] else a) for a, b in zip(one[which], other[which], strict=True)}

    exactly = tests(across & same)
    nearly = tests(across & ~same) - exactly
    named = _named(parts, one, other, same, across, conflict)
    present = sizes[0][sizes[0] > 0]
    return Survey(
        name=dataset.name,
        classes=dataset.classes,
        train=tuple(map(int, sizes[0])),
        test=tuple(map(int, sizes[1])),
        unreadable=tuple(n for n in dataset.notes if n.startswith("skipped ")),
        imbalance=float(present.max() / present.min()) if len(present) else 1.0,
        exact=int((~across & same).sum()),
        near=int((~across & ~same).sum()),
        exact_across=len(exactly),
        near_across=len(nearly),
        two_labels=int(conflict.sum()),
        pairs=named,
        compared=len(labels) <= MOST,
    )


def _some(number: int, noun: str) -> str:
    """A number of things.

    >>> _some(1, "pair"), _some(2, "pair")
    ('1 pair', '2 pairs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def file_sizes(source: str) -> str | None:
    """Smallest, median and largest file of a folder of class folders, in pixels; else None."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return None
    roots = [root for root in parts_of(folder) if root is not None]
    sizes = [size for root in roots for size, _ in headers(list_files(root))[0]]
    ordered = sorted(sizes, key=lambda size: size[0] * size[1])
    low, middle, high = (ordered[position] for position in (0, len(ordered) // 2, -1))
    if low == high:
        return f"all images are {low[0]} x {low[1]}"
    shown = [f"{width} x {height}" for width, height in (low, middle, high)]
    return f"images are from {shown[0]} to {shown[2]} pixels, {shown[1]} in the middle"


def _small(images: ImageSet) -> np.ndarray:
    """Grey images of 64 x 64. (N, 64, 64) uint8"""
    grey_images = []
    for start in range(0, len(images), 256):
        pixels = images.pixels(np.arange(start, min(start + 256, len(images))))
        grey = resize(pixels, SIDE, SIDE).float().mean(1)
        grey_images.append(grey.round().byte().numpy())
    return np.concatenate(grey_images) if grey_images else np.zeros((0, SIDE, SIDE), dtype=np.uint8)


def _pairs(small: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of both images of each pair, and whether they are the same."""
    from imagehash import phash  # takes a while to import

    if not len(small) or len(small) > MOST:
        return _equal_pairs(small)
    bits = np.stack([phash(Image.fromarray(image)).hash.reshape(-1) for image in small])
    signs = np.where(bits, 1, -1).astype(np.float32)  # of a pair: 64 - 2 x bits that differ
    thumbs = small.reshape(len(small), 16, 4, 16, 4).mean((2, 4)).reshape(len(small), -1)
    first, second = [], []
    for start in range(0, len(small), 512):
        alike = signs[start : start + 512] @ signs.T >= 64 - 2 * BITS
        a, b = np.nonzero(alike)
        a += start
        similar = (a < b) & (np.abs(thumbs[a] - thumbs[b]).mean(1) < LEVELS)
        first.append(a[similar])
        second.append(b[similar])
    one, other = np.concatenate(first), np.concatenate(second)
    same = np.array([np.array_equal(small[a], small[b]) for a, b in zip(one, other, strict=True)])
    return one, other, same.astype(bool)


def _equal_pairs(small: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Only images that are the same, each with the first of its kind."""
    first: dict[bytes, int] = {}
    pairs_found = []
    for index, image in enumerate(small):
        before = first.setdefault(image.tobytes(), index)
        if before != index:
            pairs_found.append((before, index))
    pairs = np.array(pairs_found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], np.ones(len(pairs), dtype=bool)


def _named(
    parts: Sequence[ImageSet],
    one: np.ndarray,
    other: np.ndarray,
    same: np.ndarray,
    across: np.ndarray,
    conflict: np.ndarray,
) -> tuple[tuple[str, str, str], ...]:
    """The gravest pairs by name."""

    def name(index: int) -> str:
        train = len(parts[0])
        inside = index < train
        part = parts[0] if inside else parts[1]
        return f"{'train' if inside else 'test'}: {part.name(index if inside else index - train)}"

    order = np.lexsort((~same, ~conflict, ~across))[:SHOWN]
    return tuple(
        (
            " ".join(
                word
                for word, listed in (
                    ("same" if same[i] else "near", True),
                    ("across", across[i]),
                    ("two labels", conflict[i]),
                )
                if listed
            ),
            name(int(one[i])),
            name(int(other[i])),
        )
        for i in order
    )
