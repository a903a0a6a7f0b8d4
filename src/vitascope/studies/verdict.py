"""Does what we measured agree with what the paper claims?

A claim is a contrast of table cells that the paper predicts to be above a margin (zero as a rule):

    c = sum_k w_k m_k,    var(c) = sum_k w_k^2 (s^2 / n_k + p_k (1 - p_k) / N_test),

m_k the mean of a cell over its n_k seeds, s^2 the variance within cells pooled over the whole
table, because two or three seeds alone say little; the second term stands for the finite test set
and is there for accuracies alone, in percentage points squared. It agrees when the 95 % interval
lies above the margin, disagrees when it lies below, and is within noise otherwise. With one seed a
cell and no test set to count there is no noise to compare with: that is within noise too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Literal

from vitascope.studies.noise import half_interval, pooled_spread, sampling

__all__ = ["Judgement", "Verdict", "judge"]

Verdict = Literal["agrees", "disagrees", "within noise"]
Cells = Mapping[tuple[str, str], Sequence[float]]


@dataclass(frozen=True)
class Judgement:
    """A verdict with its numbers."""

    verdict: Verdict
    contrast: float | None  # None when a cell is empty
    half_width: float | None  # of the 95 % interval; None when the noise is unknown
    why: str  # empty, or what is missing


def judge(
    cells: Cells,
    weights: Mapping[tuple[str, str], float],
    *,
    margin: float = 0.0,
    num_test: int | None = None,
    logarithms: bool = False,
) -> Judgement:
    """The verdict on one contrast of a table.

    Args:
        cells: (row, column) -> values over seeds.
        weights: Of the cells that the claim compares.
        margin: What the contrast must exceed.
        num_test: Test images behind each accuracy; None for other numbers.
        logarithms: Compare logarithms of the values.

    >>> table = {("convit", "10 %"): [60.0, 62.0], ("vit", "10 %"): [48.0, 50.0]}
    >>> judge(table, {("convit", "10 %"): 1, ("vit", "10 %"): -1}).verdict
    'agrees'
    """
    if logarithms:
        cells = {key: [log(v) for v in values if v > 0] for key, values in cells.items()}
    empty = [" at ".join(key) for key in weights if not cells.get(key)]
    if empty:
        return Judgement("within noise", None, None, f"no number for {', '.join(empty)}")
    contrast = variance = 0.0
    spread, freedom = pooled_spread([values for values in cells.values() if values])
    for key, weight in weights.items():
        values = cells[key]
        mean = sum(values) / len(values)
        contrast += weight * mean
        variance += weight**2 * spread / len(values)
        if num_test is not None:
            variance += weight**2 * sampling(mean, num_test)
    if not freedom and num_test is None:
        return Judgement("within noise", contrast, None, "one seed: the noise is unknown")
    half = half_interval(variance, freedom)
    return Judgement(_verdict(contrast - margin, half), contrast, half, "")


def _verdict(above: float, half: float) -> Verdict:
    if not half < abs(above) < inf:  # nor where either is not a number
        return "within noise"
    return "agrees" if above > 0 else "disagrees"
