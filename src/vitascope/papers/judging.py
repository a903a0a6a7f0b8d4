"""Does what was measured agree with what the paper claims?

A claim is a contrast of cells, ``sum_k w_k m_k``, that the paper predicts to lie above a margin.
How far it can be trusted depends on what its cells are (`vitascope.stats`):

    means over test images      paired over images, crossed with seeds
    spectra of mini-batches     batches resampled, crossed with seeds
    a rank correlation          Fisher's z over its points, and the spread of z over seeds
    other numbers               the variance of each cell over seeds, Satterthwaite's t

Cells that are read off the same trainings (masked and whole, before and after) are combined seed by
seed first. An accuracy whose images were not kept (early in training) has the variance
p (1 - p) / N of its test images next to the seeds', as if no two runs had the same ones.

The paper's own effect is the contrast of its numbers for the same cells, where there are any.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from vitascope.papers.plan import CORRECT, CellSpec, Claim, Contrast, Measurement, Results
from vitascope.stats import Estimate, contrast_of_batches, contrast_of_numbers, correlation, judge
from vitascope.stats.differences import Images, Runs, combined, estimate

PERCENT = 100.0  # `stats` gives accuracies in percentage points


@dataclass(frozen=True)
class WeightedCell:
    """A cell of a claim: its weight, its number for each seed, and the sample behind it."""

    cell: CellSpec
    weight: float
    numbers: Sequence[float | None]
    sample: np.ndarray | None  # (seeds, ...)

    @property
    def kind(self) -> str:
        """The kind of sample behind the numbers; empty where there is none."""
        return "" if self.sample is None else (self.cell.measurement.sample or CORRECT).kind


def judged(
    claim: Claim, contrast: Contrast, results: Results, num_test: int | None
) -> dict[str, Any]:
    """A claim with its verdict and the numbers in a sentence, as the record holds it.

    Args:
        claim: The claim.
        contrast: The cells that it compares.
        results: What the runs gave.
        num_test: Test images of a run, for accuracies whose table does not give it.
    """
    table, measurement = contrast.table, contrast.table.measurement
    cells = {
        position: WeightedCell(
            table.filled[position],
            weight,
            [_scaled(v, measurement) for v in results.per_seed(table.filled[position])],
            results.sample(table.filled[position]),
        )
        for position, weight in contrast.cells.items()
    }
    missing = [
        " at ".join(key) for key, cell in cells.items() if all(n is None for n in cell.numbers)
    ]
    images = (table.num_test or num_test) if measurement.is_accuracy else None
    measured = None if missing else _measured(list(cells.values()), measurement, images)
    effect = _in_the_paper(claim, cells.values(), measurement)
    judgement = judge(measured, margin=contrast.margin, paper=effect)
    if missing:
        value, why = None, f"no number for {', '.join(missing)}"
    else:
        value = measured.value if measured else _mean_contrast(cells.values())
        why = judgement.why
    values: dict[str, Any] = {
        "source": claim.source,
        "text": claim.text,
        "table": table.name,
        "verdict": judgement.verdict,
        "contrast": value,
        "low": measured.low if measured else None,
        "high": measured.high if measured else None,
        "detectable": judgement.detectable,
        "p_value": judgement.p_value,
        "paper": effect,
        "margin": contrast.margin,
        "one_run": bool(measured and measured.one_run),
        "why": why,
        "unit": _unit(measurement),
        "digits": max(1, measurement.digits),
    }
    return {**values, "reading": _sentence(values)}


def _scaled(value: float | None, measurement: Measurement) -> float | None:
    """A number as it is compared: its logarithm where factors count; None if there is none."""
    if value is None or not isfinite(value) or (measurement.log and value <= 0):
        return None
    return log(value) if measurement.log else value


def _in_the_paper(
    claim: Claim, cells: Collection[WeightedCell], measurement: Measurement
) -> float | None:
    """The contrast in the paper's numbers; None where it gives none."""
    if claim.paper is not None:
        return claim.paper
    published = [_scaled(each.cell.paper, measurement) for each in cells]
    if None in published:
        return None
    return sum(each.weight * v for each, v in zip(cells, published, strict=True) if v is not None)


