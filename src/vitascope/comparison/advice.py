"""The recommendation of a comparison in sentences: which model, by how much, on what evidence.

The rule is :func:`vitascope.stats.recommend`, on the most training images. It sees the
images that choose (validation, or out of fold); accuracy and leads are reported on the test images,
which were not used for selection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vitascope import stats
from vitascope.comparison.cautions import Trainings, cautions
from vitascope.comparison.evidence import Evidence, FractionResults, tabulate
from vitascope.comparison.options import Metric
from vitascope.comparison.patch_sizes import finer_grids
from vitascope.reliability import TOO_WIDE
from vitascope.stats.recommendation import SPELT_OUT, undecided_between

FEW_TESTS = 500  # below these images in folds say more

METRICS: Mapping[Metric, str] = {"top1": "correct", "balanced": "balanced accuracy"}


@dataclass(frozen=True)
class Advice:
    """The answer in words, and the evidence for it."""

    model: str
    headline: str
    badge: str  # how far the headline can be trusted
    sentences: tuple[str, ...]
    evidence: tuple[str, ...]
    confidence: Literal["clear", "equivalent", "undecided"]
    cautions: tuple[str, ...]  # reasons not to trust it, the gravest first
    margin: float  # points of accuracy that a cheaper model may be behind
    accuracy: Mapping[str, Any]  # of the model, on images that were not used for selection


def advise(
    chosen: Evidence,
    reported: Evidence,
    cost: Mapping[str, float],
    reference: str,
    *,
    margin: float = 1.0,
    metric: Metric = "top1",
    trainings: Trainings | None = None,
    notes: Sequence[str] = (),
    recommendation: stats.Recommendation | None = None,
) -> Advice:
    """Recommend a model for these images: the best on all of them, or a cheaper equivalent.

    Args:
        chosen: Results of the runs on the images that choose the model.
        reported: Results on images that were not used for selection; the same object as ``chosen``
            where there are none.
        cost: Multiply-adds of each model.
        reference: The model that gains are relative to.
        margin: Points that do not matter where a model is cheaper.
        metric: What the accuracy is called.
        trainings: What else is known of the runs.
        notes: What a reader must know of how they were planned.
        recommendation: The result of the last of several looks; by default that of one.
    """
    most = chosen.most
    if recommendation is None:
        recommendation = stats.recommend(chosen.correct(most), cost, margin, **chosen.kinds)
    correct = reported.correct(most)
    level = stats.accuracy(correct[recommendation.model], **reported.kinds)
    rows, trainings = tabulate(reported, reference), trainings or Trainings()
    all_cautions = cautions(
        rows,
        trainings,
        margin,
        model=recommendation.model,
        chosen=chosen,
        reported=reported,
        may_be_behind=0.0 if _is_best(recommendation) else margin,
    )
    contenders = {
        None,
        recommendation.model,
        recommendation.best,
    }  # a clear result does not depend on the others
    contenders |= set() if recommendation.verdict == "clear" else set(recommendation.rivals)
    against = [each for each in all_cautions if each.model in contenders]
    against = list({each.sentence: each for each in against}.values())  # of two usages one
    own_sentences = {each.sentence for each in against}
    others = {
        each.sentence: each for each in all_cautions if each.sentence not in own_sentences
    }.values()
    return Advice(
        model=recommendation.model,
        headline=_headline(recommendation, level, metric),
        badge=_badge(recommendation, margin, [each.words for each in against]),
        sentences=(
            _evidence(recommendation, level, chosen, reported, margin),
            *(each.sentence for each in against),
            *_why(recommendation, chosen),
            *_leads(recommendation.model, reported, chosen),
            *_grids(reported, cost),
            *notes,
            *_few(chosen, reported, trainings),
            *_trend(rows, reference),
            *(each.sentence for each in others),
        ),
        evidence=tuple(_says(row, reference) for row in rows),
        confidence=recommendation.verdict,
        cautions=tuple(each.sentence for each in against),
        margin=margin,
        accuracy={"mean": level.value, "low": level.low, "high": level.high},
    )


def _is_best(recommendation: stats.Recommendation) -> bool:
    """Return whether the recommended model has the best mean, and is not a cheaper equivalent."""
    taken = recommendation.model == recommendation.best
    return taken and recommendation.verdict != "equivalent"


def _headline(recommendation: stats.Recommendation, level: stats.Estimate, metric: Metric) -> str:
    """Say in a few words which model to use, and how often it is right."""
    number = f"{level.value:.0f}"
    if number == "100" and level.value < 100:
        number = f"{level.value:.1f}"
    result = f"{recommendation.model}: {number} % {METRICS[metric]}"
    if len(recommendation.accuracy) == 1:
        return result
    if recommendation.verdict == "undecided":
        between = undecided_between(recommendation.best, recommendation.rivals)
        return f"{between}; for now use {result}"
    return f"Use {result}"


def _evidence(
    recommendation: stats.Recommendation,
    level: stats.Estimate,
    chosen: Evidence,
    reported: Evidence,
    margin: float,
) -> str:
    """Give the evidence for the headline in one line."""
    measured = f"{level.value:.1f} % {_between(level)} of {reported.called}"
    correct = reported.correct(reported.most)
    if len(correct) == 1:
        return f"Right on {measured}."
    model = recommendation.model
    others = [name for name in correct if name != model]
    closest = max(others, key=lambda name: stats.accuracy(correct[name], **reported.kinds).value)
    lead = stats.difference(correct[model], correct[closest], **reported.kinds)
    how = "ahead of the next," if lead.value >= 0 else "behind"
    gap = f"{abs(lead.value):.1f} {_points(abs(lead.value))} {how} {closest}"
    gap = f"level with the next, {closest}" if abs(lead.value) < 0.05 else gap
    line = f"Right on {measured}; {gap} {_between(lead, sign=lead.value < 0)}."
    if recommendation.verdict == "equivalent" and model != recommendation.best:
        line += (
            f" It is cheaper than {recommendation.best}, and shown to be at most {margin:g} "
            f"{_points(margin)} behind it."
        )
    if recommendation.verdict == "undecided":
        line += f" {chosen.called[0].upper()}{chosen.called[1:]} cannot tell them apart."
    return line


def _between(estimate: stats.Estimate, sign: bool = False) -> str:
    """Write a 95 % interval; one that spans nearly everything says nothing.

    >>> import numpy as np
    >>> right = np.arange(1000) < 900
    >>> _between(stats.accuracy([right, right]))
    '(95 % interval 88.1 to 91.9)'
    """
    low, high = (-estimate.high, -estimate.low) if sign else (estimate.low, estimate.high)
    if high - low > TOO_WIDE:
        return "(too few images to tell)"
    return f"(95 % interval {low:.1f} to {high:.1f})"


def _badge(recommendation: stats.Recommendation, margin: float, against: Sequence[str]) -> str:
    """Return how far the headline can be trusted; cautions come first."""
    if against:
        return f"With caution: {'; '.join(against)}"
    if recommendation.verdict == "clear":
        return "A clear result"
    if recommendation.verdict == "equivalent":
        return f"Shown to be within {margin:g} {_points(margin)} of the best"
    if len(recommendation.accuracy) == 1:
        return "One model: nothing to compare it with"
    return "Undecided: the models are too close for these runs and images"


def _points(number: float) -> str:
    return "point" if number == 1 else "points"


def _why(recommendation: stats.Recommendation, chosen: Evidence) -> list[str]:
    """The reason of the choice, with the images it was made by."""
    if len(recommendation.accuracy) == 1:
        return [recommendation.reason]
    order = sorted(recommendation.accuracy.items(), key=lambda pair: -pair[1])
    shown = list(recommendation.accuracy.items()) if len(order) <= SPELT_OUT else order[:2]
    means = ", ".join(f"{name} {mean:.1f} %" for name, mean in shown)
    if len(shown) < len(order):
        means += f", {len(order) - len(shown)} others down to {order[-1][1]:.1f} %"
    return [f"Chosen by {chosen.called}: {means}. {recommendation.reason}"]


def _leads(model: str, reported: Evidence, chosen: Evidence) -> list[str]:
    """Say how far the model leads each other one on images not used for selection."""
    correct = reported.correct(reported.most)
    if chosen is reported or len(correct) < 2:
        return []
    leads = {
        other: stats.difference(correct[model], runs, **reported.kinds)
        for other, runs in correct.items()
        if other != model
    }
    sentences = _each_lead(leads) if len(correct) <= SPELT_OUT else _grouped_leads(leads)
    listed = "; ".join(sentences)
    return [f"On the {reported.called}, which were not used for selection, {model} is {listed}."]


def _grids(reported: Evidence, cost: Mapping[str, float]) -> list[str]:
    """Say what each finer grid of a network adds, and what it costs."""
    correct = reported.correct(reported.most)
    sentences = []
    for grid in finer_grids(correct):
        fine, coarse = grid.names
        lead = stats.difference(correct[fine], correct[coarse], **reported.kinds)
        noise = "" if _shown(lead) else " (no measurable difference)"
        sentences.append(
            f"A finer grid, patches of {grid.fine} instead of {grid.coarse} pixels, adds "
            f"{grid.model} {lead.value:+.1f} points {_interval(lead)}{noise} for "
            f"{cost[fine] / cost[coarse]:.1f} times the multiply-adds."
        )
    return sentences


def _shown(lead: stats.Estimate) -> bool:
    """Return whether the interval excludes 0, and speaks of more than two single runs."""
    return (lead.low > 0 or lead.high < 0) and not lead.one_run


def _interval(lead: stats.Estimate) -> str:
    if lead.high - lead.low > TOO_WIDE:
        return "[too few images to tell]"
    return f"[{lead.low:+.1f}, {lead.high:+.1f}]"


def _each_lead(leads: Mapping[str, stats.Estimate]) -> list[str]:
    """One part of a sentence for each other model."""
    parts = []
    for other, lead in leads.items():
        interval = f"{_interval(lead)}{'' if _shown(lead) else ' (no measurable difference)'}"
        if abs(lead.value) < 0.05:
            parts.append(f"level with {other} {interval}")
            continue
        how = "ahead of" if lead.value > 0 else "behind"
        parts.append(f"{how} {other} by {abs(lead.value):.1f} points {interval}")
    return parts


def _grouped_leads(leads: Mapping[str, stats.Estimate]) -> list[str]:
    """Group many models: those it is ahead of, level with, and behind."""
    groups: dict[str, list[tuple[str, stats.Estimate]]] = {"ahead": [], "level": [], "behind": []}
    for other, lead in sorted(leads.items(), key=lambda pair: pair[1].value):
        how = "level" if not _shown(lead) else "ahead" if lead.value > 0 else "behind"
        groups[how].append((other, lead))

    def names(how: str) -> str:
        given = [name for name, _ in groups[how]]
        return given[0] if len(given) == 1 else f"{len(given)} others"

    parts = []
    if groups["ahead"]:
        least = groups["ahead"][0][1]
        more = " or more" if len(groups["ahead"]) > 1 else ""
        parts.append(
            f"ahead of {names('ahead')} by {least.value:.1f} points {_interval(least)}{more}"
        )
    if groups["level"]:
        ends = [groups["level"][0][1], *([groups["level"][-1][1]] * (len(groups["level"]) > 1))]
        spans = " to ".join(f"{lead.value:+.1f} points {_interval(lead)}" for lead in ends)
        parts.append(f"level with {names('level')} ({spans})")
    if groups["behind"]:
        most = groups["behind"][0][1]
        upto = "up to " if len(groups["behind"]) > 1 else ""
        parts.append(
            f"behind {names('behind')} by {upto}{-most.value:.1f} points {_interval(most)}"
        )
    return parts


def _few(chosen: Evidence, reported: Evidence, trainings: Trainings) -> list[str]:
    if chosen.folds is not None or reported.num_images >= FEW_TESTS:
        return []
    return [
        f"{reported.called} cannot show small differences. With folds every training image is "
        f"tested once: {trainings.again('folds', folds=5)}"
    ]


def _trend(rows: Sequence[FractionResults], reference: str) -> list[str]:
    """Return how each lead over the reference changes from the most images to the fewest."""
    if len(rows) < 2:
        return []
    sentences = []
    for entry in rows[-1].entries:
        few = rows[0].entry(entry.model)
        ends = (few.points_low, few.points_high, entry.points_low, entry.points_high)
        if entry.model == reference or None in ends or entry.points is None or few.points is None:
            continue
        few_low, few_high, many_low, many_high = (end or 0.0 for end in ends)
        apart = few_low > many_high or few_high < many_low
        change = "grows" if few.points > entry.points else "shrinks"
        sentences.append(
            f"The lead of {entry.model} over {reference} {change} with fewer images: "
            f"{few.points:+.1f} points at {rows[0].num_images:,} images, {entry.points:+.1f} at "
            f"{rows[-1].num_images:,}{'.' if apart else ', but this may be chance.'}"
        )
    return sentences


def _says(row: FractionResults, reference: str) -> str:
    parts = []
    for entry in row.entries:
        part = f"{entry.model} {entry.mean:.1f} % [{entry.low:.1f}, {entry.high:.1f}]"
        if entry.points is not None:
            part += f" ({entry.points:+.1f} points [{entry.points_low:+.1f}, "
            part += f"{entry.points_high:+.1f}] against {reference}: {entry.verdict})"
        parts.append(part)
    return f"{row.num_images:,} images: " + "; ".join(parts)
