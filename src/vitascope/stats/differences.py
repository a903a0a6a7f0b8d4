"""By how much do accuracies differ, from runs that all met the same test images?

    correct   (seeds, images) of one model or cell: was the image classified right?
    contrast  c = sum_k w_k a_k of accuracies a_k; a difference has the weights 1 and -1

Images are crossed with seeds. With d_i = sum_k w_k (mean over seeds of correct_ki), in points,

    V_images = var_i(d_i) / n,    V_seeds = sum_k w_k^2 s_k^2 / S_k,

s_k^2 the variance of the S_k runs' accuracies. Single images that come out differently with each
seed are in both; ``V_residual = sum_k w_k^2 r_k / S_k`` is that part, r_k the residual mean square
of seeds x images over n. `variance` tells how the interval follows.

- **Few seeds.** V_seeds has Satterthwaite's degrees of freedom, for which the cells' spreads are
  drawn together by half a degree of freedom: with two seeds their ratio alone says little. So two
  models with two seeds have between 1.3 and 2. Plain pooling, 2 always, covers 91 to 92 % where one
  model's runs spread four times as far as the other's; pooling over a third model too makes
  intervals a fifth narrower and covers 90 % then. A cell with one run takes the others' spread.
- **Subsets** drawn anew with each seed are part of the spread between its runs. Both models meet
  the same subset with the same seed; that is not used, so such intervals are on the careful side.
- **No spread is not certainty.** Half an image that only the first gets right and half an image
  that only the second does are added to the sum of squares, after Agresti and Min (2005):
  V_images is at least 1 / n^2, in shares, also where two models never differed.
- **Groups** (patient, video): images of a group go together, V_images and r_k are of sums over
  groups, with a t of one degree of freedom less than groups.
- **Balanced accuracy**: the mean over classes of the share that is right; images vary about the
  mean of their class, each counted with 1 / (classes x images of its class).
- **One run each**: the exact test of McNemar, and ``one_run`` is set; a claim about the models, not
  about these two runs, cannot rest on it.
- **Folds**, also dealt anew with each seed: every run tested other images, and training sets
  overlap. Nadeau and Bengio (2003), for J = folds x seeds runs: V = (1 / J + 1 / (folds - 1)) s^2,
  s^2 of the runs' differences, t with J - 1 degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from vitascope.errors import UserError
from vitascope.stats.variance import ErrorVariance, Estimate

__all__ = ["Images", "Runs", "accuracy", "contrast", "difference"]

Array = np.ndarray
POINTS = 100.0
BORROWED = 0.5  # degrees of freedom that a cell's spread takes from the other cells of a contrast


class Spread(NamedTuple):
    """ErrorVariance of runs' accuracies, and the residual part of it."""

    spread: Any
    residual: Any


