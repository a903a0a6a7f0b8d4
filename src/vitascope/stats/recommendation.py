"""Which model to take: the best, or a cheaper one that is shown to be as good.

- *equivalent*: a cheaper model, the cheapest of those whose deficit to every other model is shown
  to be below the margin; or the best mean itself, where no cheaper model is left in question and
  no other can be ahead of it by the margin.
- *clear*: the best mean, ahead of every other model: all 95 % intervals of its leads are above 0.
- *undecided*: else. Of the best mean and its rivals, the cheapest that is behind the best mean by
  no more than the margin is taken for now, with how many more images to judge by or seeds would
  decide.

The choice of the best after the fact does no harm: it must beat *every* other model, and of equal
models the gap between the first two is smaller the more there are; two models are the worst case,
with one false "clear" in twenty. That a deficit is below the margin is shown against every other
model, not only against the one that happened to come out best, at 97.5 %, and at 1 - 5 % / (k - 1)
with more than three models, because each of k - 1 cheaper ones may be taken.
With one run each nothing is decided: another seed may turn it round.
Who looks again after every new seed gives ``alpha``, the error of this look (:mod:`repeated`), and
the models that an earlier look has shown to be ``behind``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vitascope.errors import UserError
from vitascope.settings import checked
from vitascope.stats.differences import Images, Runs, estimate, runs_of
from vitascope.stats.variance import ErrorVariance, Estimate

__all__ = ["Needed", "Recommendation", "recommend"]

MOST_IMAGES, MOST_SEEDS = 1_000_000, 100  # more than this is no advice
SPELT_OUT = 4  # models that a sentence names one by one; of more the best, and a number
FIRST_SEEDS = 3  # below these the spread between runs is hardly known


@dataclass(frozen=True)
class Needed:
    """Numbers of images and seeds that would settle it; None where no sensible number would."""

    images: int | None  # by themselves
    seeds: int | None  # of each model, by themselves
    both: tuple[int, int] | None = None  # so many images and seeds, where neither alone would


@dataclass(frozen=True)
class Recommendation:
    """The model to take, and the evidence for it."""

    model: str
    verdict: Literal["clear", "equivalent", "undecided"]
    best: str  # the highest mean, of those that are not shown to be behind
    accuracy: Mapping[str, float]  # percent, mean over seeds
    against: Mapping[str, Estimate]  # the best minus each other model, in points
    rivals: tuple[str, ...]  # between which it is undecided, besides the best
    needed: Needed | None  # None when decided
    reason: str  # one line


@checked
def recommend(
    correct: Mapping[str, Any],
    cost: Mapping[str, float],
    margin: float = 1.0,
    groups: Any = None,
    *,
    labels: Any = None,
    folds: Any = None,
    alpha: float = 0.05,
    behind: Sequence[str] = (),
) -> Recommendation:
    """Recommend a model for these images.

    Args:
        correct: From model to a boolean array (seeds, images): was the image classified right?
        cost: From model to a number, such as multiply-adds.
        margin: A deficit in points that does not matter where it is cheaper.
        groups: A patient or video for each image.
        labels: The true class of each image, for balanced accuracy.
        folds: The fold of each image, where every image was tested once with each seed; one row for
            each seed where the folds were dealt anew.
        alpha: Two-sided error of this look at the data.
        behind: Models that an earlier look has shown to be behind; they may have fewer seeds.

    >>> rng = np.random.default_rng(0)
    >>> right = {"small": rng.random((3, 900)) < 0.7, "large": rng.random((3, 900)) < 0.9}
    >>> result = recommend(right, cost={"small": 1.0, "large": 4.0})
    >>> result.model, result.verdict
    ('large', 'clear')
    """
    runs = _checked(correct, cost, margin, {"groups": groups, "labels": labels, "folds": folds})
    means = {name: 100 * float(each.per_run.mean()) for name, each in runs.items()}
    open_models = [name for name in runs if name not in behind]
    best = max(open_models, key=lambda name: (round(means[name], 9), -cost[name]))
    against = {
        name: estimate((runs[best], each), (1.0, -1.0), 1 - alpha)
        for name, each in runs.items()
        if name != best
    }
    others = [name for name in open_models if name != best]
    if not against:
        reason = f"{best} is the only model: there is nothing to compare it with."
        return Recommendation(best, "undecided", best, means, {}, (), None, reason)
    level = 1 - min(alpha / 2, alpha / len(against))

    def suffices(name: str) -> bool:
        """Is every other model shown to be ahead of it by less than the margin?"""
        return all(
            _below(runs[other], runs[name], margin, level) for other in open_models if other != name
        )

    rivals = tuple(name for name in others if not against[name].low > 0 or against[name].one_run)
    doubtful = [name for name in rivals if cost[name] < cost[best]]
    cheaper = sorted((name for name in others if cost[name] < cost[best]), key=lambda n: cost[n])
    model = next((name for name in cheaper if suffices(name)), None)
    if model is not None:
        lead = against[model]
        reason = (
            f"{model} costs less than {best} and is behind it by less than {margin:g} points: "
            f"{_interval(lead)}."
        )
        return Recommendation(model, "equivalent", best, means, against, (), None, reason)
    if not rivals:
        second = max(others or against, key=lambda name: means[name])
        reason = (
            f"{best} is ahead of every other model; of {second} by {_interval(against[second])}."
        )
        return Recommendation(best, "clear", best, means, against, (), None, reason)
    if not doubtful and suffices(best):
        reason = f"{best} has the best mean, and no model is ahead of it by {margin:g} points."
        return Recommendation(best, "equivalent", best, means, against, (), None, reason)
    needed = _needed(runs, best, {n: against[n] for n in rivals}, cost, margin)
    reason = _undecided(best, rivals, needed, any(against[name].one_run for name in rivals))
    close = [name for name in (best, *rivals) if means[best] - means[name] <= margin]
    model = min(close, key=lambda name: cost[name])
    if model != best:
        reason += (
            f" For now {model}: it costs less than {best}, whose mean is "
            f"{means[best] - means[model]:.1f} points higher."
        )
    return Recommendation(model, "undecided", best, means, against, rivals, needed, reason)


def _checked(
    correct: Mapping[str, Any], cost: Mapping[str, float], margin: float, options: Mapping[str, Any]
) -> dict[str, Runs]:
    if not correct:
        raise UserError("there is no model to recommend; give at least one with its runs")
    without = [name for name in correct if not np.isfinite(cost.get(name, np.nan))]
    if without:
        raise UserError(f"no cost is known of {', '.join(without)}; give a number for every model")
    if not 0 <= margin < np.inf:
        raise UserError(f"the margin is a number of points from 0 on, not {margin}")
    shapes = {name: np.shape(each) for name, each in correct.items()}
    counts = {shape[-1] for shape in shapes.values() if shape}
    if any(len(shape) != 2 for shape in shapes.values()) or len(counts) > 1:
        shape_list = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(
            f"all models must meet the same images, as (seeds, images), not {shape_list}"
        )
    images = Images(counts.pop(), **options)
    return {name: runs_of(each, images, name) for name, each in correct.items()}


def _below(ahead: Runs, behind: Runs, margin: float, level: float) -> bool:
    """Is the first shown to be ahead of the second by less than the margin?"""
    difference = estimate((ahead, behind), (1.0, -1.0))
    return not difference.one_run and bool(
        difference.variance.confidence(margin - difference.value) > level
    )


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:+.1f} points [{estimate.low:+.1f}, {estimate.high:+.1f}]"


def _needed(
    runs: Mapping[str, Runs],
    best: str,
    rivals: Mapping[str, Estimate],
    cost: Mapping[str, float],
    margin: float,
) -> Needed:
    """Estimate how much more data would decide against every rival, if the estimates hold."""
    needs = []
    for name, lead in rivals.items():
        distance = (
            lead.value
        )  # from the interval's middle to 0, or to the margin if that is farther
        if cost[name] != cost[best]:
            to_margin = margin - lead.value if cost[name] < cost[best] else margin + lead.value
            distance = max(distance, to_margin)
        needs.append(_needed_for(lead, distance, runs[best], runs[name]))
    images, seeds, both = (
        _most([getattr(each, unit) for each in needs]) for unit in ("images", "seeds", "both")
    )
    return Needed(images, seeds, None if images or seeds else both)


def _most(numbers: Sequence[Any]) -> Any:
    return None if None in numbers else max(numbers)


def _needed_for(lead: Estimate, distance: float, first: Runs, second: Runs) -> Needed:
    """Estimate how much more data makes half of an interval shorter than ``distance``."""
    images, seeds = first.images.count, min(first.num_seeds, second.num_seeds)
    if lead.one_run:
        return Needed(None, FIRST_SEEDS - seeds)
    folds = num_folds(first)

    def with_images(count: int) -> ErrorVariance:
        return scaled(lead.variance, count / images, 1.0, seeds, folds)

    def with_seeds(count: int) -> ErrorVariance:
        return scaled(lead.variance, 1.0, count / seeds, seeds, folds)

    def with_both(count: int) -> ErrorVariance:
        return scaled(lead.variance, count / seeds, count / seeds, seeds, folds)

    more = _least(images, MOST_IMAGES, distance, with_images)
    if folds:
        return Needed(more, None)
    together = _least(seeds, MOST_SEEDS, distance, with_both)
    both = None if together is None else (math.ceil(images * together / seeds), together)
    return Needed(more, _least(seeds, MOST_SEEDS, distance, with_seeds), both)


def num_folds(runs: Runs) -> int:
    """Number of folds; 0 without cross-validation."""
    return 0 if runs.images.folds is None else int(runs.images.folds.max()) + 1


def scaled(
    variance: ErrorVariance, images: float, seeds: float, runs: int, folds: int
) -> ErrorVariance:
    """The variance with so many times the images and seeds; ``runs``: seeds so far."""
    if folds:  # Nadeau and Bengio's takes both together; more images make every run surer
        now, then = (1 / (folds * runs * many) + 1 / (folds - 1) for many in (1.0, seeds))
        part, freedom = variance.seeds / images * then / now, folds * runs * seeds - 1
        return ErrorVariance(images=0.0, seeds=part, freedom=freedom)
    alone = np.maximum(0.0, variance.images - variance.residual) / images
    spread = np.maximum(0.0, variance.seeds - variance.residual) / seeds
    residual = variance.residual / images / seeds
    more = variance.freedom * (seeds * runs - 1) / (runs - 1) if runs > 1 else variance.freedom
    return ErrorVariance(
        images=alone + residual,
        seeds=spread + residual,
        residual=residual,
        freedom=more,
        images_freedom=(variance.images_freedom + 1) * images - 1,
    )


def _least(now: int, most: int, distance: float, variance: Any) -> int | None:
    """Return how many more than ``now`` make half of the interval shorter than ``distance``."""

    def decides(count: int) -> bool:
        return bool(variance(count).half_width() < distance)

    if distance <= 0 or not decides(most):
        return None
    low, high = now, most
    while high - low > max(1, low // 50):  # to two in a hundred: it is advice
        middle = round((low * high) ** 0.5) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high - now


def undecided_between(best: str, rivals: Sequence[str]) -> str:
    """The models in question; of many the best, and how many others.

    >>> undecided_between("a", ["b", "c"]), undecided_between("a", ["b", "c", "d", "e"])
    ('Undecided between a, b and c', 'Undecided between a and 4 others')
    """
    names = [best, *rivals]
    if len(names) > SPELT_OUT:
        return f"Undecided between {best} and {len(rivals)} others"
    return f"Undecided between {', '.join(names[:-1])} and {names[-1]}"


def _undecided(best: str, rivals: tuple[str, ...], needed: Needed, one_run: bool) -> str:
    between = undecided_between(best, rivals)
    if one_run:
        return f"{between}: one run each, and another seed may differ; add {needed.seeds} seeds."
    ways = [
        f"{number:,} more {unit}"
        for number, unit in (
            (needed.images, "images to choose by"),
            (needed.seeds, "seeds of each"),
        )
        if number is not None
    ]
    if needed.both is not None:
        ways = [
            f"{needed.both[0]:,} more images to choose by, with {needed.both[1]} more seeds of each"
        ]
    if not ways:
        return f"{between}: they are too close for any sensible number of images and seeds."
    return f"{between}: about {' or '.join(ways)} would settle it."
