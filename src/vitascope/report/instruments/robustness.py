"""Figures of robustness: occlusion, attacks, noise, corruptions and calibration of the models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat, Lines, Series, Style
from vitascope.record import Record
from vitascope.report.figures.scale import count
from vitascope.report.instruments.instrument import Instrument, Seen, table_row
from vitascope.report.instruments.per_layer import sentence
from vitascope.report.instruments.robustness_readings import (
    READINGS,
    chance,
    low_and_high,
    percent,
    robustness_numbers,
)
from vitascope.report.tables.table import Cell, TableRow


def _reading(models: Sequence[Seen]) -> str:
    """One model's sentence; of several, each one's numbers in one."""
    first = models[0].record
    if len(models) == 1:
        return READINGS[first.kind](first)
    if first.kind == "calibration":
        parts = [f"{seen.label} {percent(seen.values['ece'])}" for seen in models]
        return f"Expected calibration error: {', '.join(parts)}."
    if first.kind == "corruption":
        parts = [f"{seen.label} {percent(seen.values['mean'])}" for seen in models]
        return f"Top-1 over all corruptions: {', '.join(parts)} ({chance(first)})."
    sides = [low_and_high(seen.record) for seen in models] if first.kind == "frequency" else []
    if sides and all(sides):
        shown = [(percent(low), percent(high)) for low, high in filter(None, sides)]
        parts = [
            f"{s.label} {low} and {high}" for s, (low, high) in zip(models, shown, strict=True)
        ]
        return f"Top-1 with noise up to 0.5 π and above: {', '.join(parts)} ({chance(first)})."
    ends = [(seen.label, seen.values["clean"], min(seen.values["accuracy"])) for seen in models]
    parts = [f"{name} from {percent(clean)} to {percent(worst)}" for name, clean, worst in ends]
    return f"Top-1 falls at worst: {', '.join(parts)} ({chance(first)})."


def _curves(
    models: Sequence[Seen],
    at: Callable[[Seen], Sequence[float]],
    begin: float | None,
    x_label: str,
    **about: Any,
) -> Figure:
    """Accuracy against a strength; the images as they are stand at ``begin``."""
    series = []
    for seen in models:
        points = sorted(zip(at(seen), seen.values["accuracy"], strict=True))
        if begin is not None and begin not in [x for x, _ in points]:
            points.insert(0, (begin, seen.values["clean"]))
        strengths = [float(x) for x, _ in points]
        series.append(seen.line(strengths, [100 * float(y) for _, y in points]))
    levels = ((f"clean, {models[0].label}", 100 * float(models[0].values["clean"])),)
    panel = Lines(
        x_label=x_label,
        y_label="top-1 accuracy (%)",
        series=tuple(series),
        floor=0.0,
        ceiling=100.0,
        include=(0.0,),
        marks=True,
        levels=levels if begin is None and len(models) == 1 else (),
    )
    return Figure(reading=_reading(models), panels=(panel,), **about)


def occlusion(models: Sequence[Seen]) -> Figure:
    """Accuracy against the hidden share of each side."""
    return _curves(
        models,
        lambda s: [100 * size for size in s.values["sizes"]],
        0.0,
        f"hidden centre (% of side, {models[0].values['fill']})",
        name="occlusion",
        title="Accuracy with the centre hidden",
        definition="A box in the centre of the image is filled; accuracy on what is left.",
    )


def attack(models: Sequence[Seen]) -> Figure:
    """Accuracy against epsilon, under an adversarial attack."""
    kind = models[0].record.kind
    steps = {"fgsm": "one step", "pgd": f"{models[0].values['steps']} steps"}[kind]
    return _curves(
        models,
        lambda s: [255 * epsilon for epsilon in s.values["epsilons"]],
        0.0,
        "ε (1/255 of the pixel range)",
        name=kind,
        title=f"Adversarial attack: {kind.upper()}, {steps}",
        definition="Pixels moved by at most ε along the sign of the loss's gradient.",
    )


def frequency(models: Sequence[Seen]) -> Figure:
    """Accuracy against the centre frequency of the noise."""
    values = models[0].values
    return _curves(
        models,
        lambda s: s.values["frequencies"],
        None,
        "radial frequency of the noise (π)",
        name="frequency",
        title="Accuracy under noise of one frequency",
        definition=f"Noise within a window of {values['window']:g} π and rms {values['rms']:g} of "
        "the pixel range is added (Park & Kim, Fig. 2b).",
    )


def corruption(models: Sequence[Seen]) -> Figure:
    """One row per corruption; one column per severity, or per model where there are several."""
    names = models[0].values["corruptions"]
    rows = tuple(name.replace("_", " ") for name in names)
    if len(models) == 1:
        found = 100 * np.asarray(models[0].record.arrays["accuracy"], float)
        values = np.column_stack([found, found.mean(1)])
        columns = (*(f"severity {s}" for s in models[0].values["severities"]), "mean")
    else:
        columns = tuple(seen.label for seen in models)
        values = np.array(
            [
                [100 * seen.values["by_corruption"].get(name, np.nan) for seen in models]
                for name in names
            ]
        )
    panel = Heat(rows=rows, columns=columns, values=values, label="top-1 accuracy (%)")
    return Figure(
        name="corruption",
        title="Accuracy on corrupted images",
        reading=_reading(models),
        panels=(panel,),
        how="Top-1 accuracy in percent" + ("." if len(models) == 1 else ", mean over severities."),
        definition="The 15 corruptions of CIFAR-C and ImageNet-C (Hendrycks & Dietterich 2019).",
    )


def calibration(models: Sequence[Seen]) -> Figure:
    """Accuracy against confidence."""
    figure = reliability(models, [seen.values for seen in models], _reading(models))
    scaling = models[0].values.get("scaling")
    return figure if len(models) > 1 or scaling is None else _scaled(figure, models[0], scaling)


def _scaled(figure: Figure, seen: Seen, scaling: Mapping[str, Any]) -> Figure:
    """One model's figure, with a second panel after temperature scaling."""
    before, after = scaling["before"], scaling["after"]
    second = reliability([seen], [after], "").panels[0]
    words = f"temperature {scaling['temperature']:.2f}"
    scores = [f"ECE {100 * before['ece']:.1f} → {100 * after['ece']:.1f} %"]
    scores += [
        f"{n} {before[k]:.2f} → {after[k]:.2f}" for n, k in (("NLL", "nll"), ("Brier", "brier"))
    ]
    how = f"{figure.how} The {words}, fitted on {count(scaling['num_fitted'])} images, changes on "
    how += f"{count(after['num_images'])} others: {', '.join(scores)}."
    panels = (replace(figure.panels[0], title="As it is"), replace(second, title=sentence(words)))
    return replace(figure, panels=panels, how=how)


