"""What the instruments found, as one table for terminal, page and files."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.record import Record
from vitascope.report.formatting import plural
from vitascope.report.instruments.robustness_readings import READINGS, robustness_numbers
from vitascope.report.tables.table import Cell, Table, TableRow, row

__all__ = ["left_out", "summary_table"]


def summary_table(records: Mapping[str, Record], name: str = "summary", title: str = "") -> Table:
    """One or more lines for each instrument: its value, and where it is lowest and highest.

    >>> values = {"layers": ["a", "b"], "per_layer": [0.5, 0.75]}
    >>> table = summary_table({"gates": Record(kind="gates", values=values)})
    >>> table.inline()[1]
    [['gates', 'share of position, mean over layers', '0.625', 'a: 0.5', 'b: 0.75']]
    """
    rows = [line for kind, record in records.items() for line in _rows(kind, record)]
    columns = ("What", "Value", "Lowest", "Highest")
    used = 1 + max((i for line in rows for i, c in enumerate(line.cells) if c.words), default=1)
    return Table(
        name=name,
        title=title,
        corner="Measure",
        columns=columns[:used],
        rows=tuple(row(line.label, line.cells[:used]) for line in rows),
        beside="lost",
    )


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


def _rows(name: str, record: Record) -> list[TableRow]:
    if record.kind in READINGS:
        return [
            _row(name, setting, Cell(words=value, note=lost))
            for setting, value, lost in robustness_numbers(record)
        ]
    if name in _LISTS:
        what, over, key = _LISTS[name]
        return [_mean_row(name, what, record.values[over], record.values[key])]
    return _OTHERS[name](record.values)


_LISTS = {
    "nonlocality": ("patches, mean over layers", "layers", "per_layer"),
    "gates": ("share of position, mean over layers", "layers", "per_layer"),
    "entropy": ("of a uniform head's, mean over layers", "layers", "relative"),
    "fourier": ("Δ log amplitude at π, mean over units", "units", "high"),
    "variance": ("over space, mean over units", "units", "variance"),
}


def _row(
    name: str, what: str, value: str | Cell = "", lowest: str = "", highest: str = ""
) -> TableRow:
    return row(name, [what, value, lowest, highest])


def _mean_row(name: str, what: str, where: Sequence[str], numbers: Sequence[float]) -> TableRow:
    low, high = (
        f"{where[place]}: {numbers[place]:.3g}"
        for place in (int(np.argmin(numbers)), int(np.argmax(numbers)))
    )
    return _row(name, what, f"{np.mean(numbers):.3g}", low, high)


def _maps(values: Mapping[str, Any]) -> list[TableRow]:
    gated = f", {len(values['gated'])} gated" if values["gated"] else ""
    return [_row("maps", f"{len(values['layers'])} layers{gated}")]


def _cka(values: Mapping[str, Any]) -> list[TableRow]:
    pairs = {
        f"{a} / {b}": similarity
        for a, line in zip(values["rows"], values["similarity"], strict=True)
        for b, similarity in zip(values["columns"], line, strict=True)
        if a != b
    }
    what = "similarity, mean over pairs of units"
    return [_mean_row("cka", what, [*pairs], [*pairs.values()])] if pairs else []


def _masking(values: Mapping[str, Any]) -> list[TableRow]:
    whole = {"nothing": values["unmasked"]}
    if values["no_positions"] is not None:
        whole["position embeddings"] = values["no_positions"]
    for part in ("content", "position"):
        for k, accuracy in values[f"{part}_masked"].items():
            whole[f"{part} of {plural(int(k), 'layer')}"] = accuracy
    return [
        _row("masking", f"top-1 without {what}", f"{100 * accuracy:.1f} %")
        for what, accuracy in whole.items()
    ]


def _lesion(values: Mapping[str, Any]) -> list[TableRow]:
    rows = [_row("lesion", "top-1, intact", f"{100 * values['intact']:.1f} %")]
    if values["units"]:
        points = [100 * lost for lost in values["lost"]]
        rows.append(_mean_row("lesion", "points lost, mean over units", values["units"], points))
    return rows


def _relevance(values: Mapping[str, Any]) -> list[TableRow]:
    rows = []
    for method in values["methods"]:
        for curve in ("deletion", "insertion"):
            gain, error = (values[curve][method][key] for key in ("gain", "error"))
            beyond = "" if error is None else f" ± {100 * error:.1f}"
            what = f"{method}, {curve}: points better than random order"
            rows.append(_row("relevance", what, f"{100 * gain:.1f}{beyond}"))
    return rows


def _hessian(values: Mapping[str, Any]) -> list[TableRow]:
    ape = "none" if values["ape"] is None else f"{values['ape']:.3g}"
    batches = f"{values['num_batches']} batches"
    return [
        _row("hessian", f"NEP, share below 0, {batches}", f"{100 * values['nep']:.1f} %"),
        _row("hessian", f"APE, mean of the positive, {batches}", ape, "", values["note"]),
    ]


def _density(values: Mapping[str, Any]) -> list[TableRow]:
    trace, error = values["trace"], values["trace_error"]
    return [_row("density", "trace of the Hessian", f"{trace:.4g} ± {error:.2g}")]


def _landscape(values: Mapping[str, Any]) -> list[TableRow]:
    moved = f"{values['num_moved']:,} of {values['num_weights']:,} weights moved"
    return [_row("landscape", f"{values['along']}; {moved}")]


def _trajectory(values: Mapping[str, Any]) -> list[TableRow]:
    epochs = [f"epoch {epoch}" for epoch in values["epochs"]]
    degrees = [57.29578 * angle for angle in values["angle"]]
    what = "angle to the straight way in degrees, mean over epochs"
    return [_mean_row("trajectory", what, epochs, degrees)]


_OTHERS: dict[str, Callable[[Mapping[str, Any]], list[TableRow]]] = {
    "maps": _maps,
    "cka": _cka,
    "masking": _masking,
    "lesion": _lesion,
    "relevance": _relevance,
    "hessian": _hessian,
    "density": _density,
    "landscape": _landscape,
    "trajectory": _trajectory,
}
