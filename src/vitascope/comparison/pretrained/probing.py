"""Every candidate probed on the images of a question.

The training images are parted as for the race: a share is held out and chooses, or every fold in
turn. Each seed trains its classifiers on the rest; they are right or wrong on the held-out images,
which choose, and on the test images, which report.

Shapes: S seeds, F folds (1 without), n held-out images in all, M test images.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitascope.comparison.evidence import Evidence, RunResult
from vitascope.comparison.pretrained.candidates import Backbone
from vitascope.comparison.pretrained.cost import Cost
from vitascope.comparison.pretrained.race import SHARES, PretrainedQuestion, Twice, twice
from vitascope.data import Dataset
from vitascope.data.held_out import check_groups, dealt_out, positions
from vitascope.errors import UserError
from vitascope.inspection.probe import Probed, frozen_features, linear, probe
from vitascope.loading.opening import with_random_weights
from vitascope.stats import Estimate, difference
from vitascope.training.predictions import Predictions

KINDS = ("knn", "linear")  # classifiers on frozen features
FEW = 100  # images to train on, and to measure on, with random weights
Tell = Callable[[str], None]
OnImage = Callable[[str, int, int], None]
Part = tuple[np.ndarray, np.ndarray]  # positions of training images to train on, and held out


@dataclass(frozen=True, kw_only=True)
class ProbedCandidate:
    """A candidate that was probed."""

    backbone: Backbone
    chosen: Mapping[str, np.ndarray]  # "knn", "linear" on the images that choose. (S, n) bool
    reported: Mapping[str, np.ndarray]  # on those that report. (S x F, M) bool
    k: int
    c: float
    first: Predictions  # of the linear classifier of the first seed, on those that report
    inner: float  # share of the linear classifier in the inner cross-validation
    cost: Cost
    num_train: int  # images of one training
    twice: Twice | None  # the linear probe with twice the images
    over_random: Estimate | None = None  # points by which the weights beat random ones
    random: float = 0.0  # percent that random weights get right, on the same few images

    @property
    def shares(self) -> dict[str, float]:
        """Accuracies in [0, 1] on the images that report."""
        return {name: float(right.mean()) for name, right in self.reported.items()}


def probe_all(
    question: PretrainedQuestion,
    candidates: Iterable[Backbone],
    costs: Mapping[str, Cost],
    folder: Path,
    tell: Tell,
    on_image: OnImage,
) -> tuple[dict[str, ProbedCandidate], dict[str, str], Dataset]:
    """Open every candidate that is available, with the reasons for the others, and the images.

    Args:
        question: What is asked.
        candidates: At least one of them is available.
        costs: Of each that is available.
        folder: Where features are kept.
        tell: Told in one line what every candidate is and found.
        on_image: Told of the progress.

    Raises:
        UserError: If the images cannot be parted.
    """
    probed: dict[str, ProbedCandidate] = {}
    skipped: dict[str, str] = {}
    images = None
    more = {} if question.folds is None else {"test_fraction": 0.0}
    for each in candidates:
        if each.opened is None:
            skipped[each.text] = each.problem
            tell(f"skipped {each.text}: {each.problem}")
            continue
        images = each.opened.preprocessing.load(question.data, **more)
        tell(each.opened.line)
        probed[each.text] = _probed(question, each, costs[each.text], images, folder, on_image)
        shares = probed[each.text].shares
        reported = f"{len(images.test)} test" if len(images.test) else "the held-out"
        tell(
            f"{each.text}: k-NN {100 * shares['knn']:.1f} %, linear {100 * shares['linear']:.1f} % "
            f"of {reported} images"
        )
    assert images is not None
    return probed, skipped, images


def parts_of(question: PretrainedQuestion, images: Dataset, seed: int = 0) -> list[Part]:
    """Return how the training images are parted; nothing is held out where test images choose.

    Folds are dealt out with the seed where the question wants them dealt anew.

    Raises:
        UserError: If there are none, or a part holds one group alone.
    """
    check_groups(images.test, "test")
    if question.folds is None and not question.validation:
        if not len(images.train):
            raise UserError(f"{images.name} has no training images; give a source that has some")
        return [(np.arange(len(images.train)), np.arange(0))]
    draw = seed if question.redraw else 0
    parts = positions(images, question.validation, question.folds, draw)
    if question.folds is None:
        check_groups(images.train.take(parts[0][1]), "validation")
    return parts


def _probed(
    question: PretrainedQuestion,
    each: Backbone,
    cost: Cost,
    images: Dataset,
    folder: Path,
    on_image: OnImage,
) -> ProbedCandidate:
    assert each.opened is not None
    total, done = len(images.train) + len(images.test), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        on_image(each.text, done, total)

    train = frozen_features(each.opened, images.train, folder, on_step=step)
    test = frozen_features(each.opened, images.test, folder, on_step=step)
    labels, groups = images.train.labels, images.train.groups
    rows, out = parts_of(question, images, question.seeds[0])[0]
    probes = _probes(question, images, train, test, question.seeds)
    first = probes.first
    measured = (test, images.test.labels) if len(images.test) else (train[out], labels[out])
    return ProbedCandidate(
        backbone=each,
        chosen=probes.chosen,
        reported=probes.reported,
        k=first.k,
        c=first.c,
        first=first.first.at(slice(len(out), None) if len(images.test) else slice(len(out))),
        inner=probes.inner,
        cost=cost,
        num_train=len(rows),
        twice=_twice(
            question.seeds,
            first.c,
            (train[rows], labels[rows]),
            measured,
            None if groups is None else groups[rows],
        ),
        **_against_random(each, images, (rows, out), train, test, first.c, folder),
    )


def with_another_seed(
    question: PretrainedQuestion, candidate: ProbedCandidate, images: Dataset, folder: Path
) -> ProbedCandidate:
    """Return the candidate probed with one more seed, on folds that are dealt anew."""
    opened = candidate.backbone.opened
    assert opened is not None
    train = frozen_features(opened, images.train, folder)
    test = frozen_features(opened, images.test, folder)
    seed = question.seeds_up_to(len(candidate.chosen["linear"]) + 1)[-1]
    probes = _probes(question, images, train, test, (seed,))

    def longer(
        before: Mapping[str, np.ndarray], more: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {name: np.concatenate([before[name], more[name]]) for name in KINDS}

    return replace(
        candidate,
        chosen=longer(candidate.chosen, probes.chosen),
        reported=longer(candidate.reported, probes.reported),
    )


@dataclass(frozen=True)
class _Probes:
    """Probes on all parts of the images: which images that choose, and report, they get right."""

    first: Probed
    inner: float
    chosen: Mapping[str, np.ndarray]
    reported: Mapping[str, np.ndarray]


def _probes(
    question: PretrainedQuestion,
    images: Dataset,
    train: np.ndarray,
    test: np.ndarray,
    seeds: tuple[int, ...],
) -> _Probes:
    """Probe on every part with every seed; where folds are dealt anew, on those of the seed."""
    if question.redraw and len(seeds) > 1:
        each = [_probes(question, images, train, test, (seed,)) for seed in seeds]
        chosen, reported = (
            {name: np.concatenate([getattr(one, which)[name] for one in each]) for name in KINDS}
            for which in ("chosen", "reported")
        )
        inner = float(np.mean([one.inner for one in each]))
        return _Probes(each[0].first, inner, chosen, reported)
    labels, groups = images.train.labels, images.train.groups
    parts = parts_of(question, images, seeds[0])
    probed = [
        probe(
            train[rows],
            labels[rows],
            np.concatenate([train[out], test]),
            np.concatenate([labels[out], images.test.labels]),
            seeds=seeds,
            groups=None if groups is None else groups[rows],
        )
        for rows, out in parts
    ]
    order = np.concatenate([out for _, out in parts])
    chosen, reported = {}, {}
    for name in KINDS:
        right = [(getattr(p, name), len(out)) for p, (_, out) in zip(probed, parts, strict=True)]
        chosen[name] = np.concatenate([each[:, :held] for each, held in right], axis=1)
        reported[name] = np.concatenate([each[:, held:] for each, held in right])
        if question.redraw:  # in the order of the images, which is the same in all draws
            chosen[name] = chosen[name][:, np.argsort(order)]
    if not chosen["linear"].shape[1]:
        chosen = reported
    inner = float(np.mean([each.inner[f"{each.c:g}"] for each in probed]))
    return _Probes(probed[0], inner, chosen, reported if len(images.test) else chosen)


def _against_random(
    each: Backbone,
    images: Dataset,
    part: Part,
    train: np.ndarray,
    test: np.ndarray,
    c: float,
    folder: Path,
) -> dict[str, Any]:
    """Probe the same network with random weights, on a few images.

    Args:
        each: The candidate.
        images: All images.
        part: Positions of training images to train on, and held out.
        train: Features of the training images by the candidate's weights.
        test: Of the test images.
        c: Inverse penalty.
        folder: Of the cache.
    """
    assert each.opened is not None
    if not each.rebuildable:
        return {}
    rows, out = part
    labels = images.train.labels
    measured, pixels, answers = test, images.test, images.test.labels
    if not len(test):
        measured, pixels, answers = train[out], images.train.take(out), labels[out]
    rng = np.random.default_rng(0)
    few = np.sort(rng.permutation(rows)[:FEW])
    seen = np.sort(rng.permutation(len(measured))[:FEW])
    if len(np.unique(labels[few])) < 2 or len(seen) < 2:
        return {}
    with_weights = (train[few], measured[seen])
    random = with_random_weights(each.opened, 0)
    random.model.eval()
    without = (
        frozen_features(random, images.train.take(few), folder),
        frozen_features(random, pixels.take(seen), folder),
    )
    right = [
        linear(c).fit(features, labels[few]).predict(new) == answers[seen]
        for features, new in (with_weights, without)
    ]
    lead = difference([right[0]], [right[1]])
    return {"over_random": lead, "random": 100 * float(right[1].mean())}


def _twice(
    seeds: tuple[int, ...],
    c: float,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    groups: np.ndarray | None,
) -> Twice | None:
    """The learning curve of the linear probe, and what it says of twice the images."""
    (features, labels), counts, errors = train, [], []
    for share in SHARES:
        for seed in seeds:
            part = some(labels, share, seed, groups)
            if len(np.unique(labels[part])) < 2:
                continue
            model = linear(c).fit(features[part], labels[part])
            counts.append(len(part))
            errors.append(float((model.predict(test[0]) != test[1]).mean()))
    return twice(counts, errors)


def some(
    labels: np.ndarray, share: float, seed: int, groups: np.ndarray | None = None
) -> np.ndarray:
    """Positions of a share of each class, at least one image, drawn with the seed; or of groups.

    >>> some(np.array([0, 0, 1, 1]), 0.5, 0).shape
    (2,)
    """
    rng, chosen = np.random.default_rng(seed), []
    if groups is not None:
        names = rng.permutation(np.unique(groups))
        return np.flatnonzero(np.isin(groups, names[: max(1, round(share * len(names)))]))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen.append(rng.permutation(members)[: max(1, round(share * len(members)))])
    return np.sort(np.concatenate(chosen))


def evidence_of(
    question: PretrainedQuestion, candidates: Mapping[str, ProbedCandidate], images: Dataset
) -> tuple[Evidence, Evidence]:
    """Collect the linear probes' results on the images that choose and on those that report.

    They are the same object where the same images do both.
    """

    def runs(which: str) -> tuple[RunResult, ...]:
        return tuple(
            RunResult(name, 1.0, number, each.num_train, right)
            for name, each in candidates.items()
            for number, right in enumerate(getattr(each, which)["linear"])
        )

    balanced = question.metric == "balanced"
    tests = Evidence(
        name="test",
        runs=runs("reported"),
        labels=images.test.labels if balanced else None,
        groups=images.test.groups,
    )
    if question.folds is None and not question.validation:
        return tests, tests
    parts = parts_of(question, images)
    order = np.concatenate([out for _, out in parts])
    dealt = np.repeat(np.arange(len(parts)), [len(out) for _, out in parts])
    if question.redraw:
        assert question.folds is not None
        most = max(len(each.chosen["linear"]) for each in candidates.values())
        order = np.arange(len(images.train))
        dealt = dealt_out(images, question.folds, question.seeds_up_to(most))
    held = Evidence(
        name="validation" if question.folds is None else "held-out",
        runs=runs("chosen"),
        labels=images.train.labels[order] if balanced else None,
        folds=None if question.folds is None else dealt,
        groups=None if images.train.groups is None else images.train.groups[order],
    )
    return (held, tests) if len(images.test) else (held, held)
