"""How far do numbers differ that are not shares of test images: units, spectra, correlations?

- :func:`contrast_of_numbers`: one number per run. V = sum_k w_k^2 s_k^2 / n_k with the variance of
  each cell by itself, t with Satterthwaite's degrees of freedom (Welch's test for two cells);
  columns of other units lend nothing. **No spread is not certainty**: a cell whose runs all gave
  the same number, or that has one run, takes the mean variance of the contrast's other cells, and
  no degrees of freedom; where no cell shows a spread, the noise and so the interval are unknown.
- :func:`contrast_of_batches`: a statistic of mini-batches (a spectrum), which are resampled. As
  with images, V = V_batches + max(0, V_runs - V_residual): V_batches is the variance of the
  resampled contrast, V_residual what batches have put into the spread between runs.
- :func:`correlation`: Fisher's z, for Spearman's rank correlation with the variance
  (1 + r^2 / 2) / (n - 3) of Bonett and Wright (2000). |r| is at most 1 - 1 / n in it: n points on
  a line do not say that the next one is. Of several runs on the same points, the mean of z has the
  variance of one (the points are the same) and that of the runs' z over their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vitascope.errors import UserError
from vitascope.stats.variance import ErrorVariance, Estimate

__all__ = ["Correlation", "contrast_of_batches", "contrast_of_numbers", "correlation"]

ROUNDING = 1e-9  # relative: a spread below this is that of floating point numbers


def contrast_of_numbers(
    cells: Sequence[Sequence[float]], weights: Sequence[float], *, sampling: float = 0.0
) -> Estimate | None:
    """A contrast of means over runs; None where nothing shows the noise.

    Args:
        cells: One number per run each; logarithms where factors are compared. Readings of the same
            runs are combined seed by seed first.
        weights: Of the cells.
        sampling: Variance of the contrast by what all runs were measured on, where it is known.

    >>> result = contrast_of_numbers([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], (1, -1))
    >>> round(result.value, 1), round(result.high, 2)  # t with 4 degrees of freedom
    (-4.0, -1.73)
    """
    if len(cells) != len(weights) or not all(len(cell) for cell in cells):
        raise UserError("every cell of a contrast must have a weight and a number")
    if not all(np.isfinite(cell).all() for cell in cells):
        return None
    value = float(sum(w * np.mean(cell) for w, cell in zip(weights, cells, strict=True)))
    spreads = [_spread(np.asarray(cell, float)) for cell in cells]
    measured = [s for s in spreads if s is not None]
    if not measured:
        return None
    usual = float(np.mean(measured))
    total = below = above = 0.0
    for weight, cell, spread in zip(weights, cells, spreads, strict=True):
        piece = weight**2 * (usual if spread is None else spread) / len(cell)
        total += piece
        if spread is not None:
            above, below = above + piece, below + piece**2 / (len(cell) - 1)
    variance = ErrorVariance(images=sampling, seeds=total, freedom=above**2 / below)
    return Estimate.of(value, variance)


def _spread(cell: np.ndarray) -> float | None:
    """ErrorVariance over runs; None where there is one run, or no spread."""
    if len(cell) < 2 or np.ptp(cell) <= ROUNDING * np.abs(cell).max():
        return None
    return float(cell.var(ddof=1))


def contrast_of_batches(
    cells: Sequence[np.ndarray],
    weights: Sequence[float],
    statistic: Callable[[np.ndarray], float] = np.mean,
    *,
    resamples: int = 200,
    seed: int = 0,
) -> Estimate | None:
    """A contrast of a statistic of mini-batches, the same ones in every run; None as above.

    Args:
        cells: Each (runs, batches, ...): what every mini-batch gave in every run.
        statistic: Of the (batches, ...) of one run: a mean, a share above zero, a quantile.
        resamples: How often the batches are drawn anew, with replacement.
        seed: Of these draws.

    Batches may be the same in every run or others in each: both are covered.
    """
    counts = {np.shape(cell)[1] for cell in cells}
    if len(counts) != 1 or min(counts) < 2:
        raise UserError(f"all runs must have the same two or more batches, not {sorted(counts)}")
    (count,) = counts
    rng = np.random.default_rng(seed)

    def of(chosen: np.ndarray) -> list[np.ndarray]:
        return [np.array([float(statistic(run[chosen])) for run in cell]) for cell in cells]

    statistics = of(np.arange(count))
    draws = [of(rng.integers(count, size=count)) for _ in range(resamples)]
    drawn = [np.stack(cell) for cell in zip(*draws, strict=True)]  # (resamples, runs) each
    valid = np.isfinite(np.concatenate(drawn, axis=1)).all(1)  # a draw may have no such eigenvalue
    if not all(np.isfinite(runs).all() for runs in statistics) or valid.sum() < resamples / 2:
        return None
    correction = count / (count - 1)
    whole = np.asarray(sum(w * cell.mean(1) for w, cell in zip(weights, drawn, strict=True)))
    batches = float(whole[valid].var(ddof=1)) * correction
    residual = 0.0
    for weight, cell in zip(weights, drawn, strict=True):
        runs = cell.shape[1]
        if runs > 1:
            left = (cell - cell.mean(1, keepdims=True))[valid].var(0, ddof=1).sum() / (runs - 1)
            residual += weight**2 * float(left) * correction / runs
    between = contrast_of_numbers(statistics, weights)  # type: ignore[arg-type]
    if between is None and (max(map(len, statistics)) > 1 or not batches):
        return None  # several runs without spread, or no noise at all
    value = float(sum(w * runs.mean() for w, runs in zip(weights, statistics, strict=True)))
    if between is None:
        alone = ErrorVariance(images=batches, images_freedom=count - 1)
        return Estimate.of(value, alone, one_run=True)
    return Estimate.of(
        value,
        replace(between.variance, images=batches, residual=residual, images_freedom=count - 1),
    )


@dataclass(frozen=True)
class Correlation(Estimate):
    """A correlation; its variance is that of Fisher's z."""

    def p_at(self, margin: float) -> float:
        """Two-sided p-value of the true correlation being ``margin``."""
        centre = (np.arctanh(self.low) + np.arctanh(self.high)) / 2
        return 2 * (1 - float(self.variance.confidence(abs(centre - np.arctanh(margin)))))

    @property
    def detectable(self) -> float:
        """The smallest correlation that would be found four times of five."""
        return float(np.tanh(super().detectable))


