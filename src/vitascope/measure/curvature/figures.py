"""Figures and table rows of curvature: Hessian spectra, densities, landscapes, trajectories."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitascope.figure import Figure, Lines, Series, Style, Surface
from vitascope.formatting import joined, number, short_names
from vitascope.measure.instrument import ModelRecord, mean_row, table_row
from vitascope.record import Record
from vitascope.table import TableRow

FAR = 12.0  # nats above the lowest point where a surface is cut off


def shares(eigenvalues: np.ndarray) -> tuple[list[float], list[float]]:
    """Eigenvalues in order, and the percentage that is no larger.

    >>> eigenvalues, percent = shares(np.array([[3.0, -1.0]]))
    >>> [*eigenvalues, *percent]
    [-1.0, 3.0, 50.0, 100.0]
    """
    ordered = np.sort(np.asarray(eigenvalues, float)[np.isfinite(eigenvalues)])
    return ordered.tolist(), (100 * np.arange(1, len(ordered) + 1) / max(len(ordered), 1)).tolist()


def in_order(title: str, series: Sequence[Series]) -> Lines:
    """The eigenvalues of each model in order, with the share that is no larger."""
    return Lines(
        title=title,
        x_label="eigenvalue",
        y_label="share no larger (%)",
        series=tuple(series),
        floor=0.0,
        ceiling=100.0,
    )


def hessian(models: Sequence[ModelRecord]) -> Figure:
    """The largest eigenvalues of all mini-batches, in order."""
    series, parts = [], []
    for model in models:
        series.append(model.line(*shares(model.record.arrays["eigenvalues"])))
        suffix = " of its largest eigenvalues below zero" if model is models[0] else ""
        parts.append(
            f"{model.label} has {number(100 * model.values['nep'], 1)} %{suffix}, the positive "
            f"ones {number(model.values['ape'])} on average"
        )
    bars = tuple(_bars(models, side, sign) for side, sign in (("negative", -1), ("positive", 1)))
    return Figure(
        name="hessian",
        title="Largest Hessian eigenvalues: how convex, how sharp",
        reading=joined(parts),
        panels=(in_order("in order", series), *bars),
        how="Values left of zero: directions in which the loss curves downwards. Steps: "
        "eigenvalues of a size, the negative ones apart from the positive ones.",
        definition="The few eigenvalues of largest magnitude of the Hessian of NLL + l2, of each "
        "mini-batch (Park & Kim, Fig. 4).",
    )


def blocks(models: Sequence[ModelRecord]) -> Figure:
    """Trace of each block's Hessian and Gauss-Newton matrix, a panel per model; then of kinds."""
    panels, parts = [], []
    for model in models:
        values = model.values
        of = {by: [i for i, b in enumerate(values["by"]) if b == by] for by in ("block", "kind")}
        whole = values["gauss_newton_trace"][0]
        top = max(of["block"], key=lambda i: values["gauss_newton_trace"][i])
        share = 100 * values["gauss_newton_trace"][top] / whole if whole else 0.0
        parts.append(
            f"{model.label}: {values['groups'][top]} holds {number(share)} % of the Gauss-Newton "
            f"trace ({number(whole)}); the Hessian's is {number(values['hessian_trace'][0])}"
        )
        for by, indices in of.items():
            names = [values["groups"][i] for i in indices]
            short = short_names(names) if by == "block" and len(names) > 1 else names
            panels.append(
                Lines(
                    title=f"{model.label}, by {by}" if by == "block" else f"{model.label}, by kind",
                    x_label="block" if by == "block" else "kind of layer",
                    y_label="trace",
                    x_names=tuple(short),
                    joined=by == "block",
                    marks=True,
                    include=(0.0,),
                    series=tuple(_traces(model, key, label, indices) for key, label in _MATRICES),
                )
            )
    return Figure(
        name="blocks",
        title="Curvature block by block",
        reading=joined(parts),
        panels=tuple(panels),
        how="Bands: standard error of the trace. Where the Hessian lies below Gauss-Newton, the "
        "loss bends down along some of that block's weights.",
        definition="Traces of the Hessian and the Gauss-Newton matrix of the mean NLL restricted "
        "to the weights of a block or a kind of layer; the l2 term is left out.",
    )


_MATRICES = (("hessian", "Hessian"), ("gauss_newton", "Gauss-Newton"))


def _traces(model: ModelRecord, key: str, label: str, indices: Sequence[int]) -> Series:
    values = model.values
    traces = [values[f"{key}_trace"][i] for i in indices]
    errors = [values[f"{key}_error"][i] for i in indices]
    return Series(
        label=label,
        x=list(range(len(indices))),
        y=traces,
        low=[y - e for y, e in zip(traces, errors, strict=True)],
        high=[y + e for y, e in zip(traces, errors, strict=True)],
        style=Style(0 if key == "hessian" else 1, "circle" if key == "hessian" else "square"),
    )


