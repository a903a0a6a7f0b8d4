"""What the instruments found, a line each, for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.record import Record
from vitascope.report.formatting import plural
from vitascope.report.instruments.robustness_readings import READINGS
from vitascope.report.instruments.robustness_table import rows as robustness_rows
from vitascope.report.tables.terminal import table

__all__ = ["left_out", "summary", "summary_rows"]


def summary(records: Mapping[str, Record]) -> str:
    """One row an instrument: its mean, and where it is lowest and highest.

    >>> values = {"layers": ["a", "b"], "per_layer": [0.5, 0.75]}
    >>> print(summary({"gates": Record(kind="gates", values=values)}))
    measure  value                          mean  lowest  highest
    gates    share of position, per layer  0.625  a: 0.5  b: 0.75
    """
    rows = [row for name, record in records.items() for row in summary_rows(name, record)]
    return table(["measure", "value", "mean", "lowest", "highest"], rows) if rows else ""


def left_out(records: Mapping[str, Record]) -> list[str]:
    """What was not measured, and why; the same for several instruments is said once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, record in records.items():
        for part in ("left_out", "kept"):
            for unit, why in record.values.get(part, {}).items():
                reasons.setdefault((unit, why), []).append(name)
    return [
        f"left out of {', '.join(names)}: {unit}: {why}" for (unit, why), names in reasons.items()
    ]


def summary_rows(name: str, record: Record) -> list[list[str]]:
    """Measure, what its value is, mean, lowest and highest; one line or more."""
    values = record.values
    if record.kind in READINGS:
        return [[name, setting, value, "", ""] for setting, value, _ in robustness_rows(record)]
    if name in _LISTS:
        what, over, key = _LISTS[name]
        return [_row(name, what, values[over], values[key])]
    return _OTHERS[name](values)


_LISTS = {
    "nonlocality": ("patches, per layer", "layers", "per_layer"),
    "gates": ("share of position, per layer", "layers", "per_layer"),
    "entropy": ("of a uniform head's, per layer", "layers", "relative"),
    "fourier": ("Δ log amplitude at π, per unit", "units", "high"),
    "variance": ("over space, per unit", "units", "variance"),
}


def _row(name: str, what: str, where: Sequence[str], numbers: Sequence[float]) -> list[str]:
    low, high = int(np.argmin(numbers)), int(np.argmax(numbers))
    return [
        name,
        what,
        f"{np.mean(numbers):.3g}",
        f"{where[low]}: {numbers[low]:.3g}",
        f"{where[high]}: {numbers[high]:.3g}",
    ]


def _maps(values: Mapping[str, Any]) -> list[list[str]]:
    gated = f", {len(values['gated'])} gated" if values["gated"] else ""
    return [["maps", f"{len(values['layers'])} layers{gated}", "", "", ""]]


def _cka(values: Mapping[str, Any]) -> list[list[str]]:
    names = [f"{a} / {b}" for a in values["rows"] for b in values["columns"] if a != b]
    pairs = values["similarity"]
    numbers = [
        pairs[i][j]
        for i, a in enumerate(values["rows"])
        for j, b in enumerate(values["columns"])
        if a != b
    ]
    return [_row("cka", "similarity, per pair of units", names, numbers)] if numbers else []


def _masking(values: Mapping[str, Any]) -> list[list[str]]:
    whole = {"nothing": values["unmasked"]}
    if values["no_positions"] is not None:
        whole["position embeddings"] = values["no_positions"]
    for part in ("content", "position"):
        for k, accuracy in values[f"{part}_masked"].items():
            whole[f"{part} of {plural(int(k), 'layer')}"] = accuracy
    return [
        ["masking", f"top-1 without {what}", f"{100 * accuracy:.1f} %", "", ""]
        for what, accuracy in whole.items()
    ]


def _lesion(values: Mapping[str, Any]) -> list[list[str]]:
    rows = [["lesion", "top-1, intact", f"{100 * values['intact']:.1f} %", "", ""]]
    if values["units"]:
        points = [100 * lost for lost in values["lost"]]
        rows.append(_row("lesion", "points lost, per unit", values["units"], points))
    return rows


def _hessian(values: Mapping[str, Any]) -> list[list[str]]:
    ape = "none" if values["ape"] is None else f"{values['ape']:.3g}"
    batches = f"{values['num_batches']} batches"
    return [
        ["hessian", f"NEP, share below 0, {batches}", f"{100 * values['nep']:.1f} %", "", ""],
        ["hessian", f"APE, mean of the positive, {batches}", ape, "", values["note"]],
    ]


def _density(values: Mapping[str, Any]) -> list[list[str]]:
    trace, error = values["trace"], values["trace_error"]
    return [["density", "trace of the Hessian", f"{trace:.4g} ± {error:.2g}", "", ""]]


def _landscape(values: Mapping[str, Any]) -> list[list[str]]:
    moved = f"{values['num_moved']:,} of {values['num_weights']:,} weights moved"
    return [["landscape", f"{values['along']}; {moved}", "", "", ""]]


def _trajectory(values: Mapping[str, Any]) -> list[list[str]]:
    epochs = [f"epoch {epoch}" for epoch in values["epochs"]]
    degrees = [57.29578 * angle for angle in values["angle"]]
    return [_row("trajectory", "angle to the straight way, degrees", epochs, degrees)]


_OTHERS: dict[str, Callable[[Mapping[str, Any]], list[list[str]]]] = {
    "maps": _maps,
    "cka": _cka,
    "masking": _masking,
    "lesion": _lesion,
    "hessian": _hessian,
    "density": _density,
    "landscape": _landscape,
    "trajectory": _trajectory,
}
