"""Sizes of models, and images a second of models that took turns, next to the papers' numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.formatting import listed, number
from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.table import Cell, Table, row

HOW = "Noise images, medians over turns in one process; rates hold for this machine alone."


def section(source: Source, styles: Styles) -> Section:
    """Return one section per record."""
    record = source.record
    rates = {name: float(rate) for name, _, rate, *_ in record.values["throughput"]}
    answer = f"Images a second: {listed([f'{n} {number(rate)}' for n, rate in rates.items()])}."
    series = DotSeries(
        label="inference",
        values=[[rate] for rate in rates.values()],
        style=styles.of("throughput"),
    )
    figure = Figure(
        name="speed throughput",
        title="Speed of the models",
        reading=answer,
        how=HOW,
        panels=(Dots(y_label="images a second", groups=tuple(rates), series=(series,)),),
    )
    command = f"vitascope models --speed {' '.join(rates)}"
    return Section(
        kind="throughput",
        label="Speed",
        title="Speed of the models",
        question="How many images a second?",
        answer=answer,
        leads=(HOW,),
        figures=(figure,),
        tables=(throughput_table(record),),
        source=source.path.name,
        agains=(
            again(
                record,
                made_by(record, "models") or command,
                notes=(f"Settings: {listed(record.config)}.",),
            ),
        ),
    )


def model_sizes_table(sizes: Sequence[Mapping[str, Any]]) -> Table:
    """Parameters and multiply-adds of each model; notes are the paper's where it has the model."""
    rows = []
    for size in sizes:
        paper, flops, top1 = (
            "" if size.get(name) is None else f"{size[name]:g}"
            for name in ("paper_parameters", "paper_flops", "paper_top1")
        )
        cells: list[str | Cell] = [
            Cell(text=f"{size['parameters'] / 1e6:.1f}M", note=f"{paper}M" if paper else ""),
            Cell(text=f"{size['multiply_adds'] / 1e9:.2f}", note=flops),
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
