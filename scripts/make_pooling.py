"""A table of docs/statistics-formulas.md: may the spread between runs be taken from all models?

    PYTHONPATH=tests python scripts/make_pooling.py [TRIALS]

Prints for each rule how often its 95 % intervals hold the truth, in worlds of 2, 3 and 8 models,
and how often the best of three models is called clear. Takes five minutes of one core.

With s_k^2 the variance of the runs of model k, with d = seeds - 1 degrees of freedom, of K models:

    own        what `stats` does: the two models of a difference speak for themselves
    pooled     the mean of all s_k^2, with K d degrees of freedom
    pretest    pooled, but own where Bartlett's test finds different spreads at 25 %
    moderated  Smyth (2004): s_k^2 drawn to a prior s_0^2 which counts d_0 degrees of freedom, both
               estimated from all models; d + d_0 degrees of freedom
    borrowed   the same with d_0 = 1 and s_0^2 the mean of all s_k^2
    known      the true spreads, which no rule can have
"""

import sys
from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
from scipy.special import digamma, polygamma
from scipy.stats import chi2

from simulated_runs import World
from vitascope.stats.differences import Images, Runs, parts
from vitascope.stats.variance import ErrorVariance

Array = np.ndarray
MODELS, SEEDS, IMAGES = (2, 3, 8), (2, 3, 5), (100, 2000)
SPREADS = {  # points between seeds, in turn
    "equal": (1.0,),
    "0.5, 1, 3": (0.5, 1.0, 3.0),
    "one of 3, others 0.5": (3.0, *(0.5,) * 7),
    "one of 0.5, others 3": (0.5, *(3.0,) * 7),
}
RULES = ("own", "pooled", "pretest", "moderated", "borrowed", "known")


def pooled(spread: Array, d: int) -> tuple[Array, Array]:
    """One spread for all models: s^2 and its degrees of freedom, as of all rules. (trials, K)"""
    mean = np.broadcast_to(spread.mean(1, keepdims=True), spread.shape)
    return mean, np.full(spread.shape, float(d * spread.shape[1]))


def differ(spread: Array, d: int, level: float = 0.25) -> Array:
    """Bartlett's test of equal variances. (trials,)"""
    models = spread.shape[1]
    found = d * models * np.log(spread.mean(1)) - d * np.log(spread).sum(1)
    correction = 1 + (models / d - 1 / (d * models)) / (3 * (models - 1))
    return found / correction > chi2.ppf(1 - level, models - 1)


def moderated(spread: Array, d: int) -> tuple[Array, Array]:
    """Smyth (2004), section 6.2: d_0 from the variance of log s^2; an infinite one is pooling."""
    e = np.log(spread) - digamma(d / 2) + np.log(d / 2)
    excess = e.var(1, ddof=1) - polygamma(1, d / 2)
    some = excess > 0
    d0 = np.where(some, 2 * _inverse_trigamma(np.where(some, excess, 1.0)), 1e6)[:, None]
    prior = np.exp(e.mean(1, keepdims=True) + digamma(d0 / 2) - np.log(d0 / 2))
    return (d0 * prior + d * spread) / (d0 + d), np.broadcast_to(d + d0, spread.shape)


def _inverse_trigamma(y: Array) -> Array:
    x = 0.5 + 1 / y
    for _ in range(20):  # Newton, from below
        value = polygamma(1, x)
        x = x + value * (1 - value / y) / polygamma(2, x)
    return x


def borrowed(spread: Array, d: int, d0: float = 1.0) -> tuple[Array, Array]:
    """Drawn to the mean of all by a fixed number of degrees of freedom."""
    mean = spread.mean(1, keepdims=True)
    return (d0 * mean + d * spread) / (d0 + d), np.full(spread.shape, d + d0)


