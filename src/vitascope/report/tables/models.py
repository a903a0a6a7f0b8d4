"""Tables about models: their sizes beside the paper's, and the units of one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.record import Record
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
