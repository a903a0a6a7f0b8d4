"""Figures and table rows of lesions and masking."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.formatting import joined, number, plural
from vitascope.measure.instrument import ModelRecord, along, marks_legend, mean_row, table_row
from vitascope.record import Record
from vitascope.table import TableRow


def lesion(models: Sequence[ModelRecord]) -> Figure:
    """Points of accuracy lost without each unit."""
    models = [model for model in models if model.values["units"]] or list(models)
    parts = []
    for model in models:
        lost = model.values["lost"]
        if lost:
            worst = int(np.argmax(lost))
            parts.append(
                f"{model.label} ({number(100 * model.values['intact'], 1)} % intact) loses most "
                f"without {model.values['units'][worst]}: {number(100 * lost[worst], 1)} points"
            )
    panel = along(
        models,
        "units",
        "lost",
        factor=100.0,
        y_label="accuracy lost (points)",
    )
    return Figure(
        name="lesion",
        title="Lesions: accuracy lost without each unit",
        reading=joined(parts or ["No unit was dropped"]),
        how=f"One unit is dropped at a time, nothing is trained again. {marks_legend(models)}",
        panels=(panel,),
        definition="lost(u) = accuracy of the network − accuracy without unit u (Park & Kim, "
        "Fig. 10b).",
    )


def masking(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy with positions or content masked."""
    groups = {"as it is": ("unmasked", "")}
    for model in models:
        if model.values["no_positions"] is not None:
            groups["no position embeddings"] = ("no_positions", "")
        for part in ("content", "position"):
            for layers in model.values[f"{part}_masked"]:
                where = plural(int(layers), "layer")
                groups[f"no {part} in {where}"] = (f"{part}_masked", layers)
    series, parts = [], []
    for model in models:
        lines = []
        for key, layers in groups.values():
            value = model.values[key].get(layers) if layers else model.values[key]
            lines.append([None if value is None else 100 * value])
        series.append(DotSeries(label=model.label, values=lines, style=model.style))
        measured = [
            (row[0], name) for row, name in zip(lines, groups, strict=True) if row[0] is not None
        ]
        low = min(measured)
        parts.append(
            f"{model.label} falls from {number(measured[0][0], 1)} % to {number(low[0], 1)} % "
            f"with {low[1]}"
        )
    panel = Dots(y_label="top-1 accuracy (%)", groups=tuple(groups), series=tuple(series))
    return Figure(
        name="masking",
        title="Masking: accuracy without positions, and without content",
        reading=joined(parts),
        how="Masked at test time, nothing is trained again.",
        panels=(panel,),
        definition="Position embeddings set to zero; gates of the first k gated layers forced to 1 "
        "(no content) or 0 (no position) (ConViT, Tables 5 and 6).",
    )


def masking_rows(record: Record) -> list[TableRow]:
    """Return the accuracy with each part masked."""
    values = record.values
    whole = {"nothing": values["unmasked"]}
    if values["no_positions"] is not None:
        whole["position embeddings"] = values["no_positions"]
    for part in ("content", "position"):
        for k, accuracy in values[f"{part}_masked"].items():
            whole[f"{part} of {plural(int(k), 'layer')}"] = accuracy
    return [
        table_row("masking", f"top-1 without {mask}", f"{100 * accuracy:.1f} %")
        for mask, accuracy in whole.items()
    ]


def lesion_rows(record: Record) -> list[TableRow]:
    """Return the accuracy of the whole network, and what is lost without single units."""
    values = record.values
    rows = [table_row("lesion", "top-1, intact", f"{100 * values['intact']:.1f} %")]
    if values["units"]:
        points = [100 * lost for lost in values["lost"]]
        rows.append(mean_row("lesion", "points lost, mean over units", values["units"], points))
    return rows
