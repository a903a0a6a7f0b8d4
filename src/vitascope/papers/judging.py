"""Does what was measured agree with what the paper claims?

A claim is a contrast of cells, ``sum_k w_k m_k``, that the paper predicts to lie above a margin.
How far it can be trusted depends on what its cells are (`vitascope.stats`):

    means over test images      paired over images, crossed with seeds
    spectra of mini-batches     batches resampled, crossed with seeds
    a rank correlation          Fisher's z over its points, and the spread of z over seeds
    other numbers               the variance of each cell over seeds, Satterthwaite's t

Cells that are read off the same trainings (masked and whole, before and after) are combined seed by
seed first. An accuracy whose images were not kept (early in training) has the variance
p (1 - p) / N of its test images beside the seeds', as if no two runs had the same ones.

The paper's own effect is the contrast of its numbers for the same cells, where there are any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from vitascope.papers.plan import HITS, Ask, Claim, Findings, Sheet
from vitascope.stats import (
    Estimate,
    contrast_of_batches,
    contrast_of_numbers,
    correlation,
    judge,
)
from vitascope.stats.differences import Images, Runs, combined, estimate

PERCENT = 100.0  # `stats` tells accuracies in points


@dataclass(frozen=True)
class WeightedCell:
    """A cell of a claim: its weight, its number for each seed, and the sample behind it."""

    ask: Ask
    weight: float
    numbers: Sequence[float | None]
    sample: np.ndarray | None  # (seeds, ...)

    @property
    def kind(self) -> str:
        """What the sample consists of; nothing where there is none."""
        return "" if self.sample is None else (self.ask.sample or HITS).kind


def judged(claim: Claim, table: Sheet, findings: Findings, num_test: int | None) -> dict[str, Any]:
    """A claim with its verdict and the numbers in a sentence, as the record holds it.

    Args:
        claim: Of this table.
        table: Whose cells it compares.
        findings: What the runs gave.
        num_test: Test images of a run, for accuracies whose table does not say.
    """
    asks = {
        (row.label, column): ask
        for row in table.rows
        for column, ask in zip(table.columns, row.cells, strict=True)
        if ask is not None
    }
    unknown = [key for key in claim.cells if key not in asks]
    if unknown:
        raise ValueError(f"{claim.text!r} names {unknown}, which {table.name} does not have")
    cells = {
        key: WeightedCell(
            asks[key],
            weight,
            [_scaled(value, table) for value in findings.per_seed(asks[key])],
            findings.sample(asks[key]),
        )
        for key, weight in claim.cells.items()
    }
    missing = [
        " at ".join(key) for key, cell in cells.items() if all(n is None for n in cell.numbers)
    ]
    images = (table.num_test or num_test) if table.accuracy else None
    measured = None if missing else _measured(list(cells.values()), table, images)
    effect = _papers(claim, asks, table)
    found = judge(measured, margin=claim.margin, paper=effect)
    if missing:
        contrast, why = None, f"no number for {', '.join(missing)}"
    else:
        contrast = measured.value if measured else _mean_contrast(cells.values())
        why = found.why
    told: dict[str, Any] = {
        "source": claim.source,
        "text": claim.text,
        "table": claim.table,
        "verdict": found.verdict,
        "contrast": contrast,
        "low": measured.low if measured else None,
        "high": measured.high if measured else None,
        "detectable": found.detectable,
        "p_value": found.p_value,
        "paper": effect,
        "margin": claim.margin,
        "one_run": bool(measured and measured.one_run),
        "why": why,
        "unit": _unit(table),
        "digits": max(1, table.digits),
    }
    return {**told, "reading": _sentence(told)}


def _scaled(value: float | None, table: Sheet) -> float | None:
    """A number as it is compared: its logarithm where factors count; None if there is none."""
    if value is None or not isfinite(value) or (table.log and value <= 0):
        return None
    return log(value) if table.log else value


def _papers(claim: Claim, asks: Mapping[tuple[str, str], Ask], table: Sheet) -> float | None:
    """The contrast in the paper's numbers; None where it gives none."""
    if claim.paper is not None:
        return claim.paper
    theirs = [_scaled(asks[key].paper, table) for key in claim.cells]
    known = [value for value in theirs if value is not None]
    if len(known) < len(theirs):
        return None
    return sum(w * value for w, value in zip(claim.cells.values(), known, strict=True))


def _mean_contrast(cells: Any) -> float:
    """Without an interval."""
    means = [np.mean([n for n in cell.numbers if n is not None]) for cell in cells]
    return float(sum(c.weight * mean for c, mean in zip(cells, means, strict=True)))


