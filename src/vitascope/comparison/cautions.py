"""Cautions about the result of a comparison, shown in the badge of its headline.

Each is a few words for the badge and a sentence with the numbers and what to do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from vitascope import stats
from vitascope.comparison.evidence import Evidence, FractionResults


@dataclass(frozen=True)
class Caution:
    """A reason not to trust an answer."""

    words: str  # few: for the badge
    sentence: str
    model: str | None = None  # that it is about; None for the whole comparison


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """Training curves and other facts about the runs on all images, besides their accuracies."""

    curves: Sequence[tuple[str, Sequence[float]]] = ()  # model, accuracy in percent over training
    never: Mapping[str, Sequence[str]] = field(default_factory=dict)  # classes a model never says
    leak: str = ""  # test images that were trained on, in words


def cautions(
    rows: Sequence[FractionResults],
    trainings: Trainings,
    margin: float,
    *,
    model: str,
    chosen: Evidence,
    reported: Evidence,
    may_be_behind: float = 0.0,
) -> tuple[Caution, ...]:
    """The cautions of a comparison, the gravest first.

    Args:
        rows: Accuracies by fraction.
        trainings: Learning curves and classes that are never predicted.
        margin: Points that matter.
        model: The one that is recommended.
        chosen: By which images it was.
        reported: On which images its accuracy is told.
        may_be_behind: Points by which it may be, where it was taken because it is cheaper.
    """
    return (
        *_leak(trainings.leak),
        *_one_seed(rows),
        *_never(trainings.never),
        *_rising(trainings.curves, margin),
        *_falling(rows, margin),
        *_same_images(chosen, reported, len(rows[-1].entries)),
        *_turned(model, chosen, reported, may_be_behind),
    )


def _leak(leak: str) -> list[Caution]:
    if not leak:
        return []
    sentence = f"{leak}; `vitascope data` names them: take them out of one of the two."
    return [Caution("test images in the training set", sentence)]


def _one_seed(rows: Sequence[FractionResults]) -> list[Caution]:
    if max(entry.num_seeds for row in rows for entry in row.entries) > 1:
        return []
    sentence = "One seed per model: the spread between runs is unknown, add --seeds 0 1 2."
    return [Caution("one seed", sentence)]


def _never(never: Mapping[str, Sequence[str]]) -> list[Caution]:
    """Models that never predict some classes."""
    cautions = []
    for model, classes in never.items():
        if classes:
            names = ", ".join(classes[:5]) + (" and others" if len(classes) > 5 else "")
            sentence = (
                f"{model} never predicts {names}: its accuracy is that of the other classes alone; "
                "give more --epochs, more images of these, or --metric balanced."
            )
            cautions.append(Caution(f"classes never predicted ({model})", sentence, model))
    return cautions


def _rising(curves: Sequence[tuple[str, Sequence[float]]], margin: float) -> list[Caution]:
    """Models whose last quarter of training still added more than the margin.

    Of two or three epochs it is the last one; of one nothing is known.
    """
    gains: dict[str, list[float]] = {}
    for model, curve in curves:
        last = max(1, len(curve) // 4)
        gains.setdefault(model, []).append(
            curve[-1] - curve[-1 - last] if len(curve) > 1 else math.inf
        )
    cautions = []
    for model, rises in gains.items():
        rise = sum(rises) / len(rises)
        if rise <= margin:
            continue
        why = "it was measured after one epoch alone"
        if math.isfinite(rise):
            why = f"the last quarter of its training still added {rise:.1f} points"
        sentence = f"{model} had not converged: {why}; give more --epochs."
        cautions.append(Caution(f"not converged ({model})", sentence, model))
    return cautions


def _falling(rows: Sequence[FractionResults], margin: float) -> list[Caution]:
    """Models that are worse with more images."""
    cautions = []
    for few, many in pairwise(rows):
        for entry in many.entries:
            before = next((e for e in few.entries if e.model == entry.model), None)
            if before is not None and entry.mean < before.mean - margin:
                sentence = (
                    f"{entry.model} is worse with {many.num_images:,} images than with "
                    f"{few.num_images:,} ({entry.mean:.1f} against {before.mean:.1f} %): its "
                    "training may not suit it."
                )
                label = f"worse with more images ({entry.model})"
                cautions.append(Caution(label, sentence, entry.model))
    return cautions


def _same_images(chosen: Evidence, reported: Evidence, num_models: int) -> list[Caution]:
    """The images that chose the model also measure it."""
    if chosen is not reported or num_models < 2:
        return []
    sentence = (
        f"The {chosen.called} chose the model and measure it too, which flatters the best of "
        f"{num_models} a little."
    )
    if chosen.folds is not None:
        sentence += " Images that took no part, in test/, would tell."
        return [Caution("chosen and measured on the same images", sentence)]
    return [Caution("chosen on the test images", f"{sentence} Leave --validation at 0.2.")]


def _turned(
    model: str, chosen: Evidence, reported: Evidence, may_be_behind: float
) -> list[Caution]:
    """Another model is shown to be further ahead on images that were not used for selection."""
    if chosen is reported:
        return []
    correct = reported.correct(reported.most)
    cautions = []
    for other, runs in correct.items():
        if other == model:
            continue
        lead = stats.difference(runs, correct[model], **reported.kinds)
        if lead.low > may_be_behind and not lead.one_run:
            sentence = (
                f"On the {reported.called} {other} is ahead of {model} by {lead.value:+.1f} points "
                f"[{lead.low:+.1f}, {lead.high:+.1f}], though the {chosen.called} chose {model}: "
                "choose by more images, with --folds 5."
            )
            cautions.append(Caution("the test images disagree", sentence))
    return cautions