def steps(values: np.ndarray, edges: np.ndarray, total: int) -> tuple[list[float], list[float]]:
    """A histogram as a line: each bin's height, in percent of ``total``, over its two edges.

    >>> steps(np.array([1.0, 1.5, 9.0]), np.array([1.0, 2.0, 10.0]), 4)
    ([1.0, 2.0, 2.0, 10.0], [50.0, 50.0, 25.0, 25.0])
    """
    counts = np.histogram(values, edges)[0]
    return np.repeat(edges, 2)[1:-1].tolist(), np.repeat(100 * counts / total, 2).tolist()


def _bars(models: Sequence[ModelRecord], side: str, sign: int, bins: int = 24) -> Lines:
    """The eigenvalues of one sign by their size, on a log scale as in Fig. 4."""
    eigenvalues = [
        np.asarray(model.record.arrays["eigenvalues"], float).ravel() for model in models
    ]
    eigenvalues = [values[np.isfinite(values)] for values in eigenvalues]
    sizes = np.abs(np.concatenate(eigenvalues))
    sizes = sizes[sizes > 0] if (sizes > 0).any() else np.ones(1)
    edges = np.geomspace(0.95 * sizes.min(), 1.05 * sizes.max(), bins + 1)
    series = []
    for model, values in zip(models, eigenvalues, strict=True):
        series.append(model.line(*steps(sign * values, edges, max(len(values), 1))))
    return Lines(
        title=side,
        x_label=f"size of a {side} eigenvalue",
        y_label="share (%)",
        series=tuple(series),
        x_log=True,
        floor=0.0,
        marks=False,
    )


def density(models: Sequence[ModelRecord]) -> Figure:
    """Density of all Hessian eigenvalues, smoothed."""
    series, parts = [], []
    for model in models:
        nodes, weights = (np.asarray(model.record.arrays[n], float) for n in ("nodes", "weights"))
        low, high = float(nodes.min()), float(nodes.max())
        width = max((high - low) / 100, 1e-12)
        grid = np.linspace(low - 4 * width, high + 4 * width, 200)
        bumps = np.exp(-(((grid[:, None, None] - nodes) / width) ** 2) / 2)
        curve = (bumps * weights).sum(2).mean(1) / (width * np.sqrt(2 * np.pi))
        floor = curve.max() * 1e-7
        ys = [float(value) if value > floor else None for value in curve]
        series.append(model.line(grid.tolist(), ys))
        parts.append(
            f"{model.label}'s Hessian has a trace of {number(model.values['trace'])} ± "
            f"{number(model.values['trace_error'])}"
        )
    panel = Lines(
        x_label="eigenvalue of the Hessian",
        y_label="density",
        y_log=True,
        series=tuple(series),
    )
    return Figure(
        name="density",
        title="Density of all Hessian eigenvalues",
        reading=joined(parts),
        panels=(panel,),
        definition="Density of the Hessian's spectrum by stochastic Lanczos quadrature, the trace "
        "by Hutch++.",
    )


