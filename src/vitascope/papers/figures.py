"""Figures that several studies have: learning curves, heads over training, maps, tables as dots."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure, Lines, Maps, Series, Surface, head_panels
from vitascope.papers.plan import Ask, Findings, Reading, Row, Sheet, Training
from vitascope.papers.scale import Scale
from vitascope.record import Record

CURVES = Reading(name="curves")


def looks(scale: Scale) -> Reading:
    """Gates and nonlocality over training: in the paper of 1,024 images, drawn with the seed."""
    return Reading(name="looks", options={"num_images": 1024} if scale.is_paper else {})


def over(
    x: Sequence[float], groups: Sequence[Sequence[float]], label: str, *, model: bool = True
) -> Series:
    """A line through the means of groups of seeds, with their range; named after a model or not.

    >>> over([1, 2], [[1.0, 3.0], []], "a").y
    [2.0, None]
    """
    return Series(
        label=label,
        model=label if model else None,
        x=list(x),
        y=[fmean(group) if group else None for group in groups],
        low=[min(group) if group else None for group in groups],
        high=[max(group) if group else None for group in groups],
    )


def lines(title: str, series: Sequence[Series], *, x: str, y: str, **how: Any) -> Lines:
    """A panel of lines; ``x`` and ``y`` name the axes, ``how`` is ``x_log`` and ``joined``."""
    return Lines(title=title, x_label=x, y_label=y, series=tuple(series), **how)


def shares_panel(
    findings: Findings,
    title: str,
    rows: Sequence[Row],
    fractions: Sequence[float],
    *,
    model: bool = True,
) -> Lines:
    """Top-1 against the share of the images, a line per row of a table."""
    series = [
        over(
            [100 * fraction for fraction in fractions],
            [findings.values(ask) for ask in row.cells if ask is not None],
            row.label,
            model=model,
        )
        for row in rows
    ]
    return lines(title, series, x="images of each class, %", y="top-1, %", x_log=True)


def curves_figure(findings: Findings, runs: Mapping[str, Training], title: str) -> Figure:
    """Top-1 and training loss over epochs, means over seeds; one line per run."""
    panels = []
    for key, factor, label in (("top1", 100.0, "top-1, %"), ("train_nll", 1.0, "training loss")):
        series = []
        for run, training in runs.items():
            records = findings.of(training, CURVES)
            shortest = min(len(r.values["epoch"]) for r in records)
            epochs = records[0].values["epoch"][:shortest]
            columns = [
                [factor * r.values[key][i] for r in records if r.values[key][i] is not None]
                for i in range(shortest)
            ]
            last = max(epochs)
            series.append(over([100 * e / last for e in epochs], columns, run))
        panels.append(lines(label, series, x="training, % of its epochs", y=label))
    best = max(panels[0].series, key=lambda line: line.y[-1] or 0.0)
    reading = f"{best.label} ends highest, at {best.y[-1]:.1f} %."
    return Figure(name="curves", title=title, reading=reading, panels=tuple(panels))


def heads_figure(
    findings: Findings, runs: Mapping[str, Training], reading: Reading, what: str, title: str
) -> Figure:
    """Gates or nonlocality over training, one panel per run, one line per layer (mean of heads)."""
    panels, moves = [], []
    for run, training in runs.items():
        records = findings.of(training, reading)
        if any(what not in record.arrays for record in records):
            continue
        mean = np.mean([np.nanmean(r.arrays[what], axis=-1) for r in records], axis=0)  # (E, L)
        epochs, names = records[0].values["epochs"], records[0].values[what]["layers"]
        series = [
            Series(label=name, x=[max(e, 0.5) for e in epochs], y=mean[:, i].tolist())
            for i, name in enumerate(names)
        ]
        label = "gate" if what == "gates" else "nonlocality, patches"
        panels.append(lines(run, series, x="epoch (0 stands at 0.5)", y=label, x_log=True))
        moves.append(f"{run} from {mean[0].mean():.2f} to {mean[-1].mean():.2f}")
    said = f"Means over layers: {'; '.join(moves)}." if moves else "No run has them."
    return Figure(name=what, title=title, reading=said, panels=tuple(panels))


def each_head_figure(
    findings: Findings, runs: Mapping[str, Training], reading: Reading, what: str, title: str
) -> Figure:
    """Gates or nonlocality of every head over training, a panel per run and layer; first seed."""
    label = "gate" if what == "gates" else "nonlocality, patches"
    panels: list[Lines] = []
    for run, training in runs.items():
        record = findings.of(training, reading)[0]
        if what in record.arrays:
            layers = [f"layer {i + 1}, {run}" for i in range(record.arrays[what].shape[1])]
            epochs = [max(epoch, 0.5) for epoch in record.values["epochs"]]
            panels += head_panels(
                epochs,
                record.arrays[what],
                layers,
                y_label=label,
                x_label="epoch (0 stands at 0.5)",
                x_log=True,
            )
    low, high = _spread_at_end(panels)
    said = f"Heads of one layer lie up to {high:.2f} apart at the end, at least {low:.2f}."
    return Figure(
        name=f"each-head-{what}",
        title=title,
        panels=tuple(panels),
        reading=said,
        how="Thin: one head; thick: the mean of a layer. First seed.",
    )


def _spread_at_end(panels: Sequence[Lines]) -> tuple[float, float]:
    """The least and the largest distance between two heads of a layer at the last epoch."""
    ends = [[strand[-1] or 0.0 for strand in p.series[0].strands or ()] for p in panels]
    apart = [max(values) - min(values) for values in ends if values]
    return min(apart, default=0.0), max(apart, default=0.0)


def maps_panel(record: Record, title: str) -> Maps:
    """Attention maps, one row per layer and one column per head."""
    layers = [name for name in record.values["layers"] if f"mixed/{name}" in record.arrays]
    found = [record.arrays[f"mixed/{name}"] for name in layers]  # (H, h, w) each
    heads = max(len(maps) for maps in found)
    grid = np.full((len(found), heads, *found[0].shape[1:]), np.nan, dtype=np.float32)
    for row, maps in zip(grid, found, strict=True):
        row[: len(maps)] = maps
    columns = tuple(f"head {i + 1}" for i in range(heads))
    return Maps(title=title, rows=tuple(layers), columns=columns, values=grid)


def surfaces(
    findings: Findings, runs: Mapping[str, Training], reading: Reading, title: str
) -> Figure:
    """NLL + l2 around the weights of the first seed, above the lowest point, one panel per run."""
    panels = []
    for label, training in runs.items():
        record = findings.of(training, reading)[0]
        loss = record.arrays["nll"] + record.arrays["l2"]
        loss = np.where(np.isfinite(loss), loss, np.nan)
        above = (loss - np.nanmin(loss) + 1e-3).astype(np.float32)  # above 0, for logarithms
        x, y = (record.arrays[f"axis_{i}"].tolist() for i in (0, 1))
        panels.append(
            Surface(title=label, x=x, y=y, values=above, label="NLL + l2 above its least", log=True)
        )
    said = "The loss around the weights of each run; a slower rise is a flatter loss."
    return Figure(name="surfaces", title=title, reading=said, panels=tuple(panels))


def dots_figure(
    findings: Findings, table: Sheet, columns: Sequence[str], title: str, reading: str
) -> Figure:
    """Columns of a table as dots, one per seed, the rows as groups."""
    series = []
    for column in columns:
        at = list(table.columns).index(column)
        asks = [row.cells[at] for row in table.rows]
        values = [[] if ask is None else findings.values(ask) for ask in asks]
        series.append(DotSeries(label=column, values=values))
    panel = Dots(
        title=table.title,
        y_label=table.unit,
        series=tuple(series),
        groups=tuple(row.label for row in table.rows),
    )
    return Figure(name=f"{table.name}-dots", title=title, reading=reading, panels=(panel,))


def against_figure(
    findings: Findings,
    pairs: Mapping[str, Sequence[tuple[float, Ask, Ask]]],
    *,
    x: str,
    labels: tuple[str, str],
    title: str,
    name: str,
    reading: str,
) -> Figure:
    """Two numbers against what was varied, a panel each and a line per network."""
    panels = []
    for which, label in enumerate(labels):
        series = [
            over(
                [step for step, *_ in points],
                [findings.values((first, second)[which]) for _, first, second in points],
                network,
            )
            for network, points in pairs.items()
        ]
        panels.append(lines(label, series, x=x, y=label, x_log=True))
    return Figure(name=name, title=title, reading=reading, panels=tuple(panels))
