"""Figures, table rows and sentences of robustness and calibration.

A table has one row per number of a record, and a sentence says what the record means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat, Lines, Series, Style
from vitascope.formatting import count, percent, sentence
from vitascope.measure.instrument import ModelRecord, table_row
from vitascope.record import Record
from vitascope.table import Cell, TableRow


def chance(record: Record) -> str:
    """Return how far chance alone may move an accuracy on that many images."""
    images = record.values["num_images"]
    return f"{images} images, standard error of an accuracy up to {50 / sqrt(images):.1f} points"


def _row(record: Record, setting: str, value: str, lost: str = "") -> TableRow:
    """A number of a record, and the points of accuracy lost there."""
    return table_row(record.kind, setting, Cell(text=value, note=lost))


def _accuracy_rows(record: Record, settings: Sequence[str], clean: str) -> list[TableRow]:
    """The accuracy on the images as they are, and in each setting."""
    before = record.values["clean"]
    return [
        _row(record, f"top-1, {clean}", percent(before)),
        *(
            _row(record, f"top-1, {setting}", percent(after), f"{100 * (before - after):.1f}")
            for setting, after in zip(settings, record.values["accuracy"], strict=True)
        ),
    ]


def _at_worst(models: Sequence[ModelRecord]) -> str:
    """Return how far the accuracy of several models falls."""
    parts = [
        f"{model.label} from {percent(model.values['clean'])} to "
        f"{percent(min(model.values['accuracy']))}"
        for model in models
    ]
    return f"Top-1 falls at worst: {', '.join(parts)} ({chance(models[0].record)})."


def _curves(
    models: Sequence[ModelRecord],
    at: Callable[[ModelRecord], Sequence[float]],
    begin: float | None,
    x_label: str,
    **about: Any,
) -> Figure:
    """Accuracy against a strength; the images as they are stand at ``begin``."""
    series = []
    for model in models:
        points = sorted(zip(at(model), model.values["accuracy"], strict=True))
        if begin is not None and begin not in [x for x, _ in points]:
            points.insert(0, (begin, model.values["clean"]))
        strengths = [float(x) for x, _ in points]
        series.append(model.line(strengths, [100 * float(y) for _, y in points]))
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
    return Figure(panels=(panel,), **about)


def occlusion(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy against the hidden share of each side."""
    return _curves(
        models,
        lambda model: [100 * size for size in model.values["sizes"]],
        0.0,
        f"hidden centre (% of side, {models[0].values['fill']})",
        name="occlusion",
        title="Accuracy with the centre hidden",
        reading=occlusion_sentence(models[0].record) if len(models) == 1 else _at_worst(models),
        definition="A box in the centre of the image is filled; accuracy on what is left.",
    )


def occlusion_rows(record: Record) -> list[TableRow]:
    """The accuracy with a box of each size."""
    fill = record.values["fill"]
    sizes = [f"centre {100 * s:g} % of each side {fill}" for s in record.values["sizes"]]
    return _accuracy_rows(record, sizes, "nothing hidden")


def occlusion_sentence(record: Record) -> str:
    """The accuracy with about half of each side hidden."""
    values = record.values
    index = int(np.argmin(np.abs(np.asarray(values["sizes"]) - 0.5)))
    size, left = values["sizes"][index], values["accuracy"][index]
    return (
        f"With the central {100 * size:g} % of each side {values['fill']} "
        f"({100 * size**2:.0f} % of the area) top-1 goes from {percent(values['clean'])} to "
        f"{percent(left)} ({chance(record)})."
    )


