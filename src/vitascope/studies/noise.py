"""How far numbers from few runs and few test images can be trusted.

Two errors are told apart: the spread between seeds, s^2 pooled over a whole table because two or
three seeds alone say little, and the size of the test set, p (1 - p) / N_test of an accuracy p.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy import stats

__all__ = ["half_interval", "half_width", "pooled_spread", "sampling"]


def pooled_spread(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Variance within groups, and its degrees of freedom.

    >>> pooled_spread([[1.0, 3.0], [10.0, 12.0]])
    (2.0, 2)
    """
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return (squares / freedom if freedom else 0.0), freedom


def sampling(percent: float, tests: int) -> float:
    """Variance of an accuracy by its test images, in points squared; never nothing.

    >>> round(sampling(80.0, 400), 6), sampling(100.0, 50) == sampling(99.0, 50)
    (4.0, True)
    """
    share = min(max(percent / 100, 1 / (2 * tests)), 1 - 1 / (2 * tests))
    return 1e4 * share * (1 - share) / tests


def half_interval(variance: float, freedom: int) -> float:
    """Half of a 95 % interval: Student's t with the pooled degrees of freedom, normal with none."""
    quantile = stats.t.ppf(0.975, freedom) if freedom else stats.norm.ppf(0.975)
    return float(quantile) * sqrt(variance)


def half_width(
    mean: float, reference: float, counts: tuple[int, int], spread: tuple[float, int], tests: int
) -> float:
    """Half of the 95 % interval of ``mean - reference``, in points; both at their mean accuracy."""
    by_seeds = spread[0] / counts[0] + spread[0] / counts[1]
    return half_interval(by_seeds + 2 * sampling((mean + reference) / 2, tests), spread[1])
