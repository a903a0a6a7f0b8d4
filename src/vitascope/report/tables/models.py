"""Tables about models: sizes, units, speed, accuracy on labelled images, and other tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.reliability import wilson
from vitascope.report.figures.axes import count
from vitascope.report.formatting import interval, number
from vitascope.report.tables.table import Cell, Table, row


def model_sizes_table(sizes: Sequence[Mapping[str, Any]]) -> Table:
    """Parameters and multiply-adds of each model; notes are the paper's where it has the model."""
    rows = []
    for size in sizes:
        paper, flops, top1 = (
            "" if size.get(name) is None else f"{size[name]:g}"
            for name in ("paper_parameters", "paper_flops", "paper_top1")
        )
        cells: list[str | Cell] = [
            Cell(words=f"{size['parameters'] / 1e6:.1f}M", note=f"{paper}M" if paper else ""),
            Cell(words=f"{size['multiply_adds'] / 1e9:.2f}", note=flops),
            top1,
        ]
        rows.append(row(size["name"], cells))
    return Table(
        name="sizes",
        title="Parameters and multiply-adds for one image",
        corner="Model",
        columns=("Parameters", "GFLOPs", "Paper's top-1 (%)"),
        rows=tuple(rows),
    )


def units_table(record: Record) -> Table:
    """The units of one model: what `vitascope inspect --list` prints."""
    rows = []
    for unit in record.values["units"]:
        grid = unit["grid"]
        cells = [
            unit["kind"],
            str(unit["stage"]),
            "x".join(map(str, grid)) if grid else "",
            str(unit["num_prefix_tokens"]) if grid else "",
            " x ".join(map(str, unit["shape"])),
        ]
        rows.append(row(unit["name"], cells))
    return Table(
        name="units",
        title="Units",
        corner="Unit",
        columns=("Kind", "Stage", "Grid", "Prefix", "Shape"),
        rows=tuple(rows),
    )


def throughput_table(record: Record) -> Table:
    """Images a second, next to those of ConViT's Table 1."""
    batch, device = (record.config.get(name) for name in ("batch_size", "device"))
    return Table(
        name="throughput",
        title=f"Images a second, batches of {batch} on {device}",
        corner="Model",
        columns=("Parameters (M)", "Inference", "Training", "The paper's, inference on a GP100"),
        rows=tuple(
            row(
                name,
                [
                    f"{millions:.1f}",
                    f"{inference:,.3g}",
                    f"{training:,.3g}",
                    "" if paper is None else f"{paper:,}",
                ],
            )
            for name, millions, inference, training, paper in record.values["throughput"]
        ),
    )


def right_interval(record: Record) -> tuple[float, float]:
    """Wilson's 95 % interval of top-1 in percent, which is not empty at 0 or 100 %."""
    images = np.array(int(record.values["num_images"]))
    low, high = wilson(images * float(record.values["top1"]), images)
    return 100 * float(low), 100 * float(high)


def share_right(record: Record) -> str:
    """Top-1 in percent with its 95 % interval."""
    return f"{number(100 * record.values['top1'], 1)} {interval(*right_interval(record))}"


def at_chance(record: Record) -> str:
    """Say so where a model is not shown to be better than guessing."""
    classes = len(record.values.get("per_class") or ())
    low, _ = right_interval(record)
    if classes < 2 or low > 100 / classes:
        return ""
    return (
        f"This is no better than guessing one of the {classes} classes, so it says nothing about "
        "the model. Train it longer, or check that the images belong to its classes: `vitascope "
        "data IMAGES`"
    )


def evaluation_headline(records: Sequence[Record], names: Sequence[str]) -> str:
    """Which model is right how often, in a few words."""
    order = sorted(range(len(names)), key=lambda index: -records[index].values["top1"])
    shares = [f"{names[i]}: {number(100 * records[i].values['top1'], 0)} % correct" for i in order]
    return "; ".join([*shares[:3], *([f"{len(order) - 3} more"] if len(order) > 3 else [])])


def evaluation_table(
    records: Sequence[Record], names: Sequence[str], styles: Sequence[Style | None]
) -> Table:
    """One line per model; the highest top-1 of several is bold."""
    best = max(float(record.values["top1"]) for record in records)
    rows = []
    for record, name, style in zip(records, names, styles, strict=True):
        values, config = record.values, record.config
        cells: list[str | Cell] = [
            Cell(words=share_right(record), bold=len(records) > 1 and values["top1"] == best),
            number(100 * values["top5"], 1) if values.get("top5") is not None else "",
            number(values["nll"], 3),
            number(100 * values["ece"], 1),
            f"{count(values['num_images'])} of {config.get('data')}, {config.get('split')}",
        ]
        rows.append(row(name, cells, style=style))
    return Table(
        name="evaluations",
        title="On labelled images",
        corner="Model",
        columns=("Top-1 (%)", "Top-5 (%)", "NLL", "ECE (%)", "Images"),
        rows=tuple(rows),
    )


METRICS = {"miou": "mean IoU", "pixel_accuracy": "pixel accuracy", "vqa_score": "VQA score"}


def task_table(values: Mapping[str, Any], name: str) -> Table:
    """The metrics that there are, in percent."""
    shown = {key: title for key, title in METRICS.items() if values.get(key) is not None}
    return Table(
        name="task",
        title="On the test data",
        corner="Model",
        columns=tuple(f"{title} (%)" for title in shown.values()),
        rows=(row(name, [number(100 * values[key], 2) for key in shown]),),
    )
