"""Bins of confidence: the reliability diagram and the expected calibration error (ECE).

    ECE = sum_m |B_m|/N |accuracy(B_m) - confidence(B_m)|

over M bins of equal width of the top confidence, (0, 1/M], ..., (1 - 1/M, 1]: closed on the right,
so that a confidence of 1.0 counts (Guo et al. 2017, https://arxiv.org/abs/1706.04599, M = 15).
Sums over images add up over batches and processes.
"""

from typing import Any

import numpy as np

__all__ = ["NUM_BINS", "bin_sums", "reliability"]

NUM_BINS = 15


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
