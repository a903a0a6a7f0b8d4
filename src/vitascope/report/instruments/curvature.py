"""Curvature of several models' losses together: spectra, densities, landscapes, paths."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Figure, Lines, Series, Surface
from vitascope.record import Record
from vitascope.report.formatting import number
from vitascope.report.instruments.instrument import Instrument, Seen, mean_row, table_row
from vitascope.report.instruments.per_layer import joined
from vitascope.report.tables.table import TableRow

__all__ = ["CURVATURE", "FAR", "heights", "shares"]

FAR = 12.0  # nats above the lowest point where a surface is cut off


def shares(eigenvalues: np.ndarray) -> tuple[list[float], list[float]]:
    """Eigenvalues in order, and the percentage that is no larger.

    >>> eigenvalues, percent = shares(np.array([[3.0, -1.0]]))
    >>> [*eigenvalues, *percent]
    [-1.0, 3.0, 50.0, 100.0]
    """
    found = np.sort(np.asarray(eigenvalues, float)[np.isfinite(eigenvalues)])
    return found.tolist(), (100 * np.arange(1, len(found) + 1) / max(len(found), 1)).tolist()


def hessian(models: Sequence[Seen]) -> Figure:
    """The largest eigenvalues of all mini-batches, in order."""
    series, parts = [], []
    for seen in models:
        x, y = shares(seen.record.arrays["eigenvalues"])
        series.append(Series(label=seen.label, x=x, y=y, style=seen.style))
        words = " of its largest eigenvalues below zero" if seen is models[0] else ""
        parts.append(
            f"{seen.label} has {number(100 * seen.values['nep'], 1)} %{words}, the positive "
            f"ones {number(seen.values['ape'])} on average"
        )
    panel = Lines(
        title="in order",
        x_label="eigenvalue",
        y_label="share no larger (%)",
        series=tuple(series),
        floor=0.0,
        ceiling=100.0,
    )
    bars = tuple(_bars(models, side, sign) for side, sign in (("negative", -1), ("positive", 1)))
    return Figure(
        name="hessian",
        title="How convex, how sharp",
        reading=joined(parts),
        panels=(panel, *bars),
        how="A line that rises left of zero is a loss that bends down in some directions. Steps: "
        "eigenvalues of a size, the negative ones apart from the positive ones.",
        definition="The few eigenvalues of largest magnitude of the Hessian of NLL + l2, of each "
        "mini-batch (Park & Kim, Fig. 4).",
    )


def steps(values: np.ndarray, edges: np.ndarray, total: int) -> tuple[list[float], list[float]]:
    """A histogram as a line: each bin's height, in percent of ``total``, over its two edges.

    >>> steps(np.array([1.0, 1.5, 9.0]), np.array([1.0, 2.0, 10.0]), 4)
    ([1.0, 2.0, 2.0, 10.0], [50.0, 50.0, 25.0, 25.0])
    """
    counts = np.histogram(values, edges)[0]
    return np.repeat(edges, 2)[1:-1].tolist(), np.repeat(100 * counts / total, 2).tolist()


def _bars(models: Sequence[Seen], side: str, sign: int, bins: int = 24) -> Lines:
    """The eigenvalues of one sign by their size, on a log scale as in Fig. 4."""
    found = [np.asarray(seen.record.arrays["eigenvalues"], float).ravel() for seen in models]
    found = [values[np.isfinite(values)] for values in found]
    sizes = np.abs(np.concatenate(found))
    sizes = sizes[sizes > 0] if (sizes > 0).any() else np.ones(1)
    edges = np.geomspace(0.95 * sizes.min(), 1.05 * sizes.max(), bins + 1)
    series = []
    for seen, values in zip(models, found, strict=True):
        x, y = steps(sign * values, edges, max(len(values), 1))
        series.append(Series(label=seen.label, x=x, y=y, style=seen.style))
    return Lines(
        title=side,
        x_label=f"size of a {side} eigenvalue",
        y_label="share (%)",
        series=tuple(series),
        x_log=True,
        floor=0.0,
        marks=False,
    )


def density(models: Sequence[Seen]) -> Figure:
    """All eigenvalues, smoothed."""
    series, parts = [], []
    for seen in models:
        nodes, weights = (np.asarray(seen.record.arrays[n], float) for n in ("nodes", "weights"))
        low, high = float(nodes.min()), float(nodes.max())
        width = max((high - low) / 100, 1e-12)
        grid = np.linspace(low - 4 * width, high + 4 * width, 200)
        bumps = np.exp(-(((grid[:, None, None] - nodes) / width) ** 2) / 2)
        curve = (bumps * weights).sum(2).mean(1) / (width * np.sqrt(2 * np.pi))
        floor = curve.max() * 1e-7
        ys = [float(value) if value > floor else None for value in curve]
        series.append(Series(label=seen.label, x=grid.tolist(), y=ys, style=seen.style))
        parts.append(
            f"{seen.label}'s Hessian has a trace of {number(seen.values['trace'])} ± "
            f"{number(seen.values['trace_error'])}"
        )
    panel = Lines(
        title="",
        x_label="eigenvalue of the Hessian",
        y_label="density",
        y_log=True,
        series=tuple(series),
    )
    return Figure(
        name="density",
        title="All eigenvalues",
        reading=joined(parts),
        panels=(panel,),
        definition="Density of the Hessian's spectrum by stochastic Lanczos quadrature, the trace "
        "by Hutch++.",
    )


def heights(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """NLL + l2 as measured, and cut off at ``FAR`` above the lowest point."""
    loss = np.asarray(record.arrays["nll"], float) + np.asarray(record.arrays["l2"], float)
    return loss, np.minimum(loss, loss[np.isfinite(loss)].min() + FAR)


def landscape(models: Sequence[Seen]) -> Figure:
    """Contours of each model along two directions; lines along one."""
    panels: list[Surface | Lines] = []
    curves, parts = [], []
    for seen in models:
        arrays = seen.record.arrays
        loss, cut = heights(seen.record)
        good = loss[np.isfinite(loss)]
        at = [np.asarray(arrays[name], float) for name in sorted(arrays) if "axis" in name]
        parts.append(
            f"{seen.label}'s loss rises from {number(float(good.min()))} to "
            f"{number(float(good.max()))} within a step of {number(float(at[0].max()))}"
        )
        if len(at) == 1:
            curves.append(
                Series(
                    label=seen.label,
                    x=at[0].tolist(),
                    style=seen.style,
                    y=[float(v) if np.isfinite(v) else None for v in loss],
                )
            )
        else:
            x, y = (axis.tolist() for axis in at)
            panels.append(Surface(title=seen.label, x=x, y=y, values=cut, label="NLL + l2 (nats)"))
    if curves:
        panels.append(
            Lines(
                title="",
                x_label="step along the direction",
                series=tuple(curves),
                y_label="NLL + l2 (nats)",
            )
        )
    return Figure(
        name="landscape",
        title="The loss around the weights",
        reading=joined(parts),
        how=f"Cut {FAR:g} nats above the lowest point." if len(panels) > len(curves) else "",
        panels=tuple(panels),
        definition=f"NLL + l2 on augmented training images; {models[0].values['along']} "
        "(Li et al. 2018; Park & Kim, Fig. 1a).",
    )


def trajectory(models: Sequence[Seen]) -> Figure:
    """The path in polar coordinates, and its angle to the straight way against the way gone."""
    series, paths, parts = [], [], []
    for seen in models:
        radius, angle = seen.values["radius"], seen.values["angle"]
        pairs = [(r, a) for r, a in zip(radius, angle, strict=True) if r > 0]
        series.append(
            Series(
                label=seen.label,
                x=[1 - r for r, _ in pairs],
                style=seen.style,
                y=[57.29578 * a for _, a in pairs],
            )
        )
        drawn = [*pairs, (0.0, pairs[-1][1])]  # the end, which has no angle of its own
        paths.append(
            Series(
                label=seen.label,
                x=[r * float(np.cos(a)) for r, a in drawn],
                y=[r * float(np.sin(a)) for r, a in drawn],
                style=seen.style,
            )
        )
        parts.append(
            f"{seen.label} leaves the straight way by "
            f"{number(57.29578 * max(a for _, a in pairs))} degrees at most"
        )
    polar = Lines(
        title="in polar coordinates",
        x_label="r cos θ",
        y_label="r sin θ",
        marks=True,
        series=tuple(paths),
        floor=0.0,
    )
    panel = Lines(
        title="off the straight way",
        x_label="share of the way gone",
        y_label="angle (degrees)",
        marks=True,
        series=tuple(series),
        floor=0.0,
    )
    return Figure(
        name="trajectory",
        title="The way to the optimum",
        reading=joined(parts),
        panels=(polar, panel),
        how="From (1, 0), the first weights, to (0, 0), the last; a straight way has no height.",
        definition="dw_t = w_t − w_end; r_t = |dw_t| / |dw_0|, θ_t the angle between dw_t and dw_0 "
        "(Park & Kim, Fig. 1b).",
    )


def _hessian_rows(record: Record) -> list[TableRow]:
    values = record.values
    ape = "none" if values["ape"] is None else f"{values['ape']:.3g}"
    batches = f"{values['num_batches']} batches"
    return [
        table_row("hessian", f"NEP, share below 0, {batches}", f"{100 * values['nep']:.1f} %"),
        table_row("hessian", f"APE, mean of the positive, {batches}", ape, "", values["note"]),
    ]


def _density_rows(record: Record) -> list[TableRow]:
    values = record.values
    trace, error = values["trace"], values["trace_error"]
    return [table_row("density", "trace of the Hessian", f"{trace:.4g} ± {error:.2g}")]


def _landscape_rows(record: Record) -> list[TableRow]:
    values = record.values
    moved = f"{values['num_moved']:,} of {values['num_weights']:,} weights moved"
    return [table_row("landscape", f"{values['along']}; {moved}")]


def _trajectory_rows(record: Record) -> list[TableRow]:
    values = record.values
    epochs = [f"epoch {epoch}" for epoch in values["epochs"]]
    degrees = [57.29578 * angle for angle in values["angle"]]
    what = "angle to the straight way in degrees, mean over epochs"
    return [mean_row("trajectory", what, epochs, degrees)]


CURVATURE: dict[str, Instrument] = {
    "hessian": Instrument(hessian, _hessian_rows),
    "density": Instrument(density, _density_rows),
    "landscape": Instrument(landscape, _landscape_rows),
    "trajectory": Instrument(trajectory, _trajectory_rows),
}