class Images:
    """The test images that all runs met: how much each counts, and which belong together.

    Args:
        count: Number of images.
        groups: A patient or video for each image; None if all stand by themselves.
        labels: The true class of each image, for balanced accuracy; None counts images alike.
        folds: The fold in which each image was tested, or one row of them for each seed, where the
            folds were dealt anew; None without cross-validation.
    """

    def __init__(
        self, count: int, *, groups: Any = None, labels: Any = None, folds: Any = None
    ) -> None:
        if count < 2:
            raise UserError(f"{count} test images say nothing about a difference; give two or more")
        self.count = count
        self.labels = _codes(labels, count, "labels") if labels is not None else None
        self.groups = _codes(groups, count, "groups") if groups is not None else None
        self.folds = _codes(folds, count, "folds") if folds is not None else None
        for name, codes in (("groups", self.groups), ("folds", self.folds)):
            if codes is not None and codes.max() == 0:
                raise UserError(f"all images have the same {name[:-1]}; {name} must be two or more")
        self._class = _Pools(self.labels) if self.labels is not None else None
        self._group = _Pools(self.groups) if self.groups is not None else None
        if self._class is None:
            self.weights = np.full(count, 1 / count)
        else:
            self.weights = 1 / (len(self._class.size) * self._class.size[self.labels])  # sum: 1
        units = self._by_group(self.weights)
        self.units = len(units)
        self.floor = float((units**2).sum() / self.units)  # variance by one discordant unit

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance over images."""
        return self.units - 1

    def mean(self, values: Array) -> Array:
        """Return the mean over images, the last axis."""
        return values @ self.weights

    def variance_of_mean(self, values: Array) -> Array:
        """Variance of :meth:`mean` over other draws of images."""
        sums = self._by_group(self._centred(np.asarray(values, float)) * self.weights)
        by_class = self._class is not None and self._group is None  # corrected class by class
        return (sums**2).sum(-1) * (1.0 if by_class else self.units / (self.units - 1))

    def _centred(self, values: Array) -> Array:
        """Deviations from the mean, or from the mean of the image's class."""
        if self._class is None:
            return values - values.mean(-1, keepdims=True)
        means = self._class.sums(values) / self._class.size
        centred = values - means[..., self.labels]
        if self._group is not None:
            return centred
        size = self._class.size[self.labels]
        centred = centred * np.sqrt(size / np.maximum(size - 1, 1))
        alone = size == 1  # shows no spread: takes that of the other classes
        usual = (centred**2).sum(-1, keepdims=True) / max(1, (~alone).sum())
        return np.where(alone, np.sqrt(usual), centred)

    def _by_group(self, values: Array) -> Array:
        return values if self._group is None else self._group.sums(values)


class _Pools:
    """Sums over images with the same code."""

    def __init__(self, codes: Array) -> None:
        self.size = np.bincount(codes)
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.cumsum(self.size) - self.size

    def sums(self, values: Array) -> Array:
        """Along the last axis, one for each code."""
        return np.add.reduceat(values[..., self._order], self._starts, axis=-1)


def _codes(names: Any, count: int, name: str) -> Array:
    """0, 1, ... for different names."""
    names = np.asarray(names)
    if names.shape[-1:] != (count,) or names.ndim > (2 if name == "folds" else 1):
        raise UserError(f"{name} must have one entry for each of {count} images: {names.shape}")
    return np.unique(names, return_inverse=True)[1].reshape(names.shape)


@dataclass(frozen=True)
class Runs:
    """The runs of one model (or of one contrast of its readings) on the images.

    ``correct`` is (..., seeds, images); trials of a simulation may come first.
    """

    correct: Array
    images: Images

    @property
    def num_seeds(self) -> int:
        """Number of runs."""
        return self.correct.shape[-2]

    @cached_property
    def per_image(self) -> Array:
        """Mean over seeds. (..., images)"""
        return self.correct.mean(-2, dtype=float)

    @cached_property
    def per_run(self) -> Array:
        """Accuracy of each run. (..., seeds)"""
        return self.images.mean(self.correct)

    @cached_property
    def spread(self) -> Array:
        """s^2, the variance of the runs' accuracies; not a number with one run."""
        if self.num_seeds < 2:
            return np.full(self.correct.shape[:-2], np.nan)
        return self.per_run.var(-1, ddof=1)

    @cached_property
    def residual(self) -> Array:
        """r, what of s^2 is there because single images vary from seed to seed."""
        if self.num_seeds < 2:
            return np.full(self.correct.shape[:-2], np.nan)
        left = self.correct - self.per_image[..., None, :]
        return self.images.variance_of_mean(left).sum(-1) / (self.num_seeds - 1)


