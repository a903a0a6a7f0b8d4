"""Fig. 3 of the ConViT paper from a record: where fresh heads look."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

from vitascope.errors import UserError
from vitascope.record import Record, atomic_write

__all__ = ["draw_first_look"]


def draw_first_look(record: Record, path: Path) -> Path:
    """One row of maps a locality strength, one column a head; the query patch is marked."""
    kind = path.suffix.lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise UserError(f"cannot draw to {path}: give a name that ends in .png, .svg or .pdf")
    maps = record.arrays["maps"]
    rows, columns = maps.shape[:2]
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.2 * columns, 1.35 * rows), squeeze=False, layout="constrained"
    )
    middle = [(size - 1) / 2 for size in maps.shape[2:]]
    for row, strength in enumerate(record.values["strengths"]):
        for head in range(columns):
            axis = axes[row, head]
            floor = max(maps[row].max() * 1e-4, 1e-12)
            axis.imshow(np.log10(np.maximum(maps[row, head], floor)), cmap="magma")
            axis.plot(middle[1], middle[0], "o", color="#4cc9f0", markersize=3)
            axis.set(xticks=[], yticks=[])
            if row == 0:
                axis.set_title(f"head {head + 1}", fontsize=8)
        axes[row, 0].set_ylabel(f"α = {strength:g}", fontsize=9)
    figure.suptitle("Positional attention of a fresh GPSA layer (log scale)", fontsize=10)
    with atomic_write(path) as stream:
        figure.savefig(stream, format=kind, dpi=160)
    plt.close(figure)
    return path
