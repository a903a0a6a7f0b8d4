"""Figures that several studies have: learning curves, heads over training, tables as dots.

Each is a function of the results; a plan gives the rest of its arguments by
:func:`vitascope.papers.plan.drawing`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure, Lines, Series, head_panels
from vitascope.papers.plan import CellSpec, Reading, Results, TableSpec, Training
from vitascope.papers.scale import Scale

CURVES = Reading(name="curves")


def attention_trace(scale: Scale) -> Reading:
    """Gates and nonlocality over training: in the paper of 1,024 images, drawn with the seed."""
    return Reading(name="looks", options={"num_images": 1024} if scale.is_paper else {})


def over(
    x: Sequence[float], groups: Sequence[Sequence[float]], label: str, *, model: bool = True
) -> Series:
    """A line through the means of groups of seeds, with a band of one standard deviation.

    >>> over([1, 2], [[1.0, 3.0], []], "a").y
    [2.0, None]
    """
    return Series(
        label=label,
        model=label if model else None,
        x=list(x),
        y=[fmean(group) if group else None for group in groups],
        low=[fmean(group) - _spread(group) if group else None for group in groups],
        high=[fmean(group) + _spread(group) if group else None for group in groups],
    )


def _spread(group: Sequence[float]) -> float:
    return stdev(group) if len(group) > 1 else 0.0


def lines(title: str, series: Sequence[Series], *, x: str, y: str, **axes: Any) -> Lines:
    """A panel of lines; ``x`` and ``y`` name the axes, ``axes`` are ``x_log`` and ``joined``."""
    return Lines(title=title, x_label=x, y_label=y, series=tuple(series), **axes)


def shares_panel(
    results: Results,
    title: str,
    rows: Mapping[str, Sequence[CellSpec | None]],
    fractions: Sequence[float],
    *,
    model: bool = True,
    y: str = "top-1, %",
) -> Lines:
    """Top-1 against the share of the images, a line per row of a table."""
    series = [
        over(
            [100 * fraction for fraction in fractions],
            [results.values(cell) for cell in cells],
            label,
            model=model,
        )
        for label, cells in rows.items()
    ]
    return lines(title, series, x="images of each class, %", y=y, x_log=True)


def gains_panel(results: Results, title: str, gains: Mapping[str, Mapping[str, CellSpec]]) -> Dots:
    """Relative gains as dots, a series per key and a group per name below it."""
    groups = tuple(dict.fromkeys(group for cells in gains.values() for group in cells))
    series = tuple(
        DotSeries(
            label=label,
            values=[results.values(cells.get(group)) for group in groups],
            paper=[cells[group].paper if group in cells else None for group in groups],
        )
        for label, cells in gains.items()
    )
    return Dots(title=title, y_label="relative gain, %", groups=groups, series=series)


_CURVES = {  # of a run: factor, and what the axis says
    "top1": (100.0, "top-1, %"),
    "top5": (100.0, "top-5, %"),
    "train_nll": (1.0, "training loss"),
    "test_nll": (1.0, "test loss"),
}


def curves_figure(
    results: Results,
    runs: Mapping[str, Training],
    title: str,
    *,
    quantities: Sequence[str] = ("top1", "train_nll"),
    gains: Mapping[str, CellSpec] | None = None,
) -> Figure:
    """Top-1 and training loss over epochs, means over seeds; one line per run.

    ``gains`` are relative gains to draw next to them. What an earlier reading lacks is left out.
    """
    panels: list[Lines | Dots] = []
    for key in quantities:
        factor, label = _CURVES[key]
        series = []
        for run, training in runs.items():
            records = [r for r in results.of(training, CURVES) if key in r.values]
            if not records:
                continue
            shortest = min(len(r.values["epoch"]) for r in records)
            epochs = records[0].values["epoch"][:shortest]
            columns = [
                [factor * r.values[key][i] for r in records if r.values[key][i] is not None]
                for i in range(shortest)
            ]
            last = max(epochs)
            series.append(over([100 * e / last for e in epochs], columns, run))
        if series:
            panels.append(lines(label, series, x="training, % of its epochs", y=label))
        if key == "top1":
            best = max(series, key=lambda line: line.y[-1] or 0.0)
    if gains:
        panels.append(gains_panel(results, "relative improvement", {"ConViT over ViT": gains}))
    reading = f"{best.label} ends highest, at {best.y[-1]:.1f} %."
    return Figure(name="curves", title=title, reading=reading, panels=tuple(panels))


def heads_figure(
    results: Results, runs: Mapping[str, Training], reading: Reading, quantity: str, title: str
) -> Figure:
    """Gates or nonlocality over training, one panel per run, one line per layer (mean of heads)."""
    panels, moves = [], []
    for run, training in runs.items():
        records = results.of(training, reading)
        if any(quantity not in record.arrays for record in records):
            continue
        mean = np.mean([np.nanmean(r.arrays[quantity], axis=-1) for r in records], axis=0)  # (E, L)
        epochs, names = records[0].values["epochs"], records[0].values[quantity]["layers"]
        series = [
            Series(label=name, x=[max(e, 0.5) for e in epochs], y=mean[:, i].tolist())
            for i, name in enumerate(names)
        ]
        label = "gate" if quantity == "gates" else "nonlocality, patches"
        panels.append(lines(run, series, x="epoch (0 stands at 0.5)", y=label, x_log=True))
        moves.append(f"{run} from {mean[0].mean():.2f} to {mean[-1].mean():.2f}")
    means = f"Means over layers: {'; '.join(moves)}." if moves else "No run has them."
    return Figure(name=quantity, title=title, reading=means, panels=tuple(panels))


def each_head_figure(
    results: Results, runs: Mapping[str, Training], reading: Reading, quantity: str, title: str
) -> Figure:
    """Gates or nonlocality of every head over training, a panel per run and layer; first seed."""
    label = "gate" if quantity == "gates" else "nonlocality, patches"
    panels: list[Lines] = []
    for run, training in runs.items():
        record = results.of(training, reading)[0]
        if quantity in record.arrays:
            layers = [f"layer {i + 1}, {run}" for i in range(record.arrays[quantity].shape[1])]
            epochs = [max(epoch, 0.5) for epoch in record.values["epochs"]]
            panels += head_panels(
                epochs,
                record.arrays[quantity],
                layers,
                y_label=label,
                x_label="epoch (0 stands at 0.5)",
                x_log=True,
            )
    low, high = _spread_at_end(panels)
    spread = f"Heads of one layer lie up to {high:.2f} apart at the end, at least {low:.2f}."
    return Figure(
        name=f"each-head-{quantity}",
        title=title,
        panels=tuple(panels),
        reading=spread,
        how="Thin: one head; thick: the mean of a layer. First seed.",
    )


def windows_figure(
    results: Results, runs: Mapping[str, Training], reading: Reading, title: str
) -> Figure:
    """Centre and width of every positional head over training, by run and layer; first seed.

    Earlier readings have none; the figure then has no panel.
    """
    panels: list[Lines] = []
    moves: list[float] = []
    for run, training in runs.items():
        record = results.of(training, reading)[0]
        layers = [name for name in record.arrays if name.startswith("windows/")]
        x = [max(epoch, 0.5) for epoch in record.values["epochs"]]
        for index, layer in enumerate(layers, start=1):
            windows = record.arrays[layer]  # (E, H, 3)
            drift = np.linalg.norm(windows[..., :-1] - windows[:1, :, :-1], axis=-1)
            measured = {"drift of the centre, patches": drift, "width, patches": windows[..., -1]}
            for label, values in measured.items():
                panels += head_panels(
                    x,
                    values[:, None],
                    [f"layer {index}, {run}"],
                    y_label=label,
                    x_label="epoch (0 stands at 0.5)",
                    x_log=True,
                )
            moves.append(float(np.nanmean(drift[-1])) if np.isfinite(drift[-1]).any() else 0.0)
    most = (
        f"The centres of a layer moved by up to {max(moves, default=0.0):.2f} patches on average."
    )
    return Figure(
        name="windows",
        title=title,
        panels=tuple(panels),
        reading=most if moves else "These runs were measured before windows were.",
        how="Thin: one head; thick: the mean of a layer. First seed.",
    )


def _spread_at_end(panels: Sequence[Lines]) -> tuple[float, float]:
    """The least and the largest distance between two heads of a layer at the last epoch."""
    ends = [[strand[-1] or 0.0 for strand in p.series[0].strands or ()] for p in panels]
    apart = [max(values) - min(values) for values in ends if values]
    return min(apart, default=0.0), max(apart, default=0.0)


def dots_figure(
    results: Results, table: TableSpec, columns: Sequence[str], title: str, reading: str
) -> Figure:
    """Columns of a table as dots, one per seed, the rows as groups."""
    series = tuple(
        DotSeries(
            label=column,
            values=[results.values(table.cells.get((row, column))) for row in table.rows],
        )
        for column in columns
    )
    panel = Dots(
        title=table.title, y_label=table.measurement.unit, series=series, groups=tuple(table.rows)
    )
    return Figure(name=f"{table.name}-dots", title=title, reading=reading, panels=(panel,))


def against_figure(
    results: Results,
    pairs: Mapping[str, Sequence[tuple[float, CellSpec, CellSpec]]],
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
                [results.values((first, second)[which]) for _, first, second in points],
                network,
            )
            for network, points in pairs.items()
        ]
        panels.append(lines(label, series, x=x, y=label, x_log=True))
    return Figure(name=name, title=title, reading=reading, panels=tuple(panels))
