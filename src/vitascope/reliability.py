"""Bins of confidence: the reliability diagram and the expected calibration error (ECE).

    ECE = sum_m |B_m|/N |accuracy(B_m) - confidence(B_m)|

over M bins of equal width of the top confidence, (0, 1/M], ..., (1 - 1/M, 1]: closed on the right,
so that a confidence of 1.0 counts (Guo et al. 2017, https://arxiv.org/abs/1706.04599, M = 15).
Sums over images add up over batches and processes.

Two relatives need the images themselves. **Adaptive ECE** has bins of equal numbers of images, so
no bin is empty and none holds them all (Nixon et al. 2019, https://arxiv.org/abs/1904.01685).
**Class-wise ECE** is the mean over the K classes of the ECE of that class's probability, whether or
not it is the top one (Kull et al. 2019, https://arxiv.org/abs/1910.12656). A bin's accuracy has
Wilson's 95 % interval.
"""

from typing import Any

import numpy as np

NUM_BINS = 15
TOO_WIDE = 60  # percentage points: an interval as wide as this says nothing


def bin_sums(confidence: np.ndarray, hit: np.ndarray, num_bins: int = NUM_BINS) -> np.ndarray:
    """Count, summed confidence and hits of each bin. (3, M)

    >>> bin_sums(np.array([0.4, 0.5, 1.0]), np.array([0, 1, 1]), 2).tolist()
    [[2.0, 1.0], [0.9, 1.0], [1.0, 1.0]]
    """
    index = np.searchsorted(np.linspace(0, 1, num_bins + 1)[1:-1], confidence, side="left")
    rows = (None, confidence, hit)
    return np.stack([np.bincount(index, row, num_bins).astype(float) for row in rows])


def reliability(sums: np.ndarray) -> dict[str, Any]:
    """``ece`` and per bin ``bin_count``, ``bin_confidence`` and ``bin_accuracy``, 0 where empty.

    Args:
        sums: Of all images, from :func:`bin_sums`. (3, M)
    """
    count, confidence, hits = sums
    filled = np.maximum(count, 1)
    return {
        "ece": float(np.abs(hits - confidence).sum() / count.sum()),
        "bin_count": tuple(int(number) for number in count),
        "bin_confidence": tuple((confidence / filled).tolist()),
        "bin_accuracy": tuple((hits / filled).tolist()),
    }


def with_intervals(sums: np.ndarray) -> dict[str, Any]:
    """Like :func:`reliability`, with ``bin_low`` and ``bin_high`` of each bin's accuracy."""
    low, high = wilson(sums[2], sums[0])
    ends = {"bin_low": tuple(low.tolist()), "bin_high": tuple(high.tolist())}
    return {**reliability(sums), **ends}


def adaptive_sums(confidence: np.ndarray, hit: np.ndarray, num_bins: int = NUM_BINS) -> np.ndarray:
    """Like :func:`bin_sums` with bins of equal numbers of images, by confidence. (3, M)

    >>> adaptive_sums(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 1, 0, 1]), 2).round(3).tolist()
    [[2.0, 2.0], [1.3, 1.7], [1.0, 2.0]]
    """
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, num_bins) if len(part)]
    rows = [(len(part), confidence[part].sum(), hit[part].sum()) for part in parts]
    return np.array(rows, dtype=float).T


def class_wise(
    probabilities: np.ndarray, labels: np.ndarray, num_bins: int = NUM_BINS
) -> np.ndarray:
    """The ECE of each class's probability; their mean is the class-wise ECE. (N, K) -> (K,)

    >>> class_wise(np.array([[0.75, 0.25], [0.75, 0.25]]), np.array([0, 1])).round(6).tolist()
    [0.25, 0.25]
    """
    errors = []
    for number, column in enumerate(probabilities.T):
        sums = bin_sums(np.minimum(column, 1.0), (labels == number).astype(float), num_bins)
        errors.append(np.abs(sums[2] - sums[1]).sum() / len(labels))
    return np.array(errors)


def wilson(
    hits: np.ndarray, count: np.ndarray, z: float = 1.959964
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share, 95 % unless stated; from 0 to 1 where nothing was counted.

    >>> low, high = wilson(np.array([5.0]), np.array([10.0]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.237], [0.763])
    """
    number = np.maximum(count, 1)
    share, over = hits / number, 1 + z**2 / number
    middle = (share + z**2 / (2 * number)) / over
    half = z / over * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    empty = count == 0
    return np.where(empty, 0.0, middle - half), np.where(empty, 1.0, middle + half)
