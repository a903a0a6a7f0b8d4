"""A comparison's record as typed parts: what every table, figure and sentence is made from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vitascope.errors import UserError
from vitascope.figure import Style
from vitascope.formatting import finite
from vitascope.record import Record
from vitascope.report.figures.style import Styles


@dataclass(frozen=True)
class Model:
    """One of the models compared, with its style."""

    name: str
    label: str
    locality: str
    parameters: float | None
    multiply_adds: float | None
    images_per_second: float | None  # in training
    style: Style


@dataclass(frozen=True)
class Entry:
    """A model's accuracy at one fraction: mean and spread over seeds, and against the reference."""

    model: Model
    mean: float
    std: float | None
    low: float | None  # of the mean's 95 % interval
    high: float | None
    num_seeds: int
    points: float | None  # ahead of the reference, with its 95 % interval
    points_low: float | None
    points_high: float | None
    verdict: str
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class FractionRow:
    """All models at one fraction of the training images."""

    fraction: float
    num_images: int
    entries: Mapping[str, Entry]

    @property
    def share(self) -> str:
        """The fraction in words: ``10 %`` or ``all``."""
        return "all" if self.fraction >= 1 else f"{100 * self.fraction:.3g} %"


@dataclass(frozen=True)
class Curve:
    """A quantity over the epochs of a training, averaged over seeds."""

    model: Model
    epochs: Sequence[float]
    mean: Sequence[float]
    seeds: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Trace:
    """Something inside a model over its training: ``values`` is (epochs, layers, heads)."""

    model: Model
    fraction: float
    epochs: Sequence[float]
    layers: Sequence[str]
    values: np.ndarray
    uniform: float | None = None  # the nonlocality of a uniform head

    @property
    def layer_means(self) -> list[list[float]]:
        """The mean over heads in each layer at each epoch; heads that a layer lacks are NaN."""
        return [
            [
                float(heads[np.isfinite(heads)].mean()) if np.isfinite(heads).any() else 0.0
                for heads in layer
            ]
            for layer in self.values.transpose(1, 0, 2)
        ]


