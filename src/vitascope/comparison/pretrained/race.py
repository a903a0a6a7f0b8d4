"""The best candidates of a probe, fine-tuned in the time there is.

Who runs: the best few by the linear probe, and the best of each kind of locality, because a probe
of frozen features need not rank what fine-tuning can move. The order is that of the probe's inner
cross-validation of the training images, so that no test image chooses who runs. Each is trained by
the recipe ``finetune_small`` (head fitted first, layer-wise lr, best epoch) with every seed, in
its own preprocessing.

A step of training costs about three forward passes; the seconds of one are those of the probe. A
fine-tuning that is cut short is worse than none, so its length stays: where not all fit into the
budget, the last of the probe's order are left out. Where not even the first fits, the cheapest of
the promising candidates is fine-tuned, at last without the run from random weights. The frozen
features are there in any case.

What twice the images would bring is read off a fitted learning curve, with its uncertainty. Errors
of classifiers fall about as a power of the number of training images,

    log e(n) = a - b log n + noise,    e(2 N) = e(N) 2^-b

(Hestness et al. 2017, https://arxiv.org/abs/1712.00409). The line is fitted to the probe on an
eighth, a quarter, a half and all of the images with every seed; the interval is the prediction
interval of a straight line at 2 N. It cannot be said where an error is 0, or where the slope may as
well be 0 or the line does not fit: its interval is wider than the error itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import linregress, t

from vitascope.comparison.budget import seconds_from
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.question import Choice, Comparison, source_of
from vitascope.runs.spec import changed_recipe
from vitascope.runs.train_model import recipe_from
from vitascope.settings import check
from vitascope.training import recipe

BEST = 3  # by the linear probe

FOLDS = 5  # of `--until decided`, where none are given

TRAINING = 3.0  # forward passes that a step of training costs


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A candidate as the race sees it."""

    model: str
    kind: str  # of locality
    linear: float  # share in the probe's inner cross-validation
    seconds: float  # of one image, forward


@dataclass(frozen=True)
class RacePlan:
    """Which candidates are fine-tuned, and for how many epochs."""

    models: tuple[str, ...]
    epochs: int
    left_out: tuple[str, ...]
    seconds: float = 0.0  # that one more would have taken in all, about
    unable: tuple[str, ...] = ()  # candidates that no run could build again
    scratch: bool = True  # whether the best is also trained from random weights
    next: str = ""  # the candidate that ``seconds`` is about

    @property
    def notes(self) -> tuple[str, ...]:
        """Say which candidates were not fine-tuned, and why."""
        notes = []
        if not self.scratch:
            notes.append(
                "No time to train it from random weights too, which would show what pretraining "
                "adds."
            )
        if self.left_out:
            with_it = f"with {self.next} it" if self.models else f"the cheapest, {self.next},"
            notes.append(
                f"No time to fine-tune {', '.join(self.left_out)}: {with_it} takes about "
                f"{self.seconds / 60:.1f} minutes; give a longer --budget."
            )
        notes += [
            f"{name} is probed, not fine-tuned: a run could not build it again (opening a run "
            "calls no function that its files name); give its weights as NAME@FILE, local-dir: or "
            "a run's folder."
            for name in self.unable
        ]
        return tuple(notes)


def runners(probed: Sequence[Runner], best: int = BEST) -> list[Runner]:
    """The best few and the best of each kind, the best first.

    >>> def one(model, kind, linear):
    ...     return Runner(model=model, kind=kind, linear=linear, seconds=1.0)
    >>> result = [one("a", "hard", 0.9), one("b", "hard", 0.8), one("c", "none", 0.5)]
    >>> [each.model for each in runners(result, best=1)]
    ['a', 'c']
    """
    order = sorted(probed, key=lambda each: -each.linear)
    chosen = list(order[:best])
    for each in order:
        if each.kind not in {other.kind for other in chosen}:
            chosen.append(each)
    return sorted(chosen, key=lambda each: -each.linear)


