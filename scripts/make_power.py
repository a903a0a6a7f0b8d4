"""The power curves of docs/statistics-formulas.md: how often a true lead is called one.

    PYTHONPATH=tests python scripts/make_power.py

Writes docs/figures/statistics-power.png in about a minute.

Runs are simulated as in tests/simulated_runs.py, around an accuracy of 84 %.
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from simulated_runs import World
from vitascope.report.figures.paper_renderer import STYLE
from vitascope.stats.differences import Images, Runs, parts

OUT = Path(__file__).parents[1] / "docs" / "figures" / "statistics-power.png"
LEADS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # points
SETTINGS = ((2, 359), (3, 359), (3, 2000), (5, 2000), (5, 10_000))  # seeds, test images
SPREADS = (1.0, 2.0)  # points between seeds
TRIALS = 600


def power(lead: float, spread: float, seeds: int, images: int) -> float:
    """Share of the trials in which the interval of the difference lies off zero."""
    world = World(accuracies=(84.0 + lead, 84.0), spreads=(spread,) * 2, seeds=seeds, images=images)
    met, found = Images(images), 0
    for stack in world.stacked(TRIALS, seed=1, at_once=max(1, 400_000 // images)):
        value, variance = parts([Runs(stack[:, k], met) for k in (0, 1)], (1, -1))
        found += int((np.abs(value) > variance.half_width()).sum())
    return found / TRIALS


def main() -> None:
    """Simulate, draw, and print the numbers."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.5), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, spread in zip(panels, SPREADS, strict=True):
            for seeds, images in SETTINGS:
                curve = [power(lead, spread, seeds, images) for lead in LEADS]
                axes.plot(
                    LEADS,
                    curve,
                    marker="o",
                    markersize=3,
                    label=f"{seeds} seeds, {images:,} images",
                )
                print(spread, seeds, images, *(f"{share:.2f}" for share in curve), flush=True)
            axes.axhline(0.8, color="0.7", linewidth=0.8, zorder=0)
            axes.set(
                title=f"runs spread by {spread:g} point{'s' * (spread != 1)}",
                ylim=(0, 1.02),
                xlabel="true lead, points",
                xlim=(0, None),
            )
        panels[0].set_ylabel("called a lead")
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=5,
            fontsize="small",
            frameon=False,
            columnspacing=1.2,
            handlelength=1.2,
        )
        figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
