"""Which model to take for these images, in words, and what the answer rests on.

The rule is :func:`vitascope.studies.stats.recommend`, on the most training images; here are its
sentences, and what speaks against trusting it (:func:`cautions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from vitascope.studies import stats
from vitascope.studies.comparison.evidence import FractionResults, RunResult, correct_of, tabulate

__all__ = ["Advice", "advise", "cautions"]


@dataclass(frozen=True)
class Advice:
    """The answer in words, and what it rests on."""

    model: str
    headline: str
    sentences: tuple[str, ...]
    evidence: tuple[str, ...]
    confidence: Literal["clear", "equivalent", "undecided"]
    cautions: tuple[str, ...]  # reasons not to trust it, the gravest first
    margin: float  # points of top-1 that a cheaper model may be behind


def advise(
    cells: Sequence[RunResult],
    cost: Mapping[str, float],
    reference: str,
    *,
    margin: float = 1.0,
    curves: Sequence[tuple[str, Sequence[float]]] = (),
) -> Advice:
    """Which model to take for these images: the best on all of them, or a cheaper equivalent.

    Args:
        cells: All runs.
        cost: Multiply-adds of each model.
        reference: The model that gains are relative to.
        margin: Points of top-1 that do not matter where a model is cheaper.
        curves: Of each run on the most images its model, and its top-1 in percent over training.
    """
    full = max(cell.fraction for cell in cells)
    images = next(cell.num_images for cell in cells if cell.fraction == full)
    found = stats.recommend(correct_of(cells, full), cost, margin)
    mean = found.accuracy[found.model]
    if len(found.accuracy) == 1:
        headline = f"{found.model} has {mean:.1f} % top-1 on {images:,} images."
    elif found.verdict == "undecided":
        names = [found.best, *found.rivals]
        headline = f"Undecided between {', '.join(names[:-1])} and {names[-1]}"
        headline += f"; {found.best} has the highest mean, {mean:.1f} % on {images:,} images."
    else:
        how = "ahead of the rest" if found.verdict == "clear" else f"within {margin:g} of the best"
        headline = f"Take {found.model}: {mean:.1f} % top-1 on {images:,} images, {how}."
    rows = tabulate(cells, reference)
    against = cautions(rows, curves, margin)
    return Advice(
        model=found.model,
        headline=headline,
        sentences=(found.reason, *against, *_trend(rows, reference)),
        evidence=tuple(_says(row, reference) for row in rows),
        confidence=found.verdict,
        cautions=against,
        margin=margin,
    )


def cautions(
    rows: Sequence[FractionResults], curves: Sequence[tuple[str, Sequence[float]]], margin: float
) -> tuple[str, ...]:
    """What speaks against trusting a comparison, in sentences.

    One run per model, training that had not ended (the last quarter of it still brought more than
    the margin), and accuracy that falls with more images.
    """
    said = []
    if max(entry.num_seeds for row in rows for entry in row.entries) == 1:
        said.append("One seed per model: the spread between runs is unknown, add --seeds 0 1 2.")
    gains: dict[str, list[float]] = {}
    for model, curve in curves:
        if len(curve) >= 4:
            gains.setdefault(model, []).append(curve[-1] - curve[-1 - len(curve) // 4])
    rising = [name for name, rises in gains.items() if sum(rises) / len(rises) > margin]
    if rising:
        said.append(
            f"Not converged: {', '.join(rising)} gained more than {margin:g} point in the last "
            "quarter of the training, give more --epochs."
        )
    for few, many in pairwise(rows):
        for entry in many.entries:
            before = next((e for e in few.entries if e.model == entry.model), None)
            if before is not None and entry.mean < before.mean - margin:
                said.append(
                    f"{entry.model} is worse with {many.num_images:,} images than with "
                    f"{few.num_images:,} ({entry.mean:.1f} against {before.mean:.1f} %): its "
                    "training may not suit it."
                )
    return tuple(said)


def _trend(rows: Sequence[FractionResults], reference: str) -> list[str]:
    """How each gain over the reference changes from the most images to the fewest."""
    if len(rows) < 2:
        return []
    said = []
    for entry in rows[-1].entries:
        few = rows[0].entry(entry.model)
        ends = (few.points_low, few.points_high, entry.points_low, entry.points_high)
        if entry.model == reference or None in ends or entry.points is None or few.points is None:
            continue
        few_low, few_high, many_low, many_high = (end or 0.0 for end in ends)
        apart = few_low > many_high or few_high < many_low
        change = "grows" if few.points > entry.points else "shrinks"
        how = f"{change} with fewer images" if apart else "does not change beyond the noise"
        said.append(
            f"The lead of {entry.model} over {reference} {how}: {few.points:+.1f} points at "
            f"{rows[0].num_images:,} images, {entry.points:+.1f} at {rows[-1].num_images:,}."
        )
    return said


def _says(row: FractionResults, reference: str) -> str:
    parts = []
    for entry in row.entries:
        spread = f" ± {entry.std:.1f}" if entry.std is not None else ""
        part = f"{entry.model} {entry.mean:.1f}{spread} %"
        if entry.points is not None:
            part += f" ({entry.points:+.1f} points [{entry.points_low:+.1f}, "
            part += f"{entry.points_high:+.1f}] against {reference}: {entry.verdict})"
        parts.append(part)
    return f"{row.num_images:,} images: " + "; ".join(parts)
