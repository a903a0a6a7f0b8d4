"""Cautions about the result of a comparison, shown in the badge of its headline.

Each is a few words for the badge and a sentence with the numbers and what to do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vitascope import stats
from vitascope.comparison.evidence import Evidence, FractionResults
from vitascope.settings import with_changes


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
    command: str = "vitascope compare"  # that makes the comparison, with its --out
    out: str = "runs/compare"
    epochs: int = 0
    asked_epochs: int = 0  # where a budget left fewer
    num_classes: int = 0
    weights: Mapping[str, Sequence[Caution]] = field(default_factory=dict)  # of pretrained models

    def again(self, folder: str = "", **changes: object) -> str:
        """Return the command with other options, in another folder where it needs one."""
        out = {"--out": f"{self.out}-{folder}"} if folder else {}
        options = {f"--{name}": value for name, value in changes.items()}
        return f"`{with_changes(self.command, options | out)}`"

    @property
    def longer(self) -> str:
        """The command that trains twice as long."""
        return self.again("longer", epochs=2 * self.epochs) if self.epochs else "give more --epochs"


def typed_command(made: Mapping[str, Any], other: str) -> str:
    """Return the line that was typed to make a comparison; ``other`` where none is known."""
    line = str(made.get("command") or "")
    line = line if line.startswith("vitascope compare ") else other
    return with_changes(line, {"--quiet": None, "--json": None})


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
        *_cut_short(trainings),
        *_leak(trainings.leak),
        *_guessing(model, reported, trainings),
        *(each for found in trainings.weights.values() for each in found),
        *_one_seed(rows, trainings),
        *_never(trainings),
        *_rising(trainings, margin),
        *_falling(rows, margin),
        *_same_images(chosen, reported, len(rows[-1].entries), trainings),
        *_turned(model, chosen, reported, may_be_behind, trainings),
    )


def _cut_short(trainings: Trainings) -> list[Caution]:
    """A budget left fewer epochs than were asked for."""
    epochs, asked = trainings.epochs, trainings.asked_epochs
    if not epochs < asked:
        return []
    sentence = (
        f"Every model was trained for {epochs} of {asked} epochs, all that the budget had time "
        "for; with more, another model may lead. Give a longer --budget."
    )
    return [Caution(f"trained for {epochs} of {asked} epochs", sentence)]


def _leak(leak: str) -> list[Caution]:
    if not leak:
        return []
    sentence = f"{leak}. `vitascope data` lists them; take them out of one of the two."
    return [Caution("test images in the training set", sentence)]


def _guessing(model: str, reported: Evidence, trainings: Trainings) -> list[Caution]:
    """The recommended model is not shown to be better than guessing."""
    level = stats.accuracy(reported.correct(reported.most)[model], **reported.kinds)
    if trainings.num_classes < 2 or level.low > 100 / trainings.num_classes:
        return []
    sentence = (
        f"{model} is not shown to be better than guessing one of {trainings.num_classes} classes. "
        f"Train longer: {trainings.longer}"
    )
    return [Caution("no better than guessing", sentence, model)]


def _one_seed(rows: Sequence[FractionResults], trainings: Trainings) -> list[Caution]:
    if max(entry.num_seeds for row in rows for entry in row.entries) > 1:
        return []
    sentence = (
        "There is one seed per model, so the spread between runs is unknown. Add two: "
        f"{trainings.again(seeds=(0, 1, 2))}"
    )
    return [Caution("one seed", sentence)]


def _never(trainings: Trainings) -> list[Caution]:
    """Models that never predict some classes."""
    cautions = []
    for model, classes in trainings.never.items():
        if classes:
            names = ", ".join(classes[:5]) + (" and others" if len(classes) > 5 else "")
            sentence = (
                f"{model} never predicts {names}: its accuracy is that of the other classes alone. "
                "Add images of these classes, or choose by balanced accuracy: "
                f"{trainings.again(metric='balanced')}"
            )
            cautions.append(Caution(f"classes never predicted ({model})", sentence, model))
    return cautions


def _rising(trainings: Trainings, margin: float) -> list[Caution]:
    """Models whose last quarter of training still added more than the margin.

    Of two or three epochs it is the last one; of one nothing is known.
    """
    gains: dict[str, list[float]] = {}
    for model, curve in trainings.curves:
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
        sentence = f"{model} had not converged: {why}. Train longer: {trainings.longer}"
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


def _same_images(
    chosen: Evidence, reported: Evidence, num_models: int, trainings: Trainings
) -> list[Caution]:
    """The images that chose the model also measure it."""
    if chosen is not reported or num_models < 2:
        return []
    sentence = (
        f"The {chosen.called} were used both to choose the model and to measure it, which "
        f"overstates the best of {num_models} a little."
    )
    if chosen.folds is not None:
        sentence += " Put images that play no part in the choice into test/ to measure it fairly."
        return [Caution("chosen and measured on the same images", sentence)]
    sentence += f" Hold validation images out: {trainings.again('validation', validation=0.2)}"
    return [Caution("chosen on the test images", sentence)]


def _turned(
    model: str, chosen: Evidence, reported: Evidence, may_be_behind: float, trainings: Trainings
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
                f"[{lead.low:+.1f}, {lead.high:+.1f}], though the {chosen.called} chose {model}. "
                f"Choose by more images: {trainings.again('folds', folds=5)}"
            )
            cautions.append(Caution("the test images disagree", sentence))
    return cautions
