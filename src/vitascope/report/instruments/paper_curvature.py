"""Curvature: eigenvalues of the Hessian, the loss around the weights, the path that led there."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D  # noqa: F401  (gives figures their 3-D axes)

from vitascope.record import Record
from vitascope.report.figures.lines import axis_number
from vitascope.report.figures.scale import Scale, ticks
from vitascope.report.figures.style import COLOURS

__all__ = [
    "draw_density",
    "draw_hessian",
    "draw_hessians",
    "draw_landscape",
    "draw_trajectories",
    "draw_trajectory",
]

BLUE = COLOURS[0][0]
FAR = 12.0  # nats above the centre where a surface is cut off, so that its valley can be seen


def draw_hessians(records: Mapping[str, Record], bins: int = 30) -> Figure:
    """Eigenvalues of several models, negative and positive apart as in Fig. 4, on a log scale."""
    figure = Figure(figsize=(7.2, 2.7))
    axes = figure.subplots(1, 2, width_ratios=(1, 1.6), sharey=True)
    found = {
        name: np.asarray(record.arrays["eigenvalues"]).ravel() for name, record in records.items()
    }
    together = np.concatenate(list(found.values()))
    sizes = np.abs(together[together != 0]) if together.any() else np.ones(1)
    edges = np.geomspace(0.95 * sizes.min(), 1.05 * sizes.max(), bins + 1)
    for axis, sign, title in zip(axes, (-1, 1), ("negative", "positive"), strict=True):
        axis.set(title=title, xlabel="size of the eigenvalue", xscale="log")
        axis.set_xlim(edges[[-1, 0]] if sign < 0 else edges[[0, -1]])
        marks = ticks(Scale(float(edges[0]), float(edges[-1]), log=True), 4 if sign < 0 else 6)
        axis.set_xticks(marks, [axis_number(mark) for mark in marks])
        axis.minorticks_off()
        if not (sign * together > 0).any():
            axis.text(0.5, 0.5, "none", transform=axis.transAxes, ha="center", color="#5a606b")
        for place, (name, values) in enumerate(found.items()):
            colour = COLOURS[place % len(COLOURS)][0]
            share = np.histogram(sign * values, edges)[0] / values.size
            axis.stairs(share, edges, color=colour, fill=True, alpha=0.18)
            axis.stairs(share, edges, color=colour, lw=1.3, label=_spectrum(name, records[name]))
    axes[0].set_ylabel("share of eigenvalues")
    axes[1].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def _spectrum(name: str, record: Record) -> str:
    """A model's name with its two numbers."""
    ape = record.values["ape"]
    numbers = f"NEP {100 * record.values['nep']:.1f} %, APE " + (
        "none" if ape is None else f"{ape:.3g}"
    )
    return f"{name}: {numbers}" if name else numbers


def draw_hessian(record: Record) -> Figure:
    """The spectrum of one model."""
    return draw_hessians({"": record})


def draw_density(record: Record) -> Figure:
    """All eigenvalues, smoothed, on a log scale: most are near 0, few far from it."""
    nodes, weights = (np.asarray(record.arrays[name]) for name in ("nodes", "weights"))
    low, high = float(nodes.min()), float(nodes.max())
    width = max((high - low) / 100, 1e-12)
    grid = np.linspace(low - 4 * width, high + 4 * width, 500)
    bumps = np.exp(-(((grid[:, None, None] - nodes) / width) ** 2) / 2)
    curve = (bumps * weights).sum(2).mean(1) / (width * np.sqrt(2 * np.pi))
    figure = Figure(figsize=(4.6, 2.6))
    axis = figure.subplots()
    axis.semilogy(grid, np.maximum(curve, curve.max() * 1e-9), color=BLUE, lw=1.4)
    axis.axvline(0, color="#5a606b", lw=0.8, ls="--")
    axis.set(xlabel="eigenvalue of the Hessian", ylabel="density")
    axis.set_ylim(curve.max() * 1e-7, None)
    return figure


def heights(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """NLL + l2, as measured and cut at ``FAR`` above the lowest point."""
    loss = np.asarray(record.arrays["nll"]) + np.asarray(record.arrays["l2"])
    return loss, np.minimum(loss, loss[np.isfinite(loss)].min() + FAR)


def draw_landscape(record: Record) -> Figure:
    """A curve along one direction; contours and a surface along two."""
    loss, cut = heights(record)
    along = [np.asarray(record.arrays[name]) for name in sorted(record.arrays) if "axis" in name]
    if len(along) == 1:
        figure = Figure(figsize=(3.6, 2.6))
        axis = figure.subplots()
        shown = np.isfinite(loss)
        axis.plot(along[0][shown], loss[shown], "o-", color=BLUE, ms=3, lw=1.4)
        axis.set(xlabel="step along the direction", ylabel="NLL + l2 (nats)")
        return figure
    figure = Figure(figsize=(7.6, 3.2))
    flat = figure.add_subplot(1, 2, 1)
    levels = np.linspace(cut.min(), cut.max() + 1e-9, 16)
    drawn = flat.contourf(along[0], along[1], cut.T, levels=levels, cmap="viridis")
    flat.contour(along[0], along[1], cut.T, levels=levels, colors="white", linewidths=0.4)
    flat.plot(0, 0, "+", color="white", ms=9, mew=1.6)
    flat.set(xlabel="first direction", ylabel="second direction", aspect="equal")
    figure.colorbar(drawn, ax=flat, label="NLL + l2 (nats)", format="%.2g", shrink=0.85)
    solid = figure.add_subplot(1, 2, 2, projection="3d")
    x, y = np.meshgrid(*along, indexing="ij")
    solid.plot_surface(x, y, cut, cmap="viridis", rcount=60, ccount=60, lw=0, antialiased=True)  # type: ignore[attr-defined]
    solid.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    solid.tick_params(labelsize=7, pad=-2)
    return figure


def draw_trajectories(records: Mapping[str, Record]) -> Figure:
    """Paths of several models in one polar plot: they start on the rim and end in the middle."""
    figure = Figure(figsize=(4.2, 4.0), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.25, w_pad=0.15)  # type: ignore[union-attr, call-arg]
    axis = figure.add_subplot(projection="polar")
    widest = 0.0
    for place, (name, record) in enumerate(records.items()):
        colour = COLOURS[place % len(COLOURS)][0]
        angle, radius = (np.asarray(record.values[key]) for key in ("angle", "radius"))
        angle = np.where(radius > 0, angle, np.roll(angle, 1))  # the end has no angle of its own
        axis.plot(angle, radius, "o-", color=colour, ms=3, lw=1.4, label=name)
        widest = max(widest, float(angle.max()))
    axis.set_thetalim(0, min(np.pi, max(np.pi / 2, 1.1 * widest)))  # type: ignore[attr-defined]
    axis.set_ylim(0, None)
    axis.grid(True)
    axis.tick_params(labelsize=7)
    if len(records) > 1:
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure


def draw_trajectory(record: Record) -> Figure:
    """The path of one model."""
    return draw_trajectories({"": record})
