"""Survey of a data set before training: number of images, sizes, class balance and duplicates.

- *exact* duplicates have the same pixels, at 64 x 64.
- *near* duplicates have perceptual hashes (imagehash's phash, 64 bits) that differ in at most 4
  bits, and 16 x 16 thumbnails that differ by less than 10 of 255 on average: hashes of plain images
  agree by chance.

- *mirrored* copies are near duplicates of each other's mirror image, and not of each other.
  Training mirrors images, so that such a copy in the test set was trained on as well.

Accuracy on a test image that is also a training image says nothing about new images. Two labels of
one image cannot both be learned.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitascope.data.dataset import Dataset
from vitascope.data.images import ImageSet, resize
from vitascope.data.memory import headers
from vitascope.data.sources.folder import list_files, parts_of, passed_over
from vitascope.data.sources.load import GROUPS, NAMES, load

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
    mirrored: int = 0  # pairs within training or within test
    mirrored_across: int = 0  # test images whose mirror image is in the training set
    passed_over: Mapping[str, int] = field(default_factory=dict)  # other files, by their ending

    @property
    def across(self) -> int:
        """Test images with an exact or near duplicate among the training images."""
        return self.exact_across + self.near_across + self.mirrored_across

    @property
    def empty(self) -> tuple[str, ...]:
        """Classes without training images."""
        return tuple(name for name, n in zip(self.classes, self.train, strict=True) if not n)

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
            (self.mirrored, "pair", "of mirrored copies inside a part"),
            (self.two_labels, "pair", "of the same image with two labels"),
        )
        parts += [f"{_some(number, noun)} {finding}" for number, noun, finding in counts if number]
        if self.empty:
            names = ", ".join(self.empty[:5]) + (", ..." if len(self.empty) > 5 else "")
            parts.append(f"no training images of {names}: add some, or remove the folder")
        if self.passed_over:
            kinds = ", ".join(f"{number:,} {end}" for end, number in self.passed_over.items())
            parts.append(f"{_some(sum(self.passed_over.values()), 'file')} passed over ({kinds})")
        return "; ".join([*parts, *([self.leak] if self.leak else [])])

    @property
    def leak(self) -> str:
        """Say how many test images are duplicates of training images; empty if none are."""
        kinds = (
            (self.exact_across, "also in the training set, so accuracy is too good"),
            (self.near_across, "nearly the same as a training image"),
            (self.mirrored_across, "the mirror image of a training image"),
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
        alike = self.near_across + self.mirrored_across
        return bool(self.exact_across) or alike > MANY_ALIKE * sum(self.test)

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
            "empty": list(self.empty),
            "passed_over": dict(self.passed_over),
            "duplicates": {
                "exact": self.exact,
                "near": self.near,
                "exact_across": self.exact_across,
                "near_across": self.near_across,
                "mirrored": self.mirrored,
                "mirrored_across": self.mirrored_across,
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
    with _without_warnings():  # the survey names broken images
        result = survey(load(source, image_size=SIDE, empty_classes=True))
        other: dict[str, int] = {}
        for root in _roots(source):
            for ending, number in passed_over(root).items():
                other[ending] = other.get(ending, 0) + number
    return replace(result, passed_over=other)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep back warnings about broken images, and what Pillow says of odd but readable ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def _roots(source: str) -> list[Path]:
    """The folders of class folders that a source names; none for other sources."""
    folder = Path(source.partition(GROUPS)[0].partition(NAMES)[0]).expanduser()
    return [root for root in parts_of(folder) if root is not None] if folder.is_dir() else []


def survey(dataset: Dataset) -> Survey:
    """Look at images that were loaded; any size will do, they are compared at 64 x 64."""
    parts = [dataset.train, dataset.test]
    sizes = [np.bincount(part.labels, minlength=len(dataset.classes)) for part in parts]
    small = np.concatenate([_small(part) for part in parts])  # (N, 64 * 64) grey
    labels = np.concatenate([part.labels for part in parts])
    inside = np.arange(len(labels)) < len(dataset.train)
    signs = _signs(small) if 0 < len(small) <= MOST else None
    one, other, same = _pairs(small, signs)
    across = inside[one] != inside[other]
    conflict = labels[one] != labels[other]

    def tests_of(one: np.ndarray, other: np.ndarray, which: np.ndarray) -> set[int]:
        return {int(b if inside[a] else a) for a, b in zip(one[which], other[which], strict=True)}

    exactly = tests_of(one, other, across & same)
    nearly = tests_of(one, other, across & ~same) - exactly
    named = _named(parts, one, other, same, across, conflict)
    alike = set(zip(one.tolist(), other.tolist(), strict=True))
    left, right = _mirrored_pairs(small, signs, alike)
    mirrored_across = inside[left] != inside[right]
    kind = np.zeros(len(left), bool)
    named += _named(
        parts, left, right, kind, mirrored_across, labels[left] != labels[right], "mirrored"
    )
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
        pairs=named[:SHOWN],
        mirrored=int((~mirrored_across).sum()),
        mirrored_across=len(tests_of(left, right, mirrored_across) - exactly - nearly),
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
    roots = _roots(source)
    if not roots:
        return None
    with _without_warnings():
        files = [list_files(root, empty_classes=True) for root in roots]
        sizes = [size for each in files for size, _ in headers(each)[0]]
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


_Signs = tuple[np.ndarray, np.ndarray]  # hashes (N, 64), thumbnails (N, 256)


def _pairs(small: np.ndarray, signs: _Signs | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of both images of each pair, and whether they are the same."""
    if signs is None:
        return _equal_pairs(small)
    one, other = _similar(signs, signs)
    same = np.array([np.array_equal(small[a], small[b]) for a, b in zip(one, other, strict=True)])
    return one, other, same.astype(bool)


def _mirrored_pairs(
    small: np.ndarray, signs: _Signs | None, alike: set[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of images and of their mirrored copies; not of those that are alike as they are."""
    if signs is None:
        return np.zeros(0, int), np.zeros(0, int)
    one, other = _similar(signs, _signs(small[:, :, ::-1]))
    new = [pair not in alike for pair in zip(one.tolist(), other.tolist(), strict=True)]
    return one[np.array(new, bool)], other[np.array(new, bool)]


def _similar(ours: _Signs, theirs: _Signs) -> tuple[np.ndarray, np.ndarray]:
    """Positions a < b where image a is nearly the same as the other image b."""
    (signs, thumbs), (their_signs, their_thumbs) = ours, theirs
    first, second = [], []
    for start in range(0, len(signs), 512):
        alike = signs[start : start + 512] @ their_signs.T >= 64 - 2 * BITS
        a, b = np.nonzero(alike)
        a += start
        similar = (a < b) & (np.abs(thumbs[a] - their_thumbs[b]).mean(1) < LEVELS)
        first.append(a[similar])
        second.append(b[similar])
    return np.concatenate(first), np.concatenate(second)


def _signs(small: np.ndarray) -> _Signs:
    """Hashes as 1 and -1, of a pair 64 - 2 x bits that differ, and thumbnails of 16 x 16."""
    from imagehash import phash  # takes a while to import

    bits = np.stack([phash(Image.fromarray(image)).hash.reshape(-1) for image in small])
    thumbs = small.reshape(len(small), 16, 4, 16, 4).mean((2, 4)).reshape(len(small), -1)
    return np.where(bits, 1, -1).astype(np.float32), thumbs


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
    other_kind: str = "near",
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
                    ("same" if same[i] else other_kind, True),
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