def attack(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy against epsilon, under FGSM or PGD."""
    kind = models[0].record.kind
    steps = {"fgsm": "one step", "pgd": f"{models[0].values['steps']} steps"}[kind]
    return _curves(
        models,
        lambda model: [255 * epsilon for epsilon in model.values["epsilons"]],
        0.0,
        "ε (1/255 of the pixel range)",
        name=kind,
        title=f"Adversarial attack: {kind.upper()}, {steps}",
        reading=attack_sentence(models[0].record) if len(models) == 1 else _at_worst(models),
        definition="Pixels moved by at most ε along the sign of the loss's gradient.",
    )


def epsilon_words(epsilon: float) -> str:
    """In steps of 8 bits where it is a whole number of them.

    >>> epsilon_words(8 / 255), epsilon_words(0.1)
    ('8/255', '0.1')
    """
    steps = 255 * epsilon
    return f"{round(steps)}/255" if abs(steps - round(steps)) < 1e-6 else f"{epsilon:.3g}"


def attack_words(record: Record) -> str:
    """Name the attack and the labels that it is against."""
    values = record.values
    if record.kind == "fgsm":
        return f"FGSM against the {values['against']}"
    start = "a random start" if values["random_start"] else "the image"
    return f"PGD of {values['steps']} steps from {start} against the {values['against']}"


def attack_rows(record: Record) -> list[TableRow]:
    """The accuracy under attacks of each strength."""
    values = record.values
    epsilons = [f"ε {epsilon_words(e)} of the pixel range" for e in values["epsilons"]]
    rows = _accuracy_rows(record, epsilons, f"no attack ({attack_words(record)})")
    if values.get("num_stuck"):
        rows.append(_row(record, "images without any gradient", str(values["num_stuck"])))
    return rows


def attack_sentence(record: Record) -> str:
    """The accuracy under the strongest attack, and by which one half of it is lost."""
    values = record.values
    order = np.argsort(values["epsilons"])
    epsilons = [values["epsilons"][i] for i in order]
    accuracy = [values["accuracy"][i] for i in order]
    half = next(
        (e for e, a in zip(epsilons, accuracy, strict=True) if a <= values["clean"] / 2), None
    )
    last = f"ε = {epsilon_words(epsilons[-1])}"
    end = f"half of it is not lost even at {last}"
    if half is not None:
        end = f"half of it is lost by ε = {epsilon_words(half)}"
    return (
        f"{attack_words(record)} changes top-1 from {percent(values['clean'])} to "
        f"{percent(accuracy[-1])} at {last}; {end} ({chance(record)})."
    )


def frequency(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy against the centre frequency of the noise."""
    values = models[0].values
    return _curves(
        models,
        lambda model: model.values["frequencies"],
        None,
        "radial frequency of the noise (π)",
        name="frequency",
        title="Accuracy under noise of one frequency",
        reading=frequency_sentence(models[0].record) if len(models) == 1 else _sides(models),
        definition=f"Noise within a window of {values['window']:g} π and rms {values['rms']:g} of "
        "the pixel range is added (Park & Kim, Fig. 2b).",
    )


def frequency_rows(record: Record) -> list[TableRow]:
    """The accuracy with noise of each frequency."""
    values = record.values
    bands = [f"noise at {f:g} π ± {values['window'] / 2:g} π" for f in values["frequencies"]]
    clean = f"no noise (noise: rms {values['rms']:g} of the pixel range)"
    return _accuracy_rows(record, bands, clean)


def low_and_high(record: Record) -> tuple[float, float] | None:
    """Mean accuracy under noise up to 0.5 pi, and above; None if one of them was not tried."""
    pairs = list(zip(record.values["frequencies"], record.values["accuracy"], strict=True))
    low, high = ([a for f, a in pairs if (f > 0.5) == above] for above in (False, True))
    return (float(np.mean(low)), float(np.mean(high))) if low and high else None


def frequency_sentence(record: Record) -> str:
    """Return at which frequencies noise hurts most and least."""
    values = record.values
    accuracy, at = values["accuracy"], values["frequencies"]
    worst, best = int(np.argmin(accuracy)), int(np.argmax(accuracy))
    sides = low_and_high(record)
    start = f"Noise of rms {values['rms']:g} hurts most at {at[worst]:g} π "
    start += f"({percent(values['clean'])} to {percent(accuracy[worst])}) and least at "
    start += f"{at[best]:g} π ({percent(accuracy[best])})"
    if sides is not None:
        start += f"; mean up to 0.5 π {percent(sides[0])}, above {percent(sides[1])}"
    return f"{start} ({chance(record)})."


def _sides(models: Sequence[ModelRecord]) -> str:
    """Return the accuracy of several models under noise of low and of high frequencies."""
    sides = [low_and_high(model.record) for model in models]
    if None in sides:
        return _at_worst(models)
    parts = [
        f"{model.label} {percent(low)} and {percent(high)}"
        for model, (low, high) in zip(models, filter(None, sides), strict=True)
    ]
    noise = "Top-1 with noise up to 0.5 π and above"
    return f"{noise}: {', '.join(parts)} ({chance(models[0].record)})."


def corruption(models: Sequence[ModelRecord]) -> Figure:
    """One row per corruption; one column per severity, or per model where there are several."""
    names = models[0].values["corruptions"]
    if len(models) == 1:
        reading = corruption_sentence(models[0].record)
    else:
        parts = [f"{model.label} {percent(model.values['mean'])}" for model in models]
        reading = f"Top-1 over all corruptions: {', '.join(parts)} ({chance(models[0].record)})."
    rows = tuple(name.replace("_", " ") for name in names)
    if len(models) == 1:
        accuracy = 100 * np.asarray(models[0].record.arrays["accuracy"], float)
        values = np.column_stack([accuracy, accuracy.mean(1)])
        columns = (*(f"severity {s}" for s in models[0].values["severities"]), "mean")
    else:
        columns = tuple(model.label for model in models)
        values = np.array(
            [
                [100 * model.values["by_corruption"].get(name, np.nan) for model in models]
                for name in names
            ]
        )
    panel = Heat(rows=rows, columns=columns, values=values, label="top-1 accuracy (%)")
    return Figure(
        name="corruption",
        title="Accuracy on corrupted images",
        reading=reading,
        panels=(panel,),
        how="Top-1 accuracy in percent" + ("." if len(models) == 1 else ", mean over severities."),
        definition="The 15 corruptions of CIFAR-C and ImageNet-C (Hendrycks & Dietterich 2019).",
    )


def severity_words(severities: Sequence[int]) -> str:
    """One, some or all of the severities.

    >>> severity_words([3]), severity_words([1, 5]), severity_words([1, 2, 3])
    ('severity 3', 'severities 1, 5', 'severities 1 to 3')
    """
    first, last, count = min(severities), max(severities), len(severities)
    if count == 1:
        return f"severity {first}"
    if count > 2 and last - first + 1 == count:
        return f"severities {first} to {last}"
    return "severities " + ", ".join(map(str, severities))


def corruption_rows(record: Record) -> list[TableRow]:
    """The mean accuracy, that under each corruption, and mCE."""
    values, clean = record.values, record.values["clean"]
    levels = severity_words(values["severities"])
    rows = [] if clean is None else [_row(record, "top-1, clean", percent(clean))]
    how = (
        "published images" if values["constants"] == "given" else f"{values['constants']} constants"
    )
    named = {f"mean of {len(values['corruptions'])} ({how})": values["mean"]}
    named |= values["by_corruption"]
    for name, accuracy in named.items():
        lost = "" if clean is None else f"{100 * (clean - accuracy):.1f}"
        rows.append(_row(record, f"top-1, {name}, {levels}", percent(accuracy), lost))
    if values["mce"] is not None:
        rows.append(_row(record, "mCE, AlexNet is 100", f"{values['mce']:.1f} %"))
    return rows


def corruption_sentence(record: Record) -> str:
    """The mean accuracy, and the worst and the best corruption."""
    values = record.values
    by = values["by_corruption"]
    worst, best = min(by, key=by.__getitem__), max(by, key=by.__getitem__)
    start = "" if values["clean"] is None else f", clean {percent(values['clean'])}"
    return (
        f"Over {len(by)} corruptions, {severity_words(values['severities'])}, top-1 is "
        f"{percent(values['mean'])} on "
        f"average{start}; worst is {worst} ({percent(by[worst])}), best {best} "
        f"({percent(by[best])}) ({chance(record)})."
    )


def calibration(models: Sequence[ModelRecord]) -> Figure:
    """Accuracy against confidence."""
    reading = calibration_sentence(models[0].record)
    if len(models) > 1:
        parts = [f"{model.label} {percent(model.values['ece'])}" for model in models]
        reading = f"Expected calibration error: {', '.join(parts)}."
    figure = reliability(models, [model.values for model in models], reading)
    scaling = models[0].values.get("scaling")
    return figure if len(models) > 1 or scaling is None else _scaled(figure, models[0], scaling)


def _scaled(figure: Figure, model: ModelRecord, scaling: Mapping[str, Any]) -> Figure:
    """One model's figure, with a second panel after temperature scaling."""
    before, after = scaling["before"], scaling["after"]
    second = reliability([model], [after], "").panels[0]
    text = f"temperature {scaling['temperature']:.2f}"
    scores = [f"ECE {100 * before['ece']:.1f} → {100 * after['ece']:.1f} %"]
    scores += [
        f"{n} {before[k]:.2f} → {after[k]:.2f}" for n, k in (("NLL", "nll"), ("Brier", "brier"))
    ]
    how = f"{figure.how} The {text}, fitted on {count(scaling['num_fitted'])} images, changes on "
    how += f"{count(after['num_images'])} others: {', '.join(scores)}."
    panels = (replace(figure.panels[0], title="As it is"), replace(second, title=sentence(text)))
    return replace(figure, panels=panels, how=how)


def reliability(
    models: Sequence[ModelRecord], bins: Sequence[Mapping[str, Any]], reading: str
) -> Figure:
    """Accuracy against confidence, from each model's bins (count, confidence, accuracy)."""
    series = []
    for model, binned in zip(models, bins, strict=True):
        there = np.asarray(binned["bin_count"]) > 0
        x, y = (
            100 * np.asarray(binned[f"bin_{name}"], float)[there]
            for name in ("confidence", "accuracy")
        )
        ends: dict[str, Any] = {}
        if "bin_low" in binned and len(models) == 1:
            for side in ("low", "high"):
                ends[side] = (100 * np.asarray(binned[f"bin_{side}"], float)[there]).tolist()
        series.append(model.line(x.tolist(), y.tolist(), **ends))
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


def with_error(values: Mapping[str, Any], key: str, error: str) -> str:
    """A fraction in percent, with its standard error where it is known.

    >>> (
    ...     with_error({"ece": 0.05, "ece_error": 0.01}, "ece", "ece_error"),
    ...     with_error({"ece": 0.05}, "ece", "ece_error"),
    ... )
    ('5.00 ± 1.00 %', '5.00 %')
    """
    spread = values.get(error)
    return f"{100 * values[key]:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}") + " %"


