"""The figures of a comparison: accuracy, cost, learning curves, attention over training.

The sentence under each figure is made from the numbers it shows.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure, Lines, Series, head_panels
from vitascope.formatting import count
from vitascope.report.figures.style import Styles
from vitascope.report.figures.svg import shorten
from vitascope.report.sections.comparison_record import (
    ComparisonRecord,
    Entry,
    FractionRow,
    Model,
    Trace,
)

_COSTS = {  # a model's attribute: what the axis says
    "multiply_adds": "multiply-adds per image",
    "images_per_second": "training images per second",
}

_CURVES = {"top1": "Top-1{} (%)", "train_nll": "Training loss"}

_TRACES = {
    "gates": ("Gates over training", "gate"),
    "nonlocality": ("Nonlocality over training", "distance (patches)"),
}

_FEW = 5  # lines that have their bands drawn

_MOST_PANELS = 24  # of single layers in one figure


def comparison_figures(comparison: ComparisonRecord) -> tuple[Figure, ...]:
    """Return the figures that the record has numbers for."""
    figures = [efficiency(comparison), cost(comparison), learning(comparison)]
    figures += [over_training(comparison, quantity) for quantity in _TRACES]
    return tuple(figure for figure in figures if figure.panels)


def efficiency(comparison: ComparisonRecord) -> Figure:
    """Accuracy against the number of training images (ConViT, Fig. 2, left)."""
    rows = comparison.known_rows
    seeds = comparison.num_seeds
    if seeds > 1:
        bands = "Bands" if len(comparison.models) <= _FEW and len(rows) > 1 else "Whiskers"
        how = f"{bands}: 95 % interval of the mean; faint dots: single seeds."
    else:
        how = "One seed per model: the intervals are without the spread over seeds."
    panels: tuple[Lines | Dots, ...] = ()
    if len(rows) > 1:
        panel = _by_images(comparison, rows)
        panels = (panel,)
        how += " Dotted rings: where curves cross." if panel.rings else ""
        crossings = [str(crossing.get("text") or "") for crossing in comparison.crossings]
        how = " ".join([how, *crossings])
    elif rows:
        panels = (_of_one_fraction(comparison, rows[0]),)
    return Figure(
        name="efficiency",
        title="Accuracy against training images" if len(rows) > 1 else "Accuracy",
        reading=efficiency_reading(comparison),
        how=how.strip(),
        panels=panels,
        wide=True,
    )


def _by_images(comparison: ComparisonRecord, rows: list[FractionRow]) -> Lines:
    series, seeds = [], comparison.num_seeds
    for name, model in comparison.models.items():
        measured = [(row.num_images, row.entries[name]) for row in rows if name in row.entries]
        lows, highs = ([getattr(e, end) for _, e in measured] for end in ("low", "high"))
        several = seeds > 1
        series.append(
            Series(
                label=model.label,
                style=model.style,
                x=[images for images, _ in measured],
                y=[entry.mean for _, entry in measured],
                low=None if None in lows else lows,
                high=None if None in highs else highs,
                each=[entry.seeds for _, entry in measured] if several else None,
            )
        )
    return Lines(
        x_label="training images",
        y_label=_accuracy(comparison),
        series=tuple(series),
        x_log=True,
        x_at=tuple(row.num_images for row in rows),
        x_names=tuple(f"{count(row.num_images)}\n{row.share}" for row in rows),
        floor=0.0,
        ceiling=100.0,
        marks=True,
        rings=tuple(_crossings(comparison, rows)),
    )


def _crossings(
    comparison: ComparisonRecord, rows: list[FractionRow]
) -> Iterator[tuple[float, float, str]]:
    """Return where two lines cross, with the sentence about it."""
    for crossing in comparison.crossings:
        name, fraction = crossing["first"], crossing.get("fraction")
        measured = [row for row in rows if name in row.entries]
        for left, right in pairwise(measured):
            if fraction is None or not left.fraction <= fraction <= right.fraction:
                continue
            way = math.log(fraction / left.fraction) / math.log(right.fraction / left.fraction)
            x = left.num_images * (right.num_images / left.num_images) ** way
            low, high = left.entries[name].mean, right.entries[name].mean
            yield x, low + way * (high - low), str(crossing.get("text") or "")
            break


def _accuracy(comparison: ComparisonRecord) -> str:
    reported = comparison.values.get("reported_on") or {}
    return f"{comparison.measured} on the {reported.get('images') or 'test'} images (%)"


def _of_one_fraction(comparison: ComparisonRecord, row: FractionRow) -> Dots:
    """All models on the same images, the best on top."""
    entries = sorted(row.entries.values(), key=lambda entry: -entry.mean)
    series = tuple(
        DotSeries(
            label=entry.model.label, style=entry.model.style, values=[entry.seeds or [entry.mean]]
        )
        for entry in entries
    )
    group = f"{count(row.num_images)} training images"
    return Dots(y_label=_accuracy(comparison), groups=(group,), series=series)


def cost(comparison: ComparisonRecord) -> Figure:
    """Accuracy against multiply-adds and against speed in training, on the most images."""
    rows = comparison.known_rows
    panels = []
    for attribute, axis in _COSTS.items() if rows else ():
        series = []
        for entry in rows[-1].entries.values():
            price = getattr(entry.model, attribute)
            if price is not None:
                series.append(
                    Series(
                        label=entry.model.label,
                        style=entry.model.style,
                        x=[price],
                        y=[entry.mean],
                        low=None if entry.low is None else [entry.low],
                        high=None if entry.high is None else [entry.high],
                    )
                )
        if series:
            panels.append(
                Lines(
                    x_label=axis,
                    y_label=f"{comparison.measured} (%)",
                    x_log=True,
                    series=tuple(series),
                    joined=False,
                    floor=0.0,
                    ceiling=100.0,
                )
            )
    images = f"Accuracy with {count(rows[-1].num_images)} training images." if rows else ""
    whiskers = " Whiskers: 95 % interval."
    return Figure(
        name="cost",
        title="Accuracy against cost",
        reading=cost_reading(comparison),
        how=images + (whiskers if rows else ""),
        panels=tuple(panels),
    )


def learning(comparison: ComparisonRecord) -> Figure:
    """Accuracy and training loss over epochs, one panel per share of the images."""
    panels = []
    chosen = (comparison.values.get("chosen_by") or {}).get("images")
    for quantity, form in _CURVES.items():
        axis = form.format(f" on {chosen} images" if chosen else "")
        drawn = [(row, comparison.curves(row.fraction, quantity)) for row in comparison.rows]
        ends = _ends(seed for _, curves in drawn for c in curves for seed in c.seeds)
        for row, curves in drawn:
            series = tuple(
                Series(
                    label=curve.model.label,
                    style=curve.model.style,
                    x=curve.epochs,
                    y=curve.mean,
                    strands=curve.seeds if len(curve.seeds) > 1 and len(curves) <= _FEW else None,
                )
                for curve in curves
            )
            if series:
                panels.append(
                    Lines(
                        title=_share(row),
                        x_label="epoch",
                        y_label=axis,
                        series=series,
                        floor=0.0,
                        ceiling=100.0 if quantity == "top1" else math.inf,
                        include=ends,
                        marks=False,
                    )
                )
    bands = "; thin: single seeds" if len(comparison.models) <= _FEW else ""
    return Figure(
        name="learning",
        title="Learning curves",
        reading=learning_reading(comparison),
        how=f"Lines: mean over seeds{bands}." if comparison.num_seeds > 1 else "",
        panels=tuple(panels),
    )


def _share(row: FractionRow) -> str:
    return f"{row.share} ({count(row.num_images)} images)"


def over_training(comparison: ComparisonRecord, quantity: str) -> Figure:
    """``gates`` or ``nonlocality`` over epochs.

    A panel per layer with a line per head; where there are too many layers for that, a panel per
    model and share with a line per layer.
    """
    traces = comparison.traces(quantity)
    title, axis = _TRACES[quantity]
    ends = _ends(trace.values.ravel().tolist() for trace in traces)
    single = sum(len(trace.layers) for trace in traces) <= _MOST_PANELS
    panels: list[Lines] = []
    for trace in traces:
        row = comparison.row(trace.fraction)
        share = _share(row) if row else f"{100 * trace.fraction:.3g} % of the images"
        name = f"{trace.model.label}, {share}"
        shown: dict[str, Any] = {
            "x_label": "epoch",
            "y_label": axis,
            "floor": 0.0,
            "include": ends,
            "marks": False,
            "ceiling": 1.0 if quantity == "gates" else math.inf,
            "levels": (("uniform head", trace.uniform),) if trace.uniform is not None else (),
        }
        if single:
            titles = [f"layer {index + 1}, {name}" for index in range(len(trace.layers))]
            for panel in head_panels(trace.epochs, trace.values, titles, **shown):
                styled = tuple(replace(line, style=trace.model.style) for line in panel.series)
                panels.append(replace(panel, series=styled))
        else:
            panels.append(Lines(title=name, series=tuple(_layers(trace)), **shown))
    meaning = {
        "gates": "1 is position alone, 0 is content alone.",
        "nonlocality": "Dashed: a head with uniform attention.",
    }[quantity]
    lines = (
        "Thin lines: single heads; thick: their mean."
        if single
        else ("Lines: mean of the heads of a layer.")
    )
    return Figure(
        name=quantity,
        title=title,
        reading=trace_reading(traces, quantity),
        how=f"{meaning} {lines}",
        panels=tuple(panels),
    )


def _layers(trace: Trace) -> Iterator[Series]:
    styles = Styles()
    for index, means in enumerate(trace.layer_means):
        heads = trace.values[:, index]
        heads = heads[:, np.isfinite(heads).all(0)]
        low, high = (heads.min(1).tolist(), heads.max(1).tolist()) if heads.size else (None, None)
        label = f"layer {index + 1}"
        yield Series(
            label=label, x=trace.epochs, y=means, low=low, high=high, style=styles.of(label)
        )


def _ends(parts: Iterable[Iterable[float]]) -> tuple[float, ...]:
    """The lowest and highest value of all panels, which share a scale."""
    finite = [value for part in parts for value in part if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else ()


def efficiency_reading(comparison: ComparisonRecord) -> str:
    """Describe who leads with the fewest images and with the most, and by how much."""
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
    endings = {"within noise": ", no measurable difference"}
    return endings.get(entry.verdict, "")


def cost_reading(comparison: ComparisonRecord) -> str:
    """Describe what the recommended model costs next to the reference or the next best."""
    chosen = comparison.models.get(comparison.values["recommendation"].get("model", ""))
    other = comparison.reference
    if chosen is not None and (other is None or other is chosen) and comparison.rows:
        entries = comparison.rows[-1].entries.values()
        rest = [entry for entry in entries if entry.model is not chosen]
        other = max(rest, key=lambda entry: entry.mean).model if rest else None
    if chosen is None or other is None:
        return ""
    parts = []
    for name, noun in (("parameters", "the parameters"), ("multiply_adds", "the multiply-adds")):
        mine, its = getattr(chosen, name), getattr(other, name)
        if mine and its:
            parts.append(f"{mine / its:.2f} times {noun}")
    if chosen.images_per_second and other.images_per_second:
        ratio = chosen.images_per_second / other.images_per_second
        parts.append(f"{ratio:.2f} times the training speed")
    if not parts:
        return ""
    joined = ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + parts[-1]
    return f"{_name(chosen)} has {joined} of {_name(other)}."


def learning_reading(comparison: ComparisonRecord) -> str:
    """Return how soon each model reached what the weakest one ends at, on the most images."""
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
    epochs = ", ".join(f"{label} at epoch {epoch:g}" for epoch, label in reached)
    if len(curves) == 1:
        return f"With {count(row.num_images)} images it ends at {level:.1f} %."
    return (
        f"With {count(row.num_images)} images the lowest final accuracy, {level:.1f} %, "
        f"was first reached by {epochs}."
    )


def trace_reading(traces: Sequence[Trace], quantity: str) -> str:
    """Return how the mean went from the first epoch to the last, and which layer moved most."""
    sentences = []
    for trace in _largest(traces):
        layers = trace.layer_means
        start = sum(layer[0] for layer in layers) / len(layers)
        end = sum(layer[-1] for layer in layers) / len(layers)
        moved = max(range(len(layers)), key=lambda index: abs(layers[index][-1] - layers[index][0]))
        if quantity == "gates":
            verb = "fell" if end < start else "rose"
            first = f"{_name(trace.model)}'s gates {verb} from {start:.2f} to {end:.2f} on average"
            if max(abs(layer[-1] - layer[0]) for layer in layers) < 0.02:
                sentences.append(
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
        sentences.append(first + ".")
    return " ".join(sentences)


def _name(model: Model) -> str:
    return shorten(model.label, 40)


def _largest(traces: Sequence[Trace]) -> list[Trace]:
    """The trace on the most images of each of the first three models."""
    last = {trace.model.name: trace for trace in traces}  # sorted by fraction: the last one stays
    return list(last.values())[:3]
