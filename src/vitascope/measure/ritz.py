"""How far may an eigenvalue be from its Ritz value?

A Ritz value θ with its vector x, |x| = 1, has an eigenvalue within r, and about within err
(Parlett, The Symmetric Eigenvalue Problem, 1998, 10-5 and 11-7):

    r = |Hx - θx|,      err = min(r, r^2 / gap),

with gap the distance to the nearest other Ritz value. The first is certain. The second is an
estimate, and much the sharper one: two eigenvalues closer than r may still pass for one.

Shapes: j Ritz values by falling magnitude, k of them wanted.
"""

import numpy as np

__all__ = ["error_bounds", "settled"]


def error_bounds(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """``min(r, r^2 / gap)`` of every Ritz value.

    >>> error_bounds(np.array([3.0, 1.0]), np.array([0.2, 4.0])).round(3).tolist()
    [0.02, 4.0]
    """
    apart = np.abs(values[:, None] - values[None, :])
    np.fill_diagonal(apart, np.inf)
    gap = apart.min(1) if len(values) > 1 else np.zeros(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sharp = np.where(residuals > 0, residuals**2 / gap, 0.0)
    return np.fmin(residuals, sharp)


def settled(values: np.ndarray, residuals: np.ndarray, k: int, tolerance: float) -> bool:
    """Whether the first ``k`` Ritz values, by falling magnitude, are found and stay the first."""
    if len(values) <= k:
        return False
    found = residuals[:k] <= tolerance * np.abs(values[:k])
    reach = np.abs(values[k:]) + error_bounds(values, residuals)[k:]
    return bool(found.all() and (reach <= (1 + tolerance) * abs(values[k - 1])).all())