def _mean_contrast(cells: Collection[WeightedCell]) -> float:
    """Return the mean contrast when its noise is unknown."""
    means = [np.mean([n for n in cell.numbers if n is not None]) for cell in cells]
    return float(sum(c.weight * mean for c, mean in zip(cells, means, strict=True)))


def _measured(
    cells: Sequence[WeightedCell], measurement: Measurement, num_test: int | None
) -> Estimate | None:
    """The contrast with its interval; None where nothing shows the noise."""
    kinds = {cell.kind for cell in cells}
    shapes = {cell.sample.shape[1:] for cell in cells if cell.sample is not None}
    if kinds == {"images"} and len(shapes) == 1 and not measurement.log:
        return _of_images(cells)
    if kinds == {"points"} and len(cells) == 1:
        return _of_points(cells[0])
    if kinds == {"batches"} and {shape[0] for shape in shapes} - {1} and len(shapes) == 1:
        return _of_batches(cells, measurement)
    return _of_numbers(cells, num_test)


def _trainings(cells: Sequence[WeightedCell]) -> list[list[WeightedCell]]:
    """Cells of the same trainings together."""
    groups: dict[tuple[str, ...], list[WeightedCell]] = {}
    for each in cells:
        groups.setdefault(each.cell.runs, []).append(each)
    return list(groups.values())


def _of_images(cells: Sequence[WeightedCell]) -> Estimate:
    """Means over the same images: accuracies, and what else is measured image by image."""
    runs: list[Runs] = []
    weights: list[float] = []
    for group in _trainings(cells):
        samples: list[Any] = [each.sample for each in group]
        shares = [each.weight * each.cell.measurement.factor / PERCENT for each in group]
        images = runs[0].images if runs else Images(samples[0].shape[1])
        alone = len(group) == 1
        runs.append(Runs(samples[0], images) if alone else combined(samples, shares, images))
        weights.append(shares[0] if alone else float(np.linalg.norm(shares)))
    return estimate(runs, weights)


def _of_points(cell: WeightedCell) -> Estimate | None:
    """A rank correlation; a claim that it is negative turns one side around."""
    assert cell.sample is not None
    first, second = cell.sample[:, 0], cell.weight * cell.sample[:, 1]
    return correlation(first, second, "spearman")


def _of_batches(cells: Sequence[WeightedCell], measurement: Measurement) -> Estimate | None:
    """Judge a claim about statistics of mini-batches."""
    samples: list[Any] = [cell.sample for cell in cells]
    sample = cells[0].cell.measurement.sample
    assert sample is not None

    def of(batches: np.ndarray) -> float:
        value = _scaled(measurement.factor * sample.statistic(batches), measurement)
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


def _unit(measurement: Measurement) -> str:
    """Return the unit of the contrast."""
    unit = measurement.unit.rpartition(", ")[2]
    return "in natural logarithms" if measurement.log else {"%": "points"}.get(unit, unit)


def _sentence(values: Mapping[str, Any]) -> str:
    """Say what was measured, what was detectable, and what the paper reports."""
    if values["contrast"] is None:
        return f"Not measured: {values['why']}."
    digits = values["digits"]

    def signed(value: float) -> str:
        return f"{value:+.{digits}f}".replace("-", "−")

    sentence = f"Measured {signed(values['contrast'])} {values['unit']}"
    if values["low"] is not None:
        sentence += f", 95 % interval {signed(values['low'])} to {signed(values['high'])}"
    if values["why"]:
        sentence += f" ({values['why']})"
    if values["margin"] or values["contrast"] <= 0:
        sentence += f", where the claim wants more than {values['margin']:g}"
    sentence += "."
    if values["one_run"]:
        sentence += f" The interval and p = {values['p_value']:.2g} speak of these runs alone."
    if values["detectable"] is not None:
        sentence += f" Detectable with 80 % power: {values['detectable']:.{digits}f}"
        sentence += (
            f"; the paper has {signed(values['paper'])}." if values["paper"] is not None else "."
        )
    return sentence
