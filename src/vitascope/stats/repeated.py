"""Repeated looks at growing data: how sure each look must be, so that all together err in 5 %.

Whoever tests at 5 % after every new seed and stops at the first success is wrong far more often
than that. Lan and DeMets (1983, https://doi.org/10.1093/biomet/70.3.659) spend the error over the
looks: when a share t of the data that there may be is there, the looks so far may have been wrong
with probability f(t), f(1) = 5 %. Two spending functions:

    pocock          f(t) = a ln(1 + (e - 1) t)          every look can decide (the default)
    obrien-fleming  f(t) = 4 (1 - Phi(z_{a/4} / sqrt t))   early looks decide only huge differences

The statistic of look k is B(t_k) / sqrt(t_k) with a Brownian motion B. Its first exits are
integrated numerically (Armitage, McPherson and Rowe 1969), and the nominal two-sided level of each
look follows. Data are seeds: t is their number over the most that there may be. The test images
stay the same at every look, so that looks at real comparisons are more alike than those of B, which
can only lower the error.

With few seeds the spread between runs is hardly known; the interval of `variance`, which knows
that, is taken at the look's level (Jennison and Turnbull 2000, chapter 11: the approach by
significance levels). O'Brien and Fleming's first levels, of one in 10,000, are out of reach of
three seeds whatever the lead, so Pocock's type is the default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from vitascope.errors import UserError
from vitascope.stats.differences import Images, runs_of
from vitascope.stats.recommendation import Recommendation, num_folds, recommend, scaled

__all__ = ["ALPHA", "Look", "Spending", "levels", "looks", "spent"]

ALPHA = 0.05
Spending = Literal["pocock", "obrien-fleming"]
NODES = 200  # of Gauss and Legendre between the boundaries
HOPE = 1.5  # standard errors by which the seeds that are left may still move a lead


def spent(share: float, alpha: float = ALPHA, spending: Spending = "pocock") -> float:
    """Probability of an error that looks may have used up when this share of the data is there.

    >>> round(spent(1.0), 3), round(spent(0.3), 4), f"{spent(0.3, spending='obrien-fleming'):.1e}"
    (0.05, 0.0208, '8.5e-05')
    """
    share = min(share, 1.0)
    if spending == "pocock":
        return float(alpha * np.log1p((np.e - 1) * share))
    return float(4 * ndtr(ndtri(alpha / 4) / np.sqrt(share)))


def levels(
    seeds: Sequence[int], most: int, alpha: float = ALPHA, spending: Spending = "pocock"
) -> tuple[float, ...]:
    """The nominal two-sided error of each look, after so many seeds of at most ``most``.

    A lead is shown at a look if its interval at 1 minus this level excludes 0.

    >>> [f"{ndtri(1 - a / 2):.2f}" for a in levels([1, 2, 3, 4, 5], 5, spending="obrien-fleming")]
    ['4.88', '3.36', '2.68', '2.29', '2.03']
    >>> round(levels([10], 10)[0], 3)
    0.05
    """
    return _levels(tuple(seeds), most, alpha, spending)


@lru_cache(maxsize=64)
def _levels(
    seeds: tuple[int, ...], most: int, alpha: float, spending: Spending
) -> tuple[float, ...]:
    if not seeds or any(a >= b for a, b in zip((0, *seeds), seeds, strict=False)):
        raise UserError(f"looks come after more and more seeds, not after {list(seeds)}")
    if seeds[-1] > most:
        raise UserError(f"there are at most {most} seeds, and a look comes after {seeds[-1]}")
    nominal = []
    places, density, before, used = np.zeros(1), np.ones(1), 0.0, 0.0
    roots, weights = np.polynomial.legendre.leggauss(NODES)
    for number in seeds:
        time = number / most
        step, wanted = np.sqrt(time - before), spent(time, alpha, spending) - used

        def left(z: float) -> float:
            """Probability of the first exit at this look, less what may be spent."""
            edge = z * np.sqrt(time)  # noqa: B023
            out = ndtr((places - edge) / step) + ndtr((-edge - places) / step)  # noqa: B023
            return float(out @ density) - wanted  # noqa: B023

        z = float(brentq(left, 0.0, 40.0, xtol=1e-10))
        nominal.append(2 * float(ndtr(-z)))
        edge = z * np.sqrt(time)
        inside = edge * roots
        kernel = np.exp(-0.5 * ((inside[:, None] - places) / step) ** 2) / np.sqrt(2 * np.pi)
        density = edge * weights * (kernel @ density) / step
        places, before, used = inside, time, used + wanted
    return tuple(nominal)


@dataclass(frozen=True)
class Look:
    """Result of one look, and the models that are given another seed."""

    seeds: int  # of each model in contention
    alpha: float  # two-sided error of this look
    recommendation: Recommendation
    behind: tuple[str, ...]  # shown to be behind, at this look or before
    limit: Literal["", "images", "seeds"] = ""  # why no more seeds are added, besides a verdict

    @property
    def decided(self) -> bool:
        """True where the comparison has its answer."""
        return self.recommendation.verdict != "undecided"

    @property
    def contenders(self) -> tuple[str, ...]:
        """Models that another seed is for; none where nothing more is to be done."""
        if self.decided or self.limit or not self.recommendation.rivals:  # nothing to compare
            return ()
        return tuple(name for name in self.recommendation.accuracy if name not in self.behind)


def looks(
    correct: Mapping[str, Any],
    cost: Mapping[str, float],
    *,
    first: int,
    most: int,
    margin: float = 1.0,
    spending: Spending = "pocock",
    **images: Any,
) -> tuple[Look, ...]:
    """Look after ``first`` seeds and after every further one, as far as there are runs.

    The looks depend on nothing but the runs in the order of their seeds, so that a comparison that
    was interrupted comes to the same. A model that is shown to be behind the best stays behind and
    needs no further seeds. Without a verdict the looks also end where none is in sight: the lead of
    a rival may move by one standard error of the seeds that are left, and ``most`` seeds still
    could not decide. ``limit`` says whether images are missing, or seeds.

    Args:
        correct: From model to a boolean array (seeds, images), as :func:`recommend` takes them.
        cost: From model to a number, such as multiply-adds.
        first: Seeds of each model at the first look: two or more, or one with folds.
        most: Seeds of a model at most.
        margin: A deficit in points that does not matter where it is cheaper.
        spending: How the error is spent over the looks.
        **images: ``groups``, ``labels`` and ``folds``, as :func:`recommend` takes them.

    >>> rng = np.random.default_rng(0)
    >>> right = {"a": rng.random((3, 900)) < 0.9, "b": rng.random((3, 900)) < 0.7}
    >>> [
    ...     (look.seeds, look.recommendation.verdict)
    ...     for look in looks(right, {"a": 1.0, "b": 1.0}, first=3, most=8)
    ... ]
    [(3, 'clear')]
    """
    least = 1 if images.get("folds") is not None else 2
    if not least <= first <= most:
        raise UserError(f"the first look takes {least} to {most} seeds, not {first}")
    looks_so_far: list[Look] = []
    behind: tuple[str, ...] = ()
    alphas = levels(range(first, most + 1), most, spending=spending)
    for seeds, alpha in zip(range(first, most + 1), alphas, strict=True):
        if any(len(runs) < seeds for name, runs in correct.items() if name not in behind):
            break
        seen = {name: np.asarray(runs)[:seeds] for name, runs in correct.items()}
        for name in behind:  # the seeds it had when it was left behind
            seen[name] = np.asarray(correct[name])[: _left_at(looks_so_far, name)]
        result = recommend(seen, cost, margin, **images, alpha=alpha, behind=behind)
        now = behind
        if result.verdict == "undecided":
            out = (name for name, lead in result.against.items() if lead.low > 0)
            now = tuple(dict.fromkeys((*behind, *(n for n in out if n not in result.rivals))))
        limit = _limit(result, seen, cost, margin, seeds, most, alphas[-1], images)
        looks_so_far.append(Look(seeds, alpha, result, now, limit))
        if not looks_so_far[-1].contenders:
            break
        behind = now
    return tuple(looks_so_far)


def _left_at(looks_so_far: Sequence[Look], name: str) -> int:
    """Seeds of a model when it was shown to be behind."""
    return next(look.seeds for look in looks_so_far if name in look.behind)


def _limit(
    result: Recommendation,
    correct: Mapping[str, Any],
    cost: Mapping[str, float],
    margin: float,
    seeds: int,
    most: int,
    alpha: float,
    images: Mapping[str, Any],
) -> Literal["", "images", "seeds"]:
    """Return what limits the comparison of a rival with the best, even with the most seeds."""
    if result.verdict != "undecided" or seeds >= most:
        return "" if seeds < most or result.verdict != "undecided" else "seeds"
    best = result.best
    met = Images(np.shape(correct[best])[-1], **images)
    folds = num_folds(runs_of(correct[best], met))
    for name in result.rivals:
        lead = result.against[name]
        last = scaled(lead.variance, 1.0, most / seeds, seeds, folds)
        moves = HOPE * float(np.sqrt(max(0.0, lead.variance.total - last.total)))
        distance = abs(lead.value)  # from the interval's middle to where it decides
        if cost[name] != cost[best]:
            sign = -1 if cost[name] < cost[best] else 1
            distance = max(distance, margin + sign * lead.value)
        if float(last.half_width(1 - alpha)) > distance + moves:
            endless = scaled(lead.variance, 1.0, 1e6, seeds, folds)
            return "images" if float(endless.half_width()) > distance else "seeds"
    return ""
