"""What one query looks at: a row a layer, a column a head, on a log colour scale.

Gated layers take three rows: content, position and their mix, with each head's gate.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from vitascope.record import Record
from vitascope.report.figures.axes import thin
from vitascope.report.formatting import short_names

__all__ = ["draw_maps"]

MOST_ROWS, MOST_HEADS = 15, 12
DECADES = 1e-3  # of the largest weight; what is below has the darkest colour


def draw_maps(record: Record) -> Figure:
    """The maps, the query marked; of many layers and heads an even choice."""
    rows = _rows(record)
    columns = min(MOST_HEADS, max(len(record.arrays[key]) for key, *_ in rows))
    figure = Figure(figsize=(0.9 * columns + 2.2, 0.98 * len(rows) + 0.5))
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    top = max(float(np.max(record.arrays[key])) for key, *_ in rows)
    norm = LogNorm(top * DECADES, top)
    image: Any = None
    for axis, (key, label, query, gate) in zip(axes, rows, strict=True):
        image = _row(axis, record.arrays[key], columns, query, norm, gate)
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 3.0 / len(rows)), pad=0.02, extend="min")
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def _row(
    axis: Axes, weights: np.ndarray, columns: int, query: Any, norm: LogNorm, gate: Any
) -> Any:
    """The maps (H, h, w) of at most ``columns`` heads beside each other, in one image."""
    _, height, width = weights.shape
    step = width + max(1, width // 6)
    wide = np.full((height, step * columns - (step - width)), np.nan)
    for place, head in enumerate(thin(len(weights), columns)):
        wide[:, place * step : place * step + width] = np.maximum(weights[head], norm.vmin or 0.0)
        axis.plot(place * step + query[1], query[0], "o", mfc="none", mec="#4cc9f0", ms=5, mew=1.2)
        words = f"head {head + 1}" + ("" if gate is None else f", gate {gate[head]:.2f}")
        axis.annotate(
            words, (place * step + (width - 1) / 2, -0.5), (0, 2), textcoords="offset points",
            ha="center", va="bottom", fontsize=6.5)  # fmt: skip
    image = axis.imshow(wide, norm=norm, cmap="magma")
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return image


def _rows(record: Record) -> list[tuple[str, str, Any, Any]]:
    """Array, label, query and gates of each row; whole layers until there is no room."""
    layers, gated = record.values["layers"], set(record.values["gated"])
    names = dict(zip(layers, short_names(layers), strict=True))
    queries = dict(zip(layers, record.values["query"], strict=True))
    cost = sum(3 if name in gated else 1 for name in layers)
    room = max(1, int(len(layers) * min(1.0, MOST_ROWS / cost)))
    rows: list[tuple[str, str, Any, Any]] = []
    for index in thin(len(layers), room):
        name = layers[index]
        title = f"layer {names[name]}" if names[name].isdigit() else names[name]
        if name not in gated:
            rows.append((f"mixed/{name}", title, queries[name], None))
            continue
        for part in ("content", "position", "mixed"):
            gate = record.arrays[f"gate/{name}"] if part == "mixed" else None
            rows.append((f"{part}/{name}", f"{title}\n{part}", queries[name], gate))
    return rows
