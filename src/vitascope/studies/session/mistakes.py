"""Which classes a model gets right, and the images it is most wrong about.

    accuracy of class k   a_k = right in k / images of k
    balanced accuracy     mean of a_k over the classes that have images

The surest mistakes have the lowest probability of the true class, the least sure hits the lowest
among images that are right: labels to check first, and what more images would help with.

Shapes: N images, K classes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vitascope.train.predictions import Predictions

__all__ = ["confusion", "mistakes"]

SHOWN = 12  # images of each list
LARGEST = 200  # classes of a confusion matrix that is kept


def confusion(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """How often class i was called j. (K, K) int64

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    cells = labels.astype(np.int64) * num_classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def mistakes(
    found: Predictions, classes: Sequence[str], name: Callable[[int], str] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays for a record.

    Args:
        found: Of every image.
        classes: Their names.
        name: Of the image at a position; None where that is not known.
    """
    matrix = confusion(found.label, found.predicted, len(classes))
    images, right = matrix.sum(1), matrix.diagonal()
    there = images > 0
    shares = right[there] / images[there]
    values: dict[str, Any] = {
        "balanced": float(shares.mean()),
        "per_class": [
            {"class": classes[k], "images": int(images[k]), "right": int(right[k])}
            for k in np.flatnonzero(there).tolist()
        ],
    }
    if name is not None:
        order = np.argsort(found.probability, kind="stable")

        def listed(which: np.ndarray) -> list[dict[str, Any]]:
            return [
                {
                    "file": name(int(i)),
                    "label": classes[int(found.label[i])],
                    "predicted": classes[int(found.predicted[i])],
                    "probability": float(found.probability[i]),
                }
                for i in order[which[order]][:SHOWN]
            ]

        values |= {
            "surest_mistakes": listed(~found.correct),
            "least_sure_hits": listed(found.correct),
        }
    kept = {"confusion": matrix} if len(classes) <= LARGEST else {}
    return values, kept