def calibration_rows(record: Record) -> list[TableRow]:
    """Accuracy and the calibration errors, and what temperature scaling changes."""
    values, scaling = record.values, record.values["scaling"]
    bins = f"{len(values['bin_count'])} bins"
    numbers = {"top-1": percent(values["top1"])}
    if values["top5"] is not None:
        numbers["top-5"] = percent(values["top5"])
    for label, key, error in (
        ("ECE", "ece", "ece_error"),
        ("ECE of bins with equally many images", "adaptive_ece", "adaptive_error"),
        ("ECE of each class's probability, mean", "class_wise_ece", "class_wise_error"),
    ):
        if key in values:  # the first records have only the first
            numbers[f"{label}, {bins}"] = with_error(values, key, error)
    numbers["NLL"] = f"{values['nll']:.4f} nats"
    numbers["Brier, 0 to 2"] = f"{values['brier']:.4f}"
    if scaling is not None:
        fitted = f"temperature, fitted on {scaling['num_fitted']} images"
        numbers[fitted] = f"{scaling['temperature']:.3f}"
        rest = f"the other {scaling['before']['num_images']} images"
        for when in ("before", "after"):
            numbers[f"ECE of {rest}, {when}"] = f"{100 * scaling[when]['ece']:.2f} %"
        for when in ("before", "after"):
            numbers[f"NLL of {rest}, {when}"] = f"{scaling[when]['nll']:.4f} nats"
    return [_row(record, setting, value) for setting, value in numbers.items()]


def calibration_sentence(record: Record) -> str:
    """Return how overconfident the model is, and what a temperature would change."""
    values, scaling = record.values, record.values["scaling"]
    counts = np.asarray(values["bin_count"])
    gap = float(counts @ np.asarray(values["bin_confidence"]) / counts.sum() - values["top1"])
    how = f"overconfident by {100 * gap:.1f}" if gap > 0 else f"underconfident by {-100 * gap:.1f}"
    start = f"On average the model is {how} points (ECE {100 * values['ece']:.1f} %)"
    if scaling is None:
        return f"{start}."
    change = f"{100 * scaling['before']['ece']:.1f} to {100 * scaling['after']['ece']:.1f} %"
    return (
        f"{start}; a temperature of {scaling['temperature']:.2f}, fitted on "
        f"{scaling['num_fitted']} images, changes the ECE of the other "
        f"{scaling['before']['num_images']} from {change}."
    )