def _measured(cells: Sequence[WeightedCell], table: Sheet, num_test: int | None) -> Estimate | None:
    """The contrast with its interval; None where nothing shows the noise."""
    kinds = {cell.kind for cell in cells}
    shapes = {cell.sample.shape[1:] for cell in cells if cell.sample is not None}
    if kinds == {"images"} and len(shapes) == 1 and not table.log:
        return _of_images(cells)
    if kinds == {"points"} and len(cells) == 1:
        return _of_points(cells[0])
    if kinds == {"batches"} and {shape[0] for shape in shapes} - {1} and len(shapes) == 1:
        return _of_batches(cells, table)
    return _of_numbers(cells, num_test)


def _trainings(cells: Sequence[WeightedCell]) -> list[list[WeightedCell]]:
    """Cells of the same trainings together."""
    found: dict[tuple[str, ...], list[WeightedCell]] = {}
    for cell in cells:
        found.setdefault(cell.ask.runs, []).append(cell)
    return list(found.values())


def _of_images(cells: Sequence[WeightedCell]) -> Estimate:
    """Means over the same images: accuracies, and what else is measured image by image."""
    runs: list[Runs] = []
    weights: list[float] = []
    for group in _trainings(cells):
        samples: list[Any] = [cell.sample for cell in group]
        each = [cell.weight * cell.ask.factor / PERCENT for cell in group]
        images = runs[0].images if runs else Images(samples[0].shape[1])
        alone = len(group) == 1
        runs.append(Runs(samples[0], images) if alone else combined(samples, each, images))
        weights.append(each[0] if alone else float(np.linalg.norm(each)))
    return estimate(runs, weights)


def _of_points(cell: WeightedCell) -> Estimate | None:
    """A rank correlation; a claim that it is negative turns one side around."""
    assert cell.sample is not None
    first, second = cell.sample[:, 0], cell.weight * cell.sample[:, 1]
    return correlation(first, second, "spearman")


def _of_batches(cells: Sequence[WeightedCell], table: Sheet) -> Estimate | None:
    """Statistics of mini-batches."""
    samples: list[Any] = [cell.sample for cell in cells]
    ask = cells[0].ask
    assert ask.sample is not None
    statistic = ask.sample.statistic

    def of(batches: np.ndarray) -> float:
        value = _scaled(ask.factor * statistic(batches), table)
        return np.nan if value is None else value

    return contrast_of_batches(samples, [cell.weight for cell in cells], of)


def _of_numbers(cells: Sequence[WeightedCell], num_test: int | None) -> Estimate | None:
    """One number per run, and of accuracies the size of the test set."""
    numbers, weights, sampling = [], [], 0.0
    for group in _trainings(cells):
        seeds = [row for row in zip(*(c.numbers for c in group), strict=True) if None not in row]
        if not seeds:
            return None
        each = np.array([cell.weight for cell in group])
        alone = len(group) == 1
        norm = float(each[0]) if alone else float(np.linalg.norm(each))
        numbers.append((np.array(seeds, float) @ (each / norm)).tolist())
        weights.append(norm)
        if num_test is not None:
            shares = np.array(seeds, float).mean(0) / PERCENT
            edge = 1 / (2 * num_test)  # an accuracy of 100 % is not certain
            shares = shares.clip(edge, 1 - edge)
            sampling += float(each**2 @ (PERCENT**2 * shares * (1 - shares) / num_test))
    return contrast_of_numbers(numbers, weights, sampling=sampling)


def _unit(table: Sheet) -> str:
    """Of a contrast."""
    unit = table.unit.rpartition(", ")[2]
    return "in natural logarithms" if table.log else {"%": "points"}.get(unit, unit)


def _sentence(told: Mapping[str, Any]) -> str:
    """What was measured, what could have been, and what the paper has."""
    if told["contrast"] is None:
        return f"Not measured: {told['why']}."
    digits = told["digits"]

    def signed(value: float) -> str:
        return f"{value:+.{digits}f}".replace("-", "−")

    said = f"Measured {signed(told['contrast'])} {told['unit']}"
    if told["low"] is not None:
        said += f", 95 % interval {signed(told['low'])} to {signed(told['high'])}"
    if told["why"]:
        said += f" ({told['why']})"
    if told["margin"] or told["contrast"] <= 0:
        said += f", where the claim wants more than {told['margin']:g}"
    said += "."
    if told["one_run"]:
        said += f" The interval and p = {told['p_value']:.2g} speak of these runs alone."
    if told["detectable"] is not None:
        said += f" Detectable with 80 % power: {told['detectable']:.{digits}f}"
        said += f"; the paper has {signed(told['paper'])}." if told["paper"] is not None else "."
    return said
