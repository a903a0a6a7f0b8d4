"""What twice the images would bring: a fitted learning curve, with its uncertainty.

Errors of classifiers fall about as a power of the number of training images,

    log e(n) = a - b log n + noise,    e(2 N) = e(N) 2^-b

(Hestness et al. 2017, https://arxiv.org/abs/1712.00409). The line is fitted to the probe on an
eighth, a quarter, a half and all of the images with every seed; the interval is the prediction
interval of a straight line at 2 N. It cannot be said where an error is 0, or where the slope may as
well be 0 or the line does not fit: its interval is wider than the error itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import linregress, t

SHARES = (0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Twice:
    """Accuracy in percent with twice the images; 95 % prediction interval."""

    now: float
    value: float
    low: float
    high: float


def twice(counts: Sequence[int], errors: Sequence[float]) -> Twice | None:
    """The accuracy at twice the largest count; None where it cannot be said.

    Args:
        counts: Training images of each measurement.
        errors: Shares that were wrong.

    >>> counts = [100, 200, 400, 800] * 2
    >>> found = twice(counts, [n**-0.5 * s for n, s in zip(counts, [1.01] * 4 + [0.99] * 4)])
    >>> round(found.value, 1), found.low < 97.5 < found.high
    (97.5, True)
    """
    x, e = np.log(np.asarray(counts, float)), np.asarray(errors, float)
    if len(e) < 4 or len(np.unique(x)) < 3 or (e <= 0).any():
        return None
    y = np.log(e)
    line = linregress(x, y)
    at = float(x.max() + np.log(2))
    freedom = len(x) - 2
    left = y - (line.intercept + line.slope * x)
    spread = np.sqrt((left**2).sum() / freedom)
    width = spread * np.sqrt(1 + 1 / len(x) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    half = float(t.ppf(0.975, freedom) * width)
    middle = float(line.intercept + line.slope * at)
    if line.slope >= 0 or line.pvalue > 0.05 or half > 1.0:
        return None
    value, low, high = (100 * (1 - np.exp(middle + d)) for d in (0.0, half, -half))
    now = 100 * (1 - float(e[x == x.max()].mean()))
    return Twice(now, float(value), max(0.0, float(low)), float(high))