def heights(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """NLL + l2 as measured, and cut off at ``FAR`` above the lowest point."""
    loss = np.asarray(record.arrays["nll"], float) + np.asarray(record.arrays["l2"], float)
    return loss, np.minimum(loss, loss[np.isfinite(loss)].min() + FAR)


def _share_of_l2(record: Record) -> float:
    """Return the share of the l2 term in the rise from the lowest to the highest point."""
    nll, l2 = (np.asarray(record.arrays[part], float) for part in ("nll", "l2"))
    loss = np.where(np.isfinite(nll + l2), nll + l2, np.nan)
    low, high = (np.unravel_index(f(loss), loss.shape) for f in (np.nanargmin, np.nanargmax))
    rise = float(loss[high] - loss[low])
    return float(l2[high] - l2[low]) / rise if rise > 0 else 0.0


def landscape(models: Sequence[ModelRecord]) -> Figure:
    """Contours of each model along two directions; lines along one."""
    panels: list[Surface | Lines] = []
    curves, parts = [], []
    for model in models:
        arrays = model.record.arrays
        loss, cut = heights(model.record)
        good = loss[np.isfinite(loss)]
        at = [np.asarray(arrays[name], float) for name in sorted(arrays) if "axis" in name]
        parts.append(
            f"{model.label}'s loss rises from {number(float(good.min()))} to "
            f"{number(float(good.max()))} within a step of {number(float(at[0].max()))}, "
            f"{number(100 * _share_of_l2(model.record))} % of it by l2"
        )
        if len(at) == 1:
            for part, dash in (("nll", "2 3"), ("l2", "7 4")):
                heights_of = np.asarray(arrays[part], float)
                curves.append(
                    Series(
                        label=f"{model.label}, {part.upper() if part == 'nll' else part} alone",
                        x=at[0].tolist(),
                        style=replace(model.style, dash=dash),
                        y=[float(v) if np.isfinite(v) else None for v in heights_of],
                    )
                )
            whole = [float(v) if np.isfinite(v) else None for v in loss]
            curves.append(model.line(at[0].tolist(), whole))
        else:
            x, y = (axis.tolist() for axis in at)
            panels.append(Surface(title=model.label, x=x, y=y, values=cut, label="NLL + l2 (nats)"))
            alone = np.asarray(arrays["nll"], float)
            alone = np.minimum(alone, alone[np.isfinite(alone)].min() + FAR)
            title = f"{model.label}, NLL alone"
            panels.append(Surface(title=title, x=x, y=y, values=alone, label="NLL (nats)"))
    if curves:
        panels.append(
            Lines(
                x_label="step along the direction",
                series=tuple(curves),
                y_label="NLL + l2 (nats)",
            )
        )
    return Figure(
        name="landscape",
        title="Loss landscape around the weights",
        reading=joined(parts),
        how=f"Cut {FAR:g} nats above the lowest point." if len(panels) > len(curves) else "",
        panels=tuple(panels),
        definition=f"NLL + l2 on augmented training images; {models[0].values['along']} "
        "(Li et al. 2018; Park & Kim, Fig. 1a).",
    )


def trajectory(models: Sequence[ModelRecord]) -> Figure:
    """The path of the weights in polar coordinates, and its angle to the straight line."""
    series, paths, parts = [], [], []
    for model in models:
        radius, angle = model.values["radius"], model.values["angle"]
        pairs = [(r, a) for r, a in zip(radius, angle, strict=True) if r > 0]
        series.append(model.line([1 - r for r, _ in pairs], [math.degrees(a) for _, a in pairs]))
        drawn = [*pairs, (0.0, pairs[-1][1])]  # the end, which has no angle of its own
        across = [r * float(np.cos(a)) for r, a in drawn]
        paths.append(model.line(across, [r * float(np.sin(a)) for r, a in drawn]))
        parts.append(
            f"{model.label} leaves the straight line by "
            f"{number(math.degrees(max(a for _, a in pairs)))} degrees at most"
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
        title="distance from the straight line",
        x_label="share of the distance covered",
        y_label="angle (degrees)",
        marks=True,
        series=tuple(series),
        floor=0.0,
    )
    return Figure(
        name="trajectory",
        title="Training trajectory",
        reading=joined(parts),
        panels=(polar, panel),
        how="From (1, 0), the first weights, to (0, 0), the last; a straight line has no height.",
        definition="dw_t = w_t − w_end; r_t = |dw_t| / |dw_0|, θ_t the angle between dw_t and dw_0 "
        "(Park & Kim, Fig. 1b).",
    )


def hessian_rows(record: Record) -> list[TableRow]:
    """Return NEP and APE."""
    values = record.values
    ape = "none" if values["ape"] is None else f"{values['ape']:.3g}"
    batches = f"{values['num_batches']} batches"
    return [
        table_row("hessian", f"NEP, share below 0, {batches}", f"{100 * values['nep']:.1f} %"),
        table_row("hessian", f"APE, mean of the positive, {batches}", ape, "", values["note"]),
    ]


def blocks_rows(record: Record) -> list[TableRow]:
    """Return the traces of each block and kind of layer."""
    values = record.values
    return [
        table_row(
            "blocks",
            f"trace of {values['groups'][i]} ({values['by'][i]}), Hessian and Gauss-Newton",
            " and ".join(
                f"{values[f'{key}_trace'][i]:.4g} ± {values[f'{key}_error'][i]:.2g}"
                for key, _ in _MATRICES
            ),
        )
        for i in range(len(values["groups"]))
    ]


def density_rows(record: Record) -> list[TableRow]:
    """Return the trace of the Hessian."""
    values = record.values
    trace, error = values["trace"], values["trace_error"]
    return [table_row("density", "trace of the Hessian", f"{trace:.4g} ± {error:.2g}")]


def landscape_rows(record: Record) -> list[TableRow]:
    """Return what the directions are, and how many weights they move."""
    values = record.values
    moved = f"{values['num_moved']:,} of {values['num_weights']:,} weights moved"
    return [table_row("landscape", f"{values['along']}; {moved}")]


def trajectory_rows(record: Record) -> list[TableRow]:
    """Return how far the weights leave the straight line."""
    values = record.values
    epochs = [f"epoch {epoch}" for epoch in values["epochs"]]
    degrees = [math.degrees(angle) for angle in values["angle"]]
    label = "angle to the straight line in degrees, mean over epochs"
    return [mean_row("trajectory", label, epochs, degrees)]
