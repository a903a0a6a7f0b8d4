"""Which classes a model gets right, and the images it is most wrong about.

    accuracy of class k   a_k = right in k / images of k
    balanced accuracy     mean of a_k over the classes that have images

The surest mistakes have the lowest probability of the true class, the least sure hits the lowest
among images that are right: labels to check first, and what more images would help with.

Shapes: N images, K classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitascope.data import ImageSet
from vitascope.data.decoding import image_bytes
from vitascope.errors import UserError
from vitascope.training.predictions import Predictions

LISTS = ("surest_mistakes", "least_sure_hits")
SHOWN = 12  # images of each list
SIDE = 128  # pixels of a picture, at most: about 6 kB
LARGEST = 200  # classes of a confusion matrix that is kept


def confusion(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """How often class i was called j. (K, K) int64

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    cells = labels.astype(np.int64) * num_classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def mistakes(
    found: Predictions, classes: Sequence[str], images: ImageSet | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays for a record, among them small pictures of the images that are listed.

    Args:
        found: Of every image.
        classes: Their names.
        images: In the same order, for their files and pictures; None where they are not at hand.
    """
    matrix = confusion(found.label, found.predicted, len(classes))
    number, right = matrix.sum(1), matrix.diagonal()
    there = number > 0
    shares = right[there] / number[there]
    values: dict[str, Any] = {
        "balanced": float(shares.mean()),
        "per_class": [
            {"class": classes[k], "images": int(number[k]), "right": int(right[k])}
            for k in np.flatnonzero(there).tolist()
        ],
    }
    kept = {"confusion": matrix} if len(classes) <= LARGEST else {}
    if images is not None:
        order = np.argsort(found.probability, kind="stable")
        for name, which in zip(LISTS, (~found.correct, found.correct), strict=True):
            some = order[which[order]][:SHOWN].tolist()
            values[name] = [_line(found, classes, images, index) for index in some]
            kept |= _pictures(images, some)
    return values, kept


def _line(
    found: Predictions, classes: Sequence[str], images: ImageSet, index: int
) -> dict[str, Any]:
    """One image in a list."""
    sure = {} if found.confidence is None else {"confidence": float(found.confidence[index])}
    return {
        "file": images.name(index),
        "index": index,
        "label": classes[int(found.label[index])],
        "predicted": classes[int(found.predicted[index])],
        "probability": float(found.probability[index]),  # of the label
        **sure,
    }


def _pictures(images: ImageSet, some: Sequence[int]) -> dict[str, np.ndarray]:
    """Images as a model sees them, small, by position; a file that is gone has none."""
    pictures = {}
    for index in some:
        try:
            pictures[f"picture/{index}"] = image_bytes(images.pixels([index])[0], SIDE)
        except UserError:
            continue
    return pictures
