"""The classes of a trained model, and other images matched to them by name.

A run keeps the names of its classes in the order of its outputs. Images from elsewhere may have
some of them, in any order: their labels become the numbers of the run's outputs. A name that the
run does not know is an error, unless it is mapped to one that it knows. A model without names is
joined by position, and only if it has as many outputs as the images have classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vitascope.data import Dataset, Subset, subset
from vitascope.data.images import ImageSet
from vitascope.errors import UserError, listed, unknown

IMAGENET = 1000  # outputs of which ``Dataset.class_map`` names some


def class_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """``NEW=KNOWN`` words as a mapping from a class of the images to a class of the model.

    >>> class_pairs(["puppy=dog", "kitten=cat"])
    {'puppy': 'dog', 'kitten': 'cat'}
    """
    mapping: dict[str, str] = {}
    for word in pairs:
        new, equals, old = word.partition("=")
        if not (equals and new and old):
            raise UserError(f"--map-classes takes NEW=KNOWN, such as puppy=dog, not {word!r}")
        if mapping.setdefault(new, old) != old:
            raise UserError(f"--map-classes maps {new} to {mapping[new]} and to {old}; give one")
    return mapping


def columns(
    theirs: Sequence[str], known: Sequence[str], given: Mapping[str, str] | None = None
) -> np.ndarray:
    """The model's output for each class of the images.

    Args:
        theirs: Classes of the images.
        known: Classes of the model, in the order of its outputs.
        given: Class of the images -> class of the model, where the names differ.

    >>> columns(["b", "pup"], ["a", "b", "dog"], {"pup": "dog"}).tolist()
    [1, 2]

    Raises:
        UserError: If there is a name that the model does not know.
    """
    given, numbers = given or {}, {name: number for number, name in enumerate(known)}
    for new, old in given.items():
        if new not in theirs:
            raise unknown("class of the images", new, theirs)
        if old not in numbers:
            raise unknown("class of the model", old, known)
    strangers = [name for name in theirs if given.get(name, name) not in numbers]
    if strangers:
        raise UserError(
            f"the model does not know {listed(strangers)}: it knows {listed(known)}; the images "
            f"have {listed(theirs)}; map the names that differ with --map-classes NEW=KNOWN"
        )
    return np.array([numbers[given.get(name, name)] for name in theirs], dtype=np.int64)


def relabelled(images: ImageSet, numbers: np.ndarray, known: Sequence[str]) -> ImageSet:
    """Return the images with labels that are numbers of the ``known`` classes."""
    result = images.take(np.arange(len(images)))
    result.labels = numbers[result.labels]
    return result.of_classes(tuple(known))


def relabelled_like(
    images: ImageSet,
    *,
    first: Sequence[str],
    known: Sequence[str],
    given: Mapping[str, str] | None = None,
) -> ImageSet:
    """More images next to some that were joined already, such as their corrupted versions.

    Args:
        images: With names for their classes; or numbers "0", "1", ..., as CIFAR-C has them, which
            are positions among the ``first`` ones.
        first: Classes of the images that were joined before.
        known: Classes of the model.
        given: See :func:`columns`.

    Raises:
        UserError: If they have other classes.
    """
    names = images.classes
    if names == tuple(map(str, range(len(names)))) and len(names) <= len(first):
        names = tuple(first[: len(names)])
    used = np.unique(images.labels)
    present = [names[label] for label in used]
    numbers = np.full(len(names), -1)
    mapped = {new: old for new, old in (given or {}).items() if new in present}
    numbers[used] = columns(present, known, mapped)
    return relabelled(images, numbers, known)


def joined(
    images: Dataset,
    known: Sequence[str] | None,
    outputs: int,
    *,
    given: Mapping[str, str] | None = None,
    strict: bool = True,
    first_classes: int | None = None,
) -> Dataset:
    """The images with the labels of a model; ``notes`` says how, unless the classes are the same.

    Args:
        images: From anywhere. Some of ImageNet's classes before a model of all 1000 stay as they
            are: ``class_map`` picks their columns.
        known: Classes of the model; None if unknown.
        outputs: Of the model.
        given: See :func:`columns`.
        strict: Names decide; otherwise, as with a Hugging Face model that calls its classes by
            other words, images that share no name with it are joined by position.
        first_classes: The images are the model's own, and it was trained on this many classes.

    Raises:
        UserError: If they do not go together.
    """
    if first_classes is not None and len(images.classes) > first_classes:
        images = _narrowed(images, first_classes)
    if images.class_map is not None and outputs == IMAGENET != len(images.classes):
        return images
    if known is None or (not strict and not given and not {*known} & {*images.classes}):
        return _by_position(images, outputs, given)
    if tuple(known) == images.classes and not given:
        return images
    numbers = columns(images.classes, known, given)
    mapped = "".join(f", {new} as {old}" for new, old in (given or {}).items())
    share = f"{len(np.unique(numbers))} of the model's {len(known)} classes"
    sets = images.label_sets
    return replace(
        images,
        train=relabelled(images.train, numbers, known),
        test=relabelled(images.test, numbers, known),
        classes=tuple(known),
        label_sets=None if sets is None else tuple(frozenset(numbers[[*s]].tolist()) for s in sets),
        notes=(*images.notes, f"classes are matched by name: {share}{mapped}"),
    )


def _by_position(images: Dataset, outputs: int, given: Mapping[str, str] | None) -> Dataset:
    count = len(images.classes)
    if given:
        raise UserError("--map-classes needs the model's class names, and nobody kept them")
    if count != outputs:
        raise UserError(
            f"the model has {outputs} outputs without names, the images {count} classes "
            f"({listed(images.classes)}); give images of all its classes, in their order"
        )
    note = f"classes are matched by position: the model has no names for its {outputs}"
    return replace(images, notes=(*images.notes, note))


def _narrowed(images: Dataset, first_classes: int) -> Dataset:
    """The classes that ``first_classes`` of a recipe keeps."""
    spec = Subset(first_classes=first_classes)
    train, test = (subset(part, spec) for part in (images.train, images.test))
    note = f"the {first_classes} classes the model was trained on"
    notes = (*images.notes, note)
    return replace(images, train=train, test=test, classes=test.classes, notes=notes)