def planned(
    wanted: Sequence[Runner],
    *,
    num_images: int,
    num_seeds: int,
    epochs: int,
    budget: float | None,
    processes: int = 1,
) -> RacePlan:
    """The candidates that fit; the one that wins is also trained from random weights.

    Args:
        wanted: The best first.
        num_images: To train on, and about those that are tested.
        num_seeds: Runs of each.
        epochs: Of each run.
        budget: Seconds; None: as long as it takes.
        processes: Runs at a time.
    """
    images = num_images * num_seeds * epochs

    def takes(chosen: Sequence[Runner], scratch: bool = True) -> float:
        each = [seconds_of(one, images, processes) for one in chosen]
        return sum(each) + (max(each) if scratch else 0.0)

    order, scratch = list(wanted), True
    if budget is None or not wanted:
        return RacePlan(tuple(one.model for one in order), epochs, ())
    while len(order) > 1 and takes(order) > budget:
        order.pop()
    cheapest = min(wanted, key=lambda one: one.seconds)
    if takes(order) > budget:
        scratch = takes([cheapest]) <= budget
        order = [cheapest] if takes([cheapest], scratch) <= budget else []
    names = tuple(one.model for one in order)
    left = [one for one in wanted if one.model not in names]
    more = [*order, *left[:1]] if order else [cheapest]
    return RacePlan(
        names,
        epochs,
        tuple(one.model for one in left),
        takes(more, scratch=bool(order) and scratch),
        scratch=scratch or not order,
        next=(left[0].model if left else "") if order else cheapest.model,
    )


def seconds_of(runner: Runner, images: int, processes: int = 1) -> float:
    """Return the time that fine-tuning on so many images takes, all epochs and seeds counted."""
    return runner.seconds * TRAINING * images / processes


def order_of(shares: Mapping[str, float | None]) -> list[str]:
    """Names by falling share; those without one are left out.

    >>> order_of({"a": 0.5, "b": None, "c": 0.7})
    ['c', 'a']
    """
    measured = {name: share for name, share in shares.items() if share is not None}
    return sorted(measured, key=lambda name: -measured[name])


@dataclass(frozen=True, kw_only=True)
class PretrainedQuestion(Choice):
    """A comparison of pretrained networks: candidates, images, recipe and budget."""

    probe_only: bool
    budget: float | None  # seconds of the whole
    until: Literal["decided"] | None
    redraw: bool  # folds are dealt anew with each seed

    def seeds_up_to(self, count: int) -> tuple[int, ...]:
        """So many seeds: the question's, and those after the largest of them."""
        more = range(max(self.seeds) + 1, max(self.seeds) + 1 + count)
        return (*self.seeds, *more)[:count]

    def race(
        self, models: tuple[str, ...], epochs: int | None, start: Literal["pretrained", "random"]
    ) -> Comparison:
        """The comparison of some candidates, all of whose weights are trained on.

        Args:
            models: The candidates.
            epochs: Of each; None: none, a head on frozen features.
            start: From their weights, or from random ones, of which nothing is spared.
        """
        spared = {} if start == "pretrained" else {"freeze": (), "head": "random", "layer_decay": 1}
        plan = recipe("linear") if epochs is None else changed_recipe(self.recipe, epochs, spared)
        return Comparison(
            data=self.data,
            models=models,
            seeds=self.seeds,
            recipe=plan,
            image_size=self.image_size,
            margin=self.margin,
            validation=self.validation,
            folds=self.folds,
            metric=self.metric,
            fractions=(1.0,),
            overrides=(),
            until=None,
            rates={},
            start=start,
            redraw=self.redraw,
        )


def pretrained_question(options: CompareOptions) -> PretrainedQuestion:
    """Return the question about pretrained networks that the options ask.

    With ``--until decided`` the first look comes after one repetition of the folds, unless other
    seeds than the usual ones are given.

    Raises:
        UserError: If an option is out of its range or cannot be read.
    """
    check(options)
    name = "finetune_small" if options.recipe == CompareOptions.recipe else options.recipe
    plan = recipe_from(name, options.epochs, options.set)
    folds, seeds = options.folds, options.seeds
    if options.until:
        folds = folds or FOLDS
        seeds = seeds[:1] if seeds == CompareOptions.seeds else seeds
    if folds is not None or not options.validation:
        plan = plan.override(finish="last")  # the images that measure must not choose the epoch
    return PretrainedQuestion(
        data=source_of(options),
        models=options.backbones,
        seeds=seeds,
        recipe=plan,
        image_size=options.image_size,
        margin=options.margin,
        validation=options.validation,
        folds=folds,
        metric=options.metric,
        until=options.until,
        redraw=options.until is not None,
        probe_only=options.probe_only,
        budget=None if options.budget is None else seconds_from(options.budget),
    )


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
    >>> result = twice(counts, [n**-0.5 * s for n, s in zip(counts, [1.01] * 4 + [0.99] * 4)])
    >>> round(result.value, 1), result.low < 97.5 < result.high
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
