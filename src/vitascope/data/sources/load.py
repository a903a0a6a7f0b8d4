"""From one string to a data set.

=================================== ===========================================================
``digits``                          scikit-learn's 1,797 handwritten digits, 8 x 8
``path/to/folder``                  class folders, or ``train`` next to ``test`` or ``val``
``csv:labels.csv``                  path, label, optionally split and group
``cifar10:/path`` ``cifar100:/path``  the python archive, packed or not
``idx:/folder``                     MNIST's four files, packed or not
``fashion-mnist``                   the same, where Debian's dataset-fashion-mnist puts them
``hf:name`` ``hf:name:config``      Hugging Face, a folder of ``save_to_disk`` or from the hub
``wds:train-{000..099}.tar``        WebDataset shards; ``?test=pattern`` for a test set
``imagenet:/path``                  synset folders in ``train`` and ``val``, or ``val`` alone
``imagenet-v2:/path``               folders 0 to 999
``imagenet-a:/path``                folders of 200 synsets
``imagenet-real:/val?labels=file``  sets of labels; without ``?labels=`` timm's copy of them
=================================== ===========================================================

    >>> dataset = load("digits")
    >>> len(dataset.train), len(dataset.test), dataset.notes
    (1438, 359, ('split 20 % off for testing, stratified, seed 0',))
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitascope.data.dataset import Dataset
from vitascope.data.images import FileImages, MemoryImages
from vitascope.data.memory import gather
from vitascope.data.sources import imagenet
from vitascope.data.sources.archives import (
    FASHION_CLASSES,
    cifar,
    digits,
    fashion_mnist_folder,
    idx,
)
from vitascope.data.sources.assemble import Parts, Request, complete, in_form
from vitascope.data.sources.folder import existing, list_files, parts_of, read_table
from vitascope.data.sources.given import GivenImages
from vitascope.errors import UserError, reason, unknown

__all__ = ["described", "load", "sources"]


def read_digits(_: str, request: Request) -> Parts:
    """Read scikit-learn's digits."""
    return Parts(train=in_form(digits(), request), flips=False)


def read_folder(path: str, request: Request) -> Parts:
    """Class folders, with a test set next to them or not."""
    train_root, test_root = parts_of(existing(path))
    empty = request.empty_classes
    files, tests = list_files(train_root, empty_classes=empty), None
    if test_root:
        tests = list_files(test_root, files.classes, empty_classes=empty)
    return from_files(files, tests, request)


def from_files(train_files: FileImages, test_files: FileImages | None, request: Request) -> Parts:
    """Bring files into memory, or leave them where they are too many."""
    train_files = grouped(train_files, request.groups)
    test_files = None if test_files is None else grouped(test_files, request.groups)
    for files in (train_files, test_files):
        if files is not None:
            files.crop_pct, files.interpolation = request.crop_pct or 1.0, request.interpolation
    train, notes = gather(train_files, image_size=request.image_size, in_chans=request.in_chans)
    if test_files is None:
        return Parts(train=train, notes=notes)
    channels, height, _ = train.size
    test, more = gather(test_files, image_size=height, in_chans=channels)
    return Parts(train=train, test=test, notes=notes + more)


def grouped(files: FileImages, pattern: str | None) -> FileImages:
    """Files whose groups are what a pattern finds in their names, unless they have groups.

    Raises:
        UserError: If it is no pattern, or does not match.
    """
    if pattern is None or files.groups is not None:
        return files
    try:
        matches = [re.search(pattern, files.name(index)) for index in range(len(files))]
    except re.error as error:
        raise UserError(f"--groups {pattern!r} is no pattern: {error}") from None
    if None in matches:
        name = files.name(matches.index(None))
        raise UserError(f"--groups {pattern!r} is nowhere in {name}; give one that every file has")
    return files.of_groups([each.group(each.lastindex or 0) for each in matches if each])


def from_memory(pair: tuple[MemoryImages, MemoryImages], request: Request, flips: bool) -> Parts:
    """Training and test images that were read whole."""
    train, test = (in_form(images, request) for images in pair)
    return Parts(train=train, test=test, flips=flips)


def read_cifar(which: str, path: str, request: Request) -> Parts:
    """CIFAR's python archive; of CIFAR-100 the fine labels."""
    return from_memory(cifar(which, path), request, flips=True)


def read_idx(path: str, request: Request) -> Parts:
    """MNIST or one like it; a mirrored digit is another sign, so no flips."""
    fashion = "fashion" in Path(path).name.lower()
    return from_memory(idx(path, FASHION_CLASSES if fashion else None), request, flips=fashion)


def read_fashion(_: str, request: Request) -> Parts:
    """Fashion-MNIST where Debian puts it."""
    return from_memory(idx(fashion_mnist_folder(), FASHION_CLASSES), request, flips=True)


def read_csv(source: str, request: Request) -> Parts:
    """A table of paths and labels."""
    return from_files(*read_table(source, request.groups), request)


def read_hub(source: str, request: Request) -> Parts:
    """A Hugging Face data set."""
    from vitascope.data.sources.hub import hub

    return from_files(*hub(source), request)


def read_shards(source: str, request: Request) -> Parts:
    """WebDataset shards, for instance ``train-*.tar?test=val-*.tar``."""
    from vitascope.data.sources.shards import shards

    pattern, _, query = source.partition("?test=")
    train = shards(pattern)
    if not query:
        return from_files(train, None, request)
    test = shards(query)
    classes = max(train.classes, test.classes, key=len)
    return from_files(train.of_classes(classes), test.of_classes(classes), request)


