"""Which model to take for these images, in words, and what the answer rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitascope.studies.evidence import Cell, Row, tabulate

__all__ = ["Recommendation", "recommend"]


@dataclass(frozen=True)
class Recommendation:
    """The answer in words, and what it rests on."""

    model: str
    headline: str
    sentences: tuple[str, ...]
    evidence: tuple[str, ...]
    confidence: Literal["clear", "within noise"]


def recommend(
    cells: Sequence[Cell], num_test: int, cost: Mapping[str, float], reference: str
) -> Recommendation:
    """Which model to take for these images: the best on all of them, or the cheapest of equals.

    Args:
        cost: Multiply-adds of each model, to choose among those that cannot be told apart.
    """
    full = max(cell.fraction for cell in cells)
    best = max(
        dict.fromkeys(cell.model for cell in cells),
        key=lambda model: np.mean(
            [c.top1 for c in cells if (c.model, c.fraction) == (model, full)]
        ),
    )
    against = {row.fraction: row for row in tabulate(cells, best, num_test)}
    rivals = [e for e in against[full].entries if e.model != best and e.verdict != "behind"]
    chosen = min([best, *(e.model for e in rivals)], key=lambda model: cost[model])
    images = against[full].num_images
    lead = against[full].entry(best)
    if rivals:
        names = " and ".join(entry.model for entry in rivals)
        headline = f"Take {chosen}: on {images:,} images nothing beats it beyond the noise."
        first = f"{best} has the highest top-1, {lead.mean:.1f} %, but {names} cannot be told apart"
        first += f" from it; of these {chosen} needs the fewest operations."
    else:
        headline = (
            f"Take {chosen}: {lead.mean:.1f} % top-1 on {images:,} images, ahead of the rest."
        )
        first = f"Every other model is behind it by more than the noise at {images:,} images."
    rows = tabulate(cells, reference, num_test)
    evidence = tuple(_says(row, reference) for row in rows)
    sentences = [first, *_trend(rows, reference)]
    if max(entry.num_seeds for row in rows for entry in row.entries) == 1:
        sentences.append("One seed a model: the spread between runs is unknown, add --seeds 0 1 2.")
    confidence: Literal["clear", "within noise"] = "within noise" if rivals else "clear"
    return Recommendation(chosen, headline, tuple(sentences), evidence, confidence)


def _trend(rows: Sequence[Row], reference: str) -> list[str]:
    """How each gain over the reference changes from the most images to the fewest."""
    if len(rows) < 2:
        return []
    said = []
    for entry in rows[-1].entries:
        if entry.model == reference or entry.gain is None:
            continue
        few = rows[0].entry(entry.model)
        if few.gain is None or few.gain_low is None or entry.gain_low is None:
            continue
        apart = few.gain_low > (entry.gain_high or 0) or (few.gain_high or 0) < entry.gain_low
        change = "grows" if few.gain > entry.gain else "shrinks"
        how = f"{change} with fewer images" if apart else "does not change beyond the noise"
        said.append(
            f"The gain of {entry.model} over {reference} {how}: {few.gain:+.1f} % at "
            f"{rows[0].num_images:,} images, {entry.gain:+.1f} % at {rows[-1].num_images:,}."
        )
    return said


def _says(row: Row, reference: str) -> str:
    parts = []
    for entry in row.entries:
        spread = f" ± {entry.std:.1f}" if entry.std is not None else ""
        part = f"{entry.model} {entry.mean:.1f}{spread} %"
        if entry.gain is not None:
            part += f" ({entry.gain:+.1f} % [{entry.gain_low:+.1f}, {entry.gain_high:+.1f}] "
            part += f"against {reference}: {entry.verdict})"
        parts.append(part)
    return f"{row.num_images:,} images: " + "; ".join(parts)