def confidences(
    correct: Array, truth: World, pairs: list[tuple[int, int]], distance: float | None = None
) -> Iterator[tuple[tuple[int, int], Array, dict[str, Array]]]:
    """For some pairs of models: the measured lead, and how sure each rule is of its being off.

    Args:
        correct: Trials (T, models, seeds, images).
        truth: Their world.
        pairs: Of models.
        distance: A lead to be told apart from; the true one when left out.
    """
    met, seeds, models = Images(truth.images), truth.seeds, len(truth.accuracies)
    runs = [Runs(correct[:, k], met) for k in range(models)]
    spread = np.maximum(1e4 * np.stack([each.spread for each in runs], 1), 1e-6)
    rules = {rule.__name__: rule(spread, seeds - 1) for rule in (pooled, moderated, borrowed)}
    unequal = differ(spread, seeds - 1)
    for i, j in pairs:
        value, own = parts((runs[i], runs[j]), (1, -1))
        at = truth.accuracies[i] - truth.accuracies[j] if distance is None else distance
        off, found = np.abs(value - at), {}
        found["own"] = own.confidence(off)
        for name, (squares, freedom) in rules.items():
            both = squares[:, [i, j]] / seeds
            fitting = both.sum(1) ** 2 / (both**2 / freedom[:, [i, j]]).sum(1)  # Satterthwaite
            fitting = np.minimum(fitting, (seeds - 1) * models)  # there is no more
            error = ErrorVariance(own.images, both.sum(1), own.residual, fitting)
            found[name] = error.confidence(off)
        found["pretest"] = np.where(unequal, found["own"], found["pooled"])
        known = (truth.spreads[i] ** 2 + truth.spreads[j] ** 2) / seeds
        found["known"] = ErrorVariance(own.images + known).confidence(off)
        yield (i, j), value, found


def coverage(world: World, trials: int, seed: int) -> dict[str, list[float]]:
    """Of each rule, for one pair of models of every two spreads."""
    pairs: dict[tuple[float, float], tuple[int, int]] = {}
    for i, j in combinations(range(len(world.spreads)), 2):
        pairs.setdefault(tuple(sorted((world.spreads[i], world.spreads[j]))), (i, j))
    hits = {rule: dict.fromkeys(pairs.values(), 0) for rule in RULES}
    for stack in world.stacked(trials, seed, at_once=100):
        for pair, _, found in confidences(stack, world, list(pairs.values())):
            for rule in RULES:
                hits[rule][pair] += int((found[rule] <= 0.975).sum())
    return {rule: [hit / trials for hit in hits[rule].values()] for rule in RULES}


def clear(spread: float, trials: int) -> dict[str, float]:
    """How often 88 % is called ahead of 84 and 80 %, with 5 seeds and 2,000 images."""
    world = World(accuracies=(88.0, 84.0, 80.0), spreads=(spread,) * 3, seeds=5, images=2000)
    hits = dict.fromkeys(RULES, 0)
    for stack in world.stacked(trials, seed=1, at_once=100):
        ahead = {rule: np.ones(len(stack), bool) for rule in RULES}
        for _, value, found in confidences(stack, world, [(0, 1), (0, 2)], distance=0.0):
            for rule in RULES:
                ahead[rule] &= (value > 0) & (found[rule] > 0.975)
        for rule in RULES:
            hits[rule] += int(ahead[rule].sum())
    return {rule: hit / trials for rule, hit in hits.items()}


def main(trials: int = 2000) -> None:
    """Simulate, and print every world and a table of the least coverages."""
    least = {rule: {"equal": 1.0, "unequal": 1.0} for rule in RULES}
    worlds = product(MODELS, SPREADS.items(), SEEDS, IMAGES)
    for models, (name, turn), seeds, images in worlds:
        world = World(
            accuracies=tuple(90.0 - k % 3 for k in range(models)),
            spreads=tuple(turn[k % len(turn)] for k in range(models)),
            seeds=seeds,
            images=images,
        )
        found = coverage(world, trials, seed=images + seeds)
        kind = "equal" if len(set(world.spreads)) == 1 else "unequal"
        for rule in RULES:
            least[rule][kind] = min(least[rule][kind], *found[rule])
        said = [f"{r} {min(found[r]):.3f}-{max(found[r]):.3f}" for r in RULES]
        print(f"{models} models, {name}; {seeds} x {images:,}:", *said, flush=True)
    decided = [clear(spread, 2 * trials) for spread in (1.0, 2.0)]
    print("| rule | least coverage, equal spreads | unequal | clear at 1 point | at 2 |")
    print("|---|---|---|---|---|")
    for rule in RULES:
        shares = [*least[rule].values(), *(each[rule] for each in decided)]
        print(f"| {rule} |", " | ".join(f"{100 * share:.1f} %" for share in shares), "|")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