def reliability(models: Sequence[Seen], bins: Sequence[Mapping[str, Any]], reading: str) -> Figure:
    """Accuracy against confidence, from each model's bins (count, confidence, accuracy)."""
    series = []
    for seen, binned in zip(models, bins, strict=True):
        there = np.asarray(binned["bin_count"]) > 0
        x, y = (
            100 * np.asarray(binned[f"bin_{name}"], float)[there]
            for name in ("confidence", "accuracy")
        )
        ends: dict[str, Any] = {}
        if "bin_low" in binned and len(models) == 1:
            for side in ("low", "high"):
                ends[side] = (100 * np.asarray(binned[f"bin_{side}"], float)[there]).tolist()
        series.append(seen.line(x.tolist(), y.tolist(), **ends))
    even = Series(label="perfect", x=[0, 100], y=[0, 100], style=Style(6, "circle", "2 3"))
    panel = Lines(
        x_label="confidence (%)",
        y_label="accuracy (%)",
        marks=True,
        series=(*series, even),
        floor=0.0,
        ceiling=100.0,
    )
    return Figure(
        name="calibration",
        title="Calibration: accuracy against confidence",
        reading=reading,
        how="Below the dotted line the model is overconfident."
        + (" Band: 95 % interval of each bin's accuracy." if "low" in ends else ""),
        panels=(panel,),
        definition="ECE = Σ_m |B_m|/N |accuracy(B_m) − confidence(B_m)| over bins of confidence.",
    )


def _robustness_rows(record: Record) -> list[TableRow]:
    """One row per number, with the points of accuracy lost."""
    return [
        table_row(record.kind, setting, Cell(words=value, note=lost))
        for setting, value, lost in robustness_numbers(record)
    ]


ROBUSTNESS: dict[str, Instrument] = {
    "occlusion": Instrument(occlusion, _robustness_rows),
    "fgsm": Instrument(attack, _robustness_rows),
    "pgd": Instrument(attack, _robustness_rows),
    "frequency": Instrument(frequency, _robustness_rows),
    "corruption": Instrument(corruption, _robustness_rows),
    "calibration": Instrument(calibration, _robustness_rows),
}