def runs_of(correct: Any, images: Images, name: str = "a cell") -> Runs:
    """Checked runs of one model."""
    values = np.asarray(correct)
    if values.ndim != 2 or values.shape[0] < 1 or values.shape[1] != images.count:
        raise UserError(
            f"{name} must be an array (seeds, {images.count} images) as the others are, "
            f"not {values.shape}; all models must meet the same test images"
        )
    if values.dtype != bool:
        if not np.isin(values, (0, 1)).all():
            raise UserError(f"{name} must say right or wrong (True, False, 1 or 0) of every image")
        values = values.astype(bool)
    return Runs(values, images)


def combined(readings: Sequence[Any], weights: Sequence[float], images: Images) -> Runs:
    """Readings of the same trainings (masked and whole), seed by seed, as one cell.

    Its weight in a contrast is ``norm(weights)``. The spread between trainings cancels as far as
    the readings share it.
    """
    shapes = {np.shape(each) for each in readings}
    if len(shapes) > 1:
        raise UserError(f"readings of the same runs have the same shape, not {sorted(shapes)}")
    norm = float(np.linalg.norm(weights))
    pairs = zip(weights, readings, strict=True)
    return Runs(np.asarray(sum(w / norm * np.asarray(each, float) for w, each in pairs)), images)


def parts(runs: Sequence[Runs], weights: Sequence[float]) -> tuple[Any, ErrorVariance]:
    """A contrast of accuracies and the parts of its variance, in points; trials may come first."""
    images = runs[0].images
    squares = np.array([w**2 for w in weights], float)
    mean = sum(w * each.per_image for w, each in zip(weights, runs, strict=True))
    value = POINTS * images.mean(np.asarray(mean))
    by_images = images.variance_of_mean(np.asarray(mean)) + squares.sum() / 2 * images.floor
    by_seeds, residual, freedom = _seeds(runs, squares)
    return value, ErrorVariance(
        images=POINTS**2 * by_images,
        seeds=POINTS**2 * by_seeds,
        residual=POINTS**2 * residual,
        freedom=freedom,
        images_freedom=images.freedom,
    )


def _seeds(runs: Sequence[Runs], squares: Array) -> tuple[Any, Any, Any]:
    """V_seeds, V_residual and their degrees of freedom; a cell with one run takes the others'."""
    several = [each for each in runs if each.num_seeds > 1]
    if not several:
        return 0.0, 0.0, 0.0
    usual = Spread(
        np.average([r.spread for r in several], axis=0, weights=[r.num_seeds - 1 for r in several]),
        np.average([r.residual for r in several], axis=0),
    )
    by_seeds = residual = above = below = np.zeros(())
    for square, each in zip(squares, runs, strict=True):
        share, own = square / each.num_seeds, each.num_seeds - 1
        spread, left = (each.spread, each.residual) if own else usual
        by_seeds, residual = by_seeds + share * spread, residual + share * left
        if own:  # Satterthwaite, each spread drawn towards the usual one
            piece = share * (own * spread + BORROWED * usual.spread) / (own + BORROWED)
            above, below = above + piece, below + piece**2 / own
    least = float(min(each.num_seeds for each in several) - 1)
    return by_seeds, residual, np.where(below > 0, above**2 / np.where(below > 0, below, 1), least)


