"""How far do numbers differ that are not shares of test images: units, spectra, correlations?

- :func:`contrast_of_numbers`: one number a run. V = sum_k w_k^2 s_k^2 / n_k with the variance of
  each cell by itself, t with Satterthwaite's degrees of freedom (Welch's test for two cells);
  columns of other units lend nothing. **No spread is not certainty**: a cell whose runs all gave
  the same number, or that has one run, takes the mean variance of the contrast's other cells, and
  no degrees of freedom; where no cell shows a spread, the noise and so the interval are unknown.
- :func:`contrast_of_batches`: a statistic of mini-batches (a spectrum), which are resampled.
- :func:`correlation`: Fisher's z, for Spearman's rank correlation with the variance
  (1 + r^2 / 2) / (n - 3) of Bonett and Wright (2000). |r| is at most 1 - 1 / n in it: n points on
  a line do not say that the next one is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitascope.errors import UserError
from vitascope.studies.stats.variance import ErrorVariance, Estimate

__all__ = ["Correlation", "contrast_of_batches", "contrast_of_numbers", "correlation"]

ROUNDING = 1e-9  # relative: a spread below this is that of floating point numbers


def contrast_of_numbers(
    cells: Sequence[Sequence[float]], weights: Sequence[float], *, same_runs: bool = False
) -> Estimate | None:
    """A contrast of means over runs; None where nothing shows the noise.

    Args:
        cells: One number a run each; logarithms where factors are compared.
        weights: Of the cells.
        same_runs: Cells are readings of the same runs, seed by seed.

    >>> found = contrast_of_numbers([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], (1, -1))
    >>> round(found.value, 1), round(found.high, 2)  # t with 4 degrees of freedom
    (-4.0, -1.73)
    """
    if len(cells) != len(weights) or not all(len(cell) for cell in cells):
        raise UserError("every cell of a contrast must have a weight and a number")
    if not all(np.isfinite(cell).all() for cell in cells):
        return None
    if same_runs:
        cells = [np.asarray(weights, float) @ np.stack([np.asarray(c, float) for c in cells])]
        weights = (1.0,)
    value = float(sum(w * np.mean(cell) for w, cell in zip(weights, cells, strict=True)))
    spreads = [_spread(np.asarray(cell, float)) for cell in cells]
    seen = [s for s in spreads if s is not None]
    if not seen:
        return None
    usual = float(np.mean(seen))
    total = below = above = 0.0
    for weight, cell, spread in zip(weights, cells, spreads, strict=True):
        piece = weight**2 * (usual if spread is None else spread) / len(cell)
        total += piece
        if spread is not None:
            above, below = above + piece, below + piece**2 / (len(cell) - 1)
    return Estimate.of(value, ErrorVariance(images=0.0, seeds=total, freedom=above**2 / below))


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

    The spread between runs has the batches' in it once more: the interval is on the careful side.
    """
    counts = {np.shape(cell)[1] for cell in cells}
    if len(counts) != 1 or min(counts) < 2:
        raise UserError(f"all runs must have the same two or more batches, not {sorted(counts)}")
    (count,) = counts
    rng = np.random.default_rng(seed)

    def of(chosen: np.ndarray) -> list[list[float]]:
        return [[float(statistic(run[chosen])) for run in cell] for cell in cells]

    def whole(found: list[list[float]]) -> float:
        return float(sum(w * np.mean(runs) for w, runs in zip(weights, found, strict=True)))

    drawn = [whole(of(rng.integers(count, size=count))) for _ in range(resamples)]
    batches = float(np.var(drawn, ddof=1)) * count / (count - 1)
    found = of(np.arange(count))
    between = contrast_of_numbers(found, weights)
    if between is None and (max(map(len, found)) > 1 or not batches):
        return None  # several runs without spread, or no noise at all
    runs = between.variance if between else ErrorVariance(images=0.0)
    both = ErrorVariance(images=batches, seeds=runs.seeds, freedom=runs.freedom,
                    images_freedom=count - 1)  # fmt: skip
    return Estimate.of(whole(found), both, one_run=between is None)


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
    first: Sequence[float],
    second: Sequence[float],
    kind: Literal["pearson", "spearman"] = "pearson",
) -> Correlation | None:
    """A correlation with its interval; None for fewer than four points, or where one is constant.

    >>> found = correlation([1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], "spearman")
    >>> round(found.value, 2), found.low < 0.4, found.high < 1
    (0.89, True, True)
    """
    from scipy import stats  # takes a second to import

    x, y = np.asarray(first, float), np.asarray(second, float)
    if x.shape != y.shape or x.ndim != 1:
        raise UserError(f"a correlation is of pairs of numbers, not of {x.shape} and {y.shape}")
    count = len(x)
    if count < 4 or not np.isfinite([x, y]).all() or not np.ptp(x) or not np.ptp(y):
        return None
    ranks = kind == "spearman"
    r = float((stats.spearmanr if ranks else stats.pearsonr)(x, y).statistic)
    clipped = float(np.clip(r, -1 + 1 / count, 1 - 1 / count))
    variance = (1 + clipped**2 / 2 if ranks else 1.0) / (count - 3)
    z = Estimate.of(np.arctanh(clipped), ErrorVariance(images=variance))
    low, high = (float(np.tanh(bound)) for bound in (z.low, z.high))
    return Correlation(r, low, high, z.p_value, z.variance)
