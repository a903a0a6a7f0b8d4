"""Figures of studies as plain data: series over epochs, layers and columns, for any renderer."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.record import Record
from vitascope.studies.papers.plan import Figure, Findings, Reading, Training

__all__ = ["CURVES", "LOOKS", "curves_figure", "heads_figure", "lines", "maps_panel", "over"]

CURVES, LOOKS = Reading(name="curves"), Reading(name="looks")


def over(x: Sequence[float], groups: Sequence[Sequence[float]], label: str) -> dict[str, Any]:
    """A line through the means of groups of seeds, with their range.

    >>> over([1, 2], [[1.0, 3.0], []], "a")["y"]
    [2.0, None]
    """
    return {
        "label": label, "model": label, "x": list(x),
        "y": [fmean(group) if group else None for group in groups],
        "low": [min(group) if group else None for group in groups],
        "high": [max(group) if group else None for group in groups],
    }  # fmt: skip


def lines(
    title: str, series: Sequence[Mapping[str, Any]], *, x: str, y: str, x_log: bool = False,
    y_log: bool = False, joined: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """A panel of lines."""
    return {"kind": "lines", "title": title, "x_label": x, "y_label": y, "x_log": x_log,
            "y_log": y_log, "joined": joined, "series": list(series)}  # fmt: skip


def curves_figure(
    findings: Findings, runs: Mapping[str, Training], title: str, name: str = "curves"
) -> Figure:
    """Top-1 and training loss over epochs, means over seeds; one line a run."""
    panels = []
    for key, factor, label in (("top1", 100.0, "top-1, %"), ("train_nll", 1.0, "training loss")):
        series = []
        for run, training in runs.items():
            records = findings.of(training, CURVES)
            shortest = min(len(r.values["epoch"]) for r in records)
            epochs = records[0].values["epoch"][:shortest]
            columns = [[factor * r.values[key][i] for r in records if r.values[key][i] is not None]
                       for i in range(shortest)]  # fmt: skip
            last = max(epochs)
            series.append(over([100 * e / last for e in epochs], columns, run))
        panels.append(lines(label, series, x="training, % of its epochs", y=label))
    best = max(panels[0]["series"], key=lambda s: s["y"][-1] or 0.0)
    reading = f"{best['label']} ends highest, at {best['y'][-1]:.1f} %."
    return {"name": name, "title": title, "reading": reading, "panels": panels}


def heads_figure(findings: Findings, runs: Mapping[str, Training], what: str, title: str) -> Figure:
    """Gates or nonlocality over training, one panel a run, one line a layer: mean over heads."""
    panels, moves = [], []
    for run, training in runs.items():
        records = findings.of(training, LOOKS)
        if any(what not in record.arrays for record in records):
            continue
        mean = np.mean([np.nanmean(r.arrays[what], axis=-1) for r in records], axis=0)  # (E, L)
        epochs, names = records[0].values["epochs"], records[0].values[what]["layers"]
        series = [{"label": name, "model": None, "x": [max(e, 0.5) for e in epochs],
                   "y": mean[:, i].tolist(), "low": None, "high": None}
                  for i, name in enumerate(names)]  # fmt: skip
        label = "gate" if what == "gates" else "nonlocality, patches"
        panels.append(lines(run, series, x="epoch (0 stands at 0.5)", y=label, x_log=True))
        moves.append(f"{run} from {mean[0].mean():.2f} to {mean[-1].mean():.2f}")
    reading = f"Means over layers: {'; '.join(moves)}." if moves else "No run has them."
    return {"name": what, "title": title, "reading": reading, "panels": panels}


def maps_panel(record: Record, key: str, title: str) -> tuple[dict[str, Any], np.ndarray]:
    """A panel of attention maps, a row a layer and a column a head, and its array."""
    layers = [name for name in record.values["layers"] if f"mixed/{name}" in record.arrays]
    found = [record.arrays[f"mixed/{name}"] for name in layers]  # (H, h, w) each
    heads = max(len(maps) for maps in found)
    grid = np.full((len(found), heads, *found[0].shape[1:]), np.nan, dtype=np.float32)
    for row, maps in zip(grid, found, strict=True):
        row[: len(maps)] = maps
    rows, columns = layers, [f"head {i + 1}" for i in range(heads)]
    panel = {"kind": "maps", "title": title, "array": key, "rows": rows, "columns": columns,
             "log": True}  # fmt: skip
    return panel, grid