def correlation(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    kind: Literal["pearson", "spearman"] = "pearson",
) -> Correlation | None:
    """A correlation with its interval; None for fewer than four points, or where one is constant.

    Args:
        first: A number a point; or (runs, points), the same points in every run.
        second: As the first.
        kind: Of the numbers, or of their ranks.

    >>> result = correlation([1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], "spearman")
    >>> round(result.value, 2), result.low < 0.4, result.high < 1
    (0.89, True, True)
    """
    from scipy import stats  # takes a second to import

    x, y = np.asarray(first, float), np.asarray(second, float)
    if x.shape != y.shape or x.ndim not in (1, 2):
        raise UserError(f"a correlation is of pairs of numbers, not of {x.shape} and {y.shape}")
    runs, count = len(np.atleast_2d(x)), x.shape[-1]
    if count < 4 or not np.isfinite([x, y]).all() or not np.ptp(x, -1).all():
        return None
    if not np.ptp(y, -1).all():
        return None
    of = stats.spearmanr if kind == "spearman" else stats.pearsonr
    pairs = zip(np.atleast_2d(x), np.atleast_2d(y), strict=True)
    r = np.array([float(of(*pair).statistic) for pair in pairs])
    clipped = np.clip(r, -1 + 1 / count, 1 - 1 / count)
    z, square = np.arctanh(clipped), float(np.mean(clipped**2))
    points = (1 + square / 2 if kind == "spearman" else 1.0) / (count - 3)
    variance = ErrorVariance(images=points)
    if runs > 1:
        variance = replace(variance, seeds=float(z.var(ddof=1)) / runs, freedom=float(runs - 1))
    estimate = Estimate.of(float(z.mean()), variance)
    low, high = (float(np.tanh(bound)) for bound in (estimate.low, estimate.high))
    alone = x.ndim == 2 and runs == 1
    return Correlation(float(r.mean()), low, high, estimate.p_value, estimate.variance, alone)