@dataclass(frozen=True)
class ComparisonRecord:
    """A record of kind ``compare``, read; ``styles`` are those of a page."""

    record: Record
    styles: Styles | None = None

    def __post_init__(self) -> None:
        if self.record.kind != "compare":
            raise UserError(f"a page is made from a record of 'compare', not {self.record.kind!r}")
        missing = {"data", "models", "table", "recommendation"} - set(self.values)
        if missing:
            raise UserError(f"the comparison's record lacks {', '.join(sorted(missing))}")

    @property
    def values(self) -> Mapping[str, Any]:
        """The record's values as they are."""
        return self.record.values

    @cached_property
    def models(self) -> dict[str, Model]:
        """By name, in the record's order."""
        given = self.values["models"]
        kinds = [(model["name"], model.get("kind", "other")) for model in given]
        styles = self.styles or Styles(kinds)
        labels = [model.get("label") or model["name"] for model in given]
        models = {}
        for model, label in zip(given, labels, strict=True):
            unique = label if labels.count(label) == 1 else f"{label} ({model['name']})"
            models[model["name"]] = Model(
                name=model["name"],
                label=unique,
                locality=str(model.get("locality") or ""),
                parameters=_positive(model.get("parameters")),
                multiply_adds=_positive(model.get("multiply_adds")),
                images_per_second=_positive(model.get("images_per_second")),
                style=styles.of(model["name"]),
            )
        return models

    @cached_property
    def rows(self) -> list[FractionRow]:
        """From the fewest images to the most; an accuracy that is not a number is left out."""
        rows = []
        for row in self.values["table"]:
            entries = {
                entry["model"]: self._entry(entry, row["fraction"])
                for entry in row["entries"]
                if finite(entry["mean"])
            }
            rows.append(FractionRow(row["fraction"], row["num_images"], entries))
        return sorted(rows, key=lambda row: row.num_images)

    def _entry(self, entry: Mapping[str, Any], fraction: float) -> Entry:
        cells = self.values.get("cells", [])
        return Entry(
            model=self.models[entry["model"]],
            mean=entry["mean"],
            std=entry.get("std"),
            low=entry.get("low"),
            high=entry.get("high"),
            num_seeds=entry.get("num_seeds", 1),
            points=entry.get("points"),
            points_low=entry.get("points_low"),
            points_high=entry.get("points_high"),
            verdict=entry.get("verdict") or "",
            seeds=tuple(
                cell["top1"]
                for cell in cells
                if (cell["model"], cell["fraction"]) == (entry["model"], fraction)
                and finite(cell["top1"])
            ),
        )

    @property
    def metric(self) -> str:
        """``top1`` or ``balanced``."""
        return str(self.values.get("metric") or "top1")

    @property
    def measured(self) -> str:
        """Name of the metric, in words."""
        return {"balanced": "Balanced accuracy"}.get(self.metric, "Top-1 accuracy")

    @property
    def images(self) -> str:
        """The images it is measured on: ``359 test images``."""
        reported = self.values.get("reported_on") or {}
        amount = reported.get("count") or self.values["data"]["num_test"]
        return f"{amount:,} {reported.get('images') or 'test'} images"

    @property
    def crossings(self) -> Sequence[Mapping[str, Any]]:
        """Fractions at which one model overtakes another, each with a sentence."""
        return self.values.get("crossings") or ()

    @property
    def known_rows(self) -> list[FractionRow]:
        """Rows in which at least one model has an accuracy."""
        return [row for row in self.rows if row.entries]

    @property
    def num_seeds(self) -> int:
        """The most seeds that a model was given."""
        counts = [entry.num_seeds for row in self.rows for entry in row.entries.values()]
        return max(counts, default=0)

    @property
    def reference(self) -> Model | None:
        """The model gains are relative to."""
        return self.models.get(self.values.get("reference", ""))

    def row(self, fraction: float) -> FractionRow | None:
        """The table's row of a fraction."""
        return next((row for row in self.rows if math.isclose(row.fraction, fraction)), None)

    def curves(self, fraction: float, quantity: str) -> list[Curve]:
        """``top1`` or ``train_nll`` over epochs for each model: the mean, and every seed."""
        if (fraction, quantity) not in self._curves:
            self._curves[fraction, quantity] = self._average(fraction, quantity)
        return self._curves[fraction, quantity]

    @cached_property
    def _curves(self) -> dict[tuple[float, str], list[Curve]]:
        return {}  # averaged once: every plot asks for those of all fractions, for its scale

    def _average(self, fraction: float, quantity: str) -> list[Curve]:
        curves = []
        for model in self.models.values():
            seeds = [
                {
                    epoch: value
                    for epoch, value in zip(
                        curve["epochs"], curve.get(quantity) or [], strict=False
                    )
                    if finite(value)
                }
                for curve in self.values.get("curves") or []
                if curve["model"] == model.name and math.isclose(curve["fraction"], fraction)
            ]
            epochs = sorted(set.intersection(*map(set, seeds))) if seeds else []
            if epochs:
                table = np.array([[seed[epoch] for epoch in epochs] for seed in seeds], float)
                curves.append(Curve(model, epochs, table.mean(0).tolist(), table.tolist()))
        return curves

    def traces(self, quantity: str) -> list[Trace]:
        """``gates`` or ``nonlocality``: one per model and fraction, fewest images first."""
        traces = []
        for item in self.values.get(quantity) or []:
            values = self.record.arrays.get(item["array"])
            expected = (len(item["epochs"]), len(item["layers"]))
            if values is None or values.ndim != 3 or values.shape[:2] != expected:
                raise UserError(
                    f"{quantity}: the record has no array {item['array']!r} of {expected[0]} "
                    f"epochs, {expected[1]} layers and some heads"
                )
            model, fraction = self.models[item["model"]], item["fraction"]
            uniform = item.get("uniform")
            traces.append(Trace(model, fraction, item["epochs"], item["layers"], values, uniform))
        return sorted((trace for trace in traces if len(trace.epochs)), key=lambda t: t.fraction)


def _positive(value: Any) -> float | None:
    return value if finite(value) and value > 0 else None