# Sources that take nothing, and those that take something after a colon.
NAMED: dict[str, Callable[[str, Request], Parts]] = {
    "digits": read_digits,
    "fashion-mnist": read_fashion,
}
PREFIXED: dict[str, Callable[[str, Request], Parts]] = {
    "cifar10": partial(read_cifar, "cifar10"),
    "cifar100": partial(read_cifar, "cifar100"),
    "csv": read_csv,
    "hf": read_hub,
    "idx": read_idx,
    "imagenet": imagenet.read_imagenet,
    "imagenet-a": imagenet.read_a,
    "imagenet-real": imagenet.read_real,
    "imagenet-v2": imagenet.read_v2,
    "wds": read_shards,
}


GROUPS, NAMES = "?groups=", "?names="  # what may follow a source, as --groups and --class-names do


def described(source: str, groups: str | None = None, class_names: str | None = None) -> str:
    """One string for a source with its groups and class names.

    >>> described("photos/", "p[0-9]+", "names.csv")
    'photos/?names=names.csv?groups=p[0-9]+'
    """
    named = f"{NAMES}{class_names}" if class_names else ""
    return f"{source}{named}{GROUPS}{groups}" if groups else f"{source}{named}"


def sources() -> tuple[str, ...]:
    """List the sources that ``load`` takes besides the path of a folder."""
    return (*NAMED, *(f"{prefix}:" for prefix in PREFIXED))


def load(
    source: str,
    *,
    image_size: int | None = None,
    in_chans: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    crop_pct: float | None = None,
    interpolation: str = "bicubic",
    empty_classes: bool = False,
) -> Dataset:
    """The data set that ``source`` names.

    Args:
        source: A name, a prefix with a path, or a folder; see the top of this module. Or images
            that are given in Python (:class:`vitascope.data.sources.given.GivenImages`).
        image_size: Side of the square images; None: as they are.
        in_chans: 1 (grey) or 3; None: as they are.
        test_fraction: Share of each class for testing, where the source has no test set; 0 leaves
            it empty, 1 leaves no training images.
        seed: Of that split.
        crop_pct: Share of the resized image that the centre crop keeps; None: the source's own,
            which is 1 but for ImageNet.
        interpolation: How images are resized: bicubic or bilinear.
        empty_classes: Take class folders without images, too, as a survey does.

    Raises:
        UserError: If there is no such source, or it cannot be used.
    """
    if "\0" in source:
        raise UserError(f"the data source {source!r:.80} has a NUL character; leave it out")
    if in_chans not in (None, 1, 3):
        raise UserError(f"in_chans {in_chans} is not possible; give 1 (grey) or 3 (colour)")
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size {image_size} is out of range; give the side in pixels")
    if crop_pct is not None and not 0 < crop_pct <= 1:
        raise UserError(f"crop_pct {crop_pct} is out of range; give a share of the image, up to 1")
    if interpolation not in ("bicubic", "bilinear"):
        raise UserError(f"unknown interpolation {interpolation!r}; there are: bicubic, bilinear")
    request = Request(
        image_size=image_size,
        in_chans=in_chans,
        test_fraction=test_fraction,
        seed=seed,
        crop_pct=crop_pct,
        interpolation=interpolation,
        empty_classes=empty_classes,
    )
    if isinstance(source, GivenImages):
        return complete(source, source.read(request), request)
    if not source.strip():
        raise UserError("the data source is empty; give digits, or the path of a folder")
    if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", source):
        raise UserError(f"the data source {source!r:.200} has a line break or the like in its name")
    name = source
    source, _, groups = source.partition(GROUPS)
    source, _, readable = source.partition(NAMES)
    request = replace(request, groups=groups or None)
    prefix, colon, location = source.partition(":")
    if source in NAMED:
        parts = NAMED[source]("", request)
    elif colon and prefix in PREFIXED and location:
        parts = PREFIXED[prefix](location, request)
    elif os.path.exists(os.path.expanduser(source)) or "/" in source:
        parts = read_folder(source, request)
    elif prefix in PREFIXED:
        raise UserError(f"{source!r} needs something after the colon: {prefix}:/path")
    else:
        error = unknown("data source", source, [*NAMED, *PREFIXED])
        raise UserError(f"{error}; or give the path of a folder that holds class folders")
    made = complete(name, parts, request)
    if groups and made.train.groups is None:
        raise UserError(
            f"--groups needs images that are files, such as a folder or csv:, not {source}"
        )
    return with_class_names(made, readable) if readable else made


def with_class_names(dataset: Dataset, file: str) -> Dataset:
    """The data set with readable names: lines of ``folder,name`` or ``folder name``.

    Raises:
        UserError: If the file cannot be read, or two classes get one name.
    """
    try:
        lines = existing(file, "file").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"{file:.200} cannot be read: {reason(error)}") from None
    readable = {}
    for line in lines:
        short, _, long = line.partition("," if "," in line else " ")
        readable[short.strip()] = long.strip().strip('"')
    names = tuple(readable.get(name) or name for name in dataset.classes)
    if names == dataset.classes:
        raise UserError(f"{file} names none of the classes {', '.join(names[:5])}, …")
    if len(set(names)) != len(names):
        raise UserError(f"{file} gives two classes one name")
    parts = {name: getattr(dataset, name).of_classes(names) for name in ("train", "test")}
    return replace(dataset, classes=names, **parts)
