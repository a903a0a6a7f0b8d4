"""One sentence under each figure, made from the numbers it shows."""

from collections.abc import Sequence

from vitascope.report.figures.scale import count
from vitascope.report.figures.svg import shorten
from vitascope.report.sections.comparison_record import (
    ComparisonRecord,
    Entry,
    FractionRow,
    Model,
    Trace,
)


def efficiency_reading(comparison: ComparisonRecord) -> str:
    """Who leads with the fewest images and with the most, by how much, and if that is clear."""
    rows = comparison.known_rows
    if not rows:
        return "No accuracy was recorded."
    ends = rows if len(rows) == 1 else [rows[0], rows[-1]]
    return "; ".join(_lead(row, comparison) for row in ends) + "."


def _lead(row: FractionRow, comparison: ComparisonRecord) -> str:
    whole = "all " if row.fraction >= 1 else ""
    start = f"With {whole}{count(row.num_images)} images "
    start = start if row is comparison.rows[0] else start.lower()
    reference = row.entries.get(comparison.reference.name) if comparison.reference else None
    others = [entry for entry in row.entries.values() if entry is not reference]
    best = max(others or list(row.entries.values()), key=lambda entry: entry.mean)
    if reference is None or not others:
        return f"{start}{_name(best.model)} reaches {best.mean:.1f} %"
    gap = best.mean - reference.mean
    where = "above" if gap >= 0 else "below"
    numbers = f"{best.mean:.1f} against {reference.mean:.1f} %"
    middle = f"{_name(best.model)} is {abs(gap):.1f} points {where} {_name(reference.model)}"
    return f"{start}{middle} ({numbers}{_sure(best)})"


def _sure(entry: Entry) -> str:
    words = {"ahead": ", clear of the noise", "behind": ", clear of the noise"}
    return words.get(entry.verdict, ", within noise" if entry.verdict == "within noise" else "")


def cost_reading(comparison: ComparisonRecord) -> str:
    """What the recommended model costs next to the reference, or the next best without one."""
    chosen = comparison.models.get(comparison.values["recommendation"].get("model", ""))
    other = comparison.reference
    if chosen is not None and (other is None or other is chosen) and comparison.rows:
        entries = comparison.rows[-1].entries.values()
        rest = [entry for entry in entries if entry.model is not chosen]
        other = max(rest, key=lambda entry: entry.mean).model if rest else None
    if chosen is None or other is None:
        return ""
    parts = []
    for name, words in (("parameters", "the parameters"), ("multiply_adds", "the multiply-adds")):
        mine, its = getattr(chosen, name), getattr(other, name)
        if mine and its:
            parts.append(f"{mine / its:.2f} times {words}")
    if chosen.images_per_second and other.images_per_second:
        ratio = chosen.images_per_second / other.images_per_second
        parts.append(f"{ratio:.2f} times the training speed")
    if not parts:
        return ""
    joined = ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + parts[-1]
    return f"{_name(chosen)} has {joined} of {_name(other)}."


def learning_reading(comparison: ComparisonRecord) -> str:
    """How soon each model reached what the weakest one ends at, on the most images."""
    for row in reversed(comparison.rows):
        curves = comparison.curves(row.fraction, "top1")
        if curves:
            break
    else:
        return ""
    level = min(curve.mean[-1] for curve in curves)
    reached = sorted(
        (next(e for e, v in zip(c.epochs, c.mean, strict=True) if v >= level), _name(c.model))
        for c in curves
    )[:4]
    said = ", ".join(f"{label} at epoch {epoch:g}" for epoch, label in reached)
    if len(curves) == 1:
        return f"With {count(row.num_images)} images it ends at {level:.1f} %."
    return (
        f"With {count(row.num_images)} images the lowest final accuracy, {level:.1f} %, "
        f"was first reached by {said}."
    )


def trace_reading(traces: Sequence[Trace], what: str) -> str:
    """How the mean went from the first epoch to the last, and which layer moved most."""
    said = []
    for trace in _largest(traces):
        layers = trace.layer_means
        start = sum(layer[0] for layer in layers) / len(layers)
        end = sum(layer[-1] for layer in layers) / len(layers)
        moved = max(range(len(layers)), key=lambda index: abs(layers[index][-1] - layers[index][0]))
        if what == "gates":
            verb = "fell" if end < start else "rose"
            first = f"{_name(trace.model)}'s gates {verb} from {start:.2f} to {end:.2f} on average"
            if max(abs(layer[-1] - layer[0]) for layer in layers) < 0.02:
                said.append(
                    f"{_name(trace.model)}'s gates hardly moved ({start:.2f} to {end:.2f})."
                )
                continue
        else:
            first = f"{_name(trace.model)}'s heads look {end:.2f} patches far on average"
            first += f" ({start:.2f} at the start"
            first += ")" if trace.uniform is None else f", {trace.uniform:.2f} for a uniform head)"
        if len(layers) > 1 and abs(layers[moved][-1] - layers[moved][0]) >= 0.02:
            change = f"{layers[moved][0]:.2f} to {layers[moved][-1]:.2f}"
            first += f"; layer {moved + 1} moved most ({change})"
        said.append(first + ".")
    return " ".join(said)


def _name(model: Model) -> str:
    return shorten(model.label, 40)


def _largest(traces: Sequence[Trace]) -> list[Trace]:
    """The trace on the most images of each of the first three models."""
    last = {trace.model.name: trace for trace in traces}  # sorted by fraction: the last one stays
    return list(last.values())[:3]