def contrast(
    cells: Sequence[Any],
    weights: Sequence[float],
    *,
    groups: Any = None,
    labels: Any = None,
    folds: Any = None,
    same_runs: bool = False,
) -> Estimate:
    """A contrast of accuracies, in points, with its interval, which ends where accuracies do.

    Args:
        cells: Each (seeds, images), right or wrong; all of the same test images.
        weights: Of the cells: (1, -1) for a difference, (1, -1, -1, 1) for one of differences.
        groups: A patient or video for each image.
        labels: True classes, for balanced accuracy.
        folds: The fold of each image, where every image was tested once with each seed; one row for
            each seed where the folds were dealt anew.
        same_runs: Cells are readings of the same trainings (masked and whole), seed by seed, so
            that the spread between trainings cancels as far as both share it.

    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.random((3, 500)) < 0.9, rng.random((3, 500)) < 0.7
    >>> result = contrast([first, second], (1, -1))
    >>> result.low < 20 < result.high
    True
    >>> few = [[1, 1], [0, 1]], [[0, 0], [0, 1]]  # two models, two seeds, two images
    >>> contrast(few, (1, -1)).high  # of a lead in points
    100.0
    """
    if len(cells) != len(weights) or len(cells) == 0:
        raise UserError(f"{len(cells)} cells have {len(weights)} weights; give one to each")
    shape = np.shape(cells[0])
    images = Images(shape[-1] if shape else 0, groups=groups, labels=labels, folds=folds)
    runs = [runs_of(cell, images) for cell in cells]
    if same_runs:
        joint = combined([each.correct for each in runs], weights, images)
        result = estimate([joint], [float(np.linalg.norm(weights))])
    else:
        result = estimate(runs, weights)
    least, most = (POINTS * sum(side(weight, 0.0) for weight in weights) for side in (min, max))
    return replace(result, low=max(result.low, least), high=min(result.high, most))


def estimate(runs: Sequence[Runs], weights: Sequence[float], level: float = 0.95) -> Estimate:
    """Compute :func:`contrast` of runs that have been checked, with an interval of this level."""
    images = runs[0].images
    if images.folds is not None:
        return _folded(runs, weights, level)
    value, variance = parts(runs, weights)
    if np.any(variance.freedom):
        return Estimate.of(value, variance, level)
    pair = [each.correct[0] for each in runs]
    more = {"p_value": _mcnemar(*pair)} if _plain_pair(runs, weights) else {}
    return Estimate.of(value, variance, level, one_run=True, **more)


def _plain_pair(runs: Sequence[Runs], weights: Sequence[float]) -> bool:
    plain = runs[0].images.groups is None and runs[0].images.labels is None
    binary = all(each.correct.dtype == bool for each in runs)
    return sorted(weights) == [-1, 1] and plain and binary


def _mcnemar(first: Array, second: Array) -> float:
    """Exact: of the images on which two runs differ, half would fall to each by chance."""
    from scipy.stats import binomtest  # takes a second to import

    ahead, behind = int((first & ~second).sum()), int((~first & second).sum())
    return float(binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0


def _folded(runs: Sequence[Runs], weights: Sequence[float], level: float) -> Estimate:
    images = runs[0].images
    assert images.folds is not None
    count = int(images.folds.max()) + 1
    seeds = min(each.num_seeds for each in runs)
    dealt = np.atleast_2d(images.folds)
    if 1 < len(dealt) < seeds:
        raise UserError(f"the folds of {len(dealt)} seeds came with runs of {seeds}")
    pieces = np.empty((seeds, count))
    for seed in range(seeds):
        for fold in range(count):
            inside = dealt[seed % len(dealt)] == fold
            weight = images.weights[inside] / images.weights[inside].sum()
            pieces[seed, fold] = POINTS * sum(
                w * (each.correct[seed, inside] @ weight)
                for w, each in zip(weights, runs, strict=True)
            )
    value = POINTS * sum(w * each.per_run.mean() for w, each in zip(weights, runs, strict=True))
    squares = float(np.square(weights).sum()) / 2
    floor = POINTS**2 * squares * images.floor * count  # of one fold's mean, about
    variance = pieces.var(ddof=1) + floor
    variance *= 1 / pieces.size + 1 / (count - 1)
    error = ErrorVariance(images=0.0, seeds=variance, freedom=float(pieces.size - 1))
    return Estimate.of(value, error, level)


def difference(first: Any, second: Any, **images: Any) -> Estimate:
    """Estimate how far the first model is ahead of the second, in points, as `contrast` does."""
    return contrast([first, second], (1.0, -1.0), **images)


def accuracy(correct: Any, **images: Any) -> Estimate:
    """The accuracy of one model, in percent, with its interval; words as `contrast`'s."""
    return contrast([correct], (1.0,), **images)
