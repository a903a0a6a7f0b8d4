"""Figures and table rows of what layers know."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.formatting import joined, number
from vitascope.measure.instrument import ModelRecord, along, layer_names, marks_legend, mean_row
from vitascope.record import Record
from vitascope.table import TableRow


def lens(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy after each unit by the model's own classifier, and by a probe."""
    parts = []
    for model in models:
        values = model.values
        unit = values["known_after"]
        first, last = values["lens"][0], values["lens"][-1]
        text = (
            f"read by its own classifier, {model.label} is right on {number(100 * first, 1)} % "
            f"after its first unit and {number(100 * last, 1)} % after its last"
        )
        parts.append(text if unit is None else f"{text}; most of it is there after {unit}")
    panels = [along(models, "units", "lens", factor=100.0, y_label="top-1, own classifier (%)")]
    probed = [model for model in models if model.values["probe"]]
    if probed:
        panels.append(
            along(probed, "units", "probe", factor=100.0, y_label="top-1, linear probe (%)")
        )
    return Figure(
        name="lens",
        title="What each layer already knows",
        reading=joined(parts),
        how="Left: the network's own answer if all later units were left out. Right: a linear "
        f"classifier on the features after the unit, cross-validated. {marks_legend(models)}",
        panels=tuple(panels),
        definition="Logit lens: the residual stream after a unit, read by the last norm and the "
        "classifier. Probe: logistic regression (Alain & Bengio 2016).",
    )


def lens_rows(record: Record) -> list[TableRow]:
    """Return the accuracies over units."""
    values = record.values
    rows = []
    for key, label in (("lens", "top-1 by own classifier, %"), ("probe", "top-1 by a probe, %")):
        if values[key]:
            numbers = [100 * value for value in values[key]]
            rows.append(mean_row("lens", label, values["units"], numbers))
    return rows


def patching(models: Sequence[ModelRecord]) -> Figure:
    """Draw how far each unit of one image moves the answer to another."""
    parts, names = [], list(models[0].values["units"])
    for model in models:
        moved = model.values["moved"]
        most = int(np.argmax(moved))
        parts.append(
            f"{model.values['units'][most]} of {model.label} moves the answer most, by "
            f"{number(100 * moved[most], 0)} % of the way"
        )
    series = tuple(
        DotSeries(
            label=model.label,
            values=[[100 * value] for value in model.values["moved"]],
            style=model.style,
        )
        for model in models
    )
    panel = Dots(y_label="moved (% of the way)", groups=layer_names(names), series=series)
    return Figure(
        name="patching",
        title="Activation patching between two images",
        reading=joined(parts),
        how="One unit's output for the first image takes the place of that for the second.",
        panels=(panel,),
        definition="moved(u) = (y(x' with u of x) − y(x')) / (y(x) − y(x')), y a difference of two "
        "logits.",
    )


def patching_rows(record: Record) -> list[TableRow]:
    """Return the share moved over units."""
    values = record.values
    numbers = [100 * value for value in values["moved"]]
    return [mean_row("patching", "moved, % of the way", values["units"], numbers)]
