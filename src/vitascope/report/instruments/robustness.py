"""Figures of robustness: occlusion, attacks, noise, corruptions and calibration of the models.

In words each measure has one line per number, and one sentence per record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat, Lines, Series, Style
from vitascope.record import Record
from vitascope.report.figures.axes import count
from vitascope.report.instruments.instrument import Instrument, Seen, table_row
from vitascope.report.instruments.per_layer import sentence
from vitascope.report.tables.table import Cell, TableRow

Values = Mapping[str, Any]

Number = tuple[str, str, str]  # setting; value with its unit; points of accuracy lost there


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


def robustness_numbers(record: Record) -> list[Number]:
    """Every number of a record."""
    return _NUMBERS[record.kind](record)


def epsilon_words(epsilon: float) -> str:
    """In steps of 8 bits where it is a whole number of them.

    >>> epsilon_words(8 / 255), epsilon_words(0.1)
    ('8/255', '0.1')
    """
    steps = 255 * epsilon
    return f"{round(steps)}/255" if abs(steps - round(steps)) < 1e-6 else f"{epsilon:.3g}"


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


def percent(share: float) -> str:
    """A fraction in percent."""
    return f"{100 * share:.1f} %"


def _accuracies(values: Values, labels: list[str], clean: str) -> list[Number]:
    first = [("top-1, " + clean, percent(values["clean"]), "")]
    pairs = zip(labels, values["accuracy"], strict=True)
    return first + [
        (f"top-1, {word}", percent(one), f"{100 * (values['clean'] - one):.1f}")
        for word, one in pairs
    ]


def _occlusion(record: Record) -> list[Number]:
    values = record.values
    labels = [f"centre {100 * s:g} % of each side {values['fill']}" for s in values["sizes"]]
    return _accuracies(values, labels, "nothing hidden")


def attack_words(record: Record) -> str:
    """Which attack, and against which labels."""
    values = record.values
    if record.kind == "fgsm":
        return f"FGSM against the {values['against']}"
    start = "a random start" if values["random_start"] else "the image"
    return f"PGD of {values['steps']} steps from {start} against the {values['against']}"


def _attack(record: Record) -> list[Number]:
    values = record.values
    labels = [f"ε {epsilon_words(e)} of the pixel range" for e in values["epsilons"]]
    numbers = _accuracies(values, labels, f"no attack ({attack_words(record)})")
    if values.get("num_stuck"):
        numbers.append(("images without any gradient", str(values["num_stuck"]), ""))
    return numbers


def _frequency(record: Record) -> list[Number]:
    values = record.values
    labels = [f"noise at {f:g} π ± {values['window'] / 2:g} π" for f in values["frequencies"]]
    return _accuracies(
        values, labels, f"no noise (noise: rms {values['rms']:g} of the pixel range)"
    )


def _corruption(record: Record) -> list[Number]:
    values, clean = record.values, record.values["clean"]
    levels = severity_words(values["severities"])
    numbers: list[Number] = [] if clean is None else [("top-1, clean", percent(clean), "")]
    how = (
        "published images" if values["constants"] == "given" else f"{values['constants']} constants"
    )
    named = {f"mean of {len(values['corruptions'])} ({how})": values["mean"]}
    named |= values["by_corruption"]
    for name, accuracy in named.items():
        lost = "" if clean is None else f"{100 * (clean - accuracy):.1f}"
        numbers.append((f"top-1, {name}, {levels}", percent(accuracy), lost))
    if values["mce"] is not None:
        numbers.append(("mCE, AlexNet is 100", f"{values['mce']:.1f} %", ""))
    return numbers


def _calibration(record: Record) -> list[Number]:
    values, scaling = record.values, record.values["scaling"]
    numbers = [("top-1", percent(values["top1"]), "")]
    numbers += [] if values["top5"] is None else [("top-5", percent(values["top5"]), "")]
    numbers += [
        (f"ECE, {len(values['bin_count'])} bins", with_error(values, "ece", "ece_error"), ""),
        *(
            (f"{label}, {len(values['bin_count'])} bins", with_error(values, key, error), "")
            for label, key, error in (
                ("ECE of bins with equally many images", "adaptive_ece", "adaptive_error"),
                ("ECE of each class's probability, mean", "class_wise_ece", "class_wise_error"),
            )
            if key in values  # records before them have none
        ),
        ("NLL", f"{values['nll']:.4f} nats", ""),
        ("Brier, 0 to 2", f"{values['brier']:.4f}", ""),
    ]
    if scaling is not None:
        before, after = scaling["before"], scaling["after"]
        rest = f"the other {before['num_images']} images"
        fitted = f"temperature, fitted on {scaling['num_fitted']} images"
        numbers += [
            (fitted, f"{scaling['temperature']:.3f}", ""),
            (f"ECE of {rest}, before", f"{100 * before['ece']:.2f} %", ""),
            (f"ECE of {rest}, after", f"{100 * after['ece']:.2f} %", ""),
            (f"NLL of {rest}, before", f"{before['nll']:.4f} nats", ""),
            (f"NLL of {rest}, after", f"{after['nll']:.4f} nats", ""),
        ]
    return numbers


_NUMBERS: dict[str, Callable[[Record], list[Number]]] = {
    "occlusion": _occlusion,
    "fgsm": _attack,
    "pgd": _attack,
    "frequency": _frequency,
    "corruption": _corruption,
    "calibration": _calibration,
}


def chance(record: Record) -> str:
    """Return how far chance alone may move an accuracy on that many images."""
    count = record.values["num_images"]
    return f"{count} images, standard error of an accuracy up to {50 / sqrt(count):.1f} points"


def _read_occlusion(record: Record) -> str:
    values = record.values
    index = int(np.argmin(np.abs(np.asarray(values["sizes"]) - 0.5)))
    size, left = values["sizes"][index], values["accuracy"][index]
    return (
        f"With the central {100 * size:g} % of each side {values['fill']} "
        f"({100 * size**2:.0f} % of the area) top-1 goes from {percent(values['clean'])} to "
        f"{percent(left)}."
    )


def _read_attack(record: Record) -> str:
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
        f"{percent(accuracy[-1])} at {last}; {end}."
    )


def low_and_high(record: Record) -> tuple[float, float] | None:
    """Mean accuracy under noise up to 0.5 pi, and above; None if one of them was not tried."""
    pairs = list(zip(record.values["frequencies"], record.values["accuracy"], strict=True))
    low, high = ([a for f, a in pairs if (f > 0.5) == above] for above in (False, True))
    return (float(np.mean(low)), float(np.mean(high))) if low and high else None


def _read_frequency(record: Record) -> str:
    values = record.values
    accuracy, at = values["accuracy"], values["frequencies"]
    worst, best = int(np.argmin(accuracy)), int(np.argmax(accuracy))
    sides = low_and_high(record)
    start = f"Noise of rms {values['rms']:g} hurts most at {at[worst]:g} π "
    start += f"({percent(values['clean'])} to {percent(accuracy[worst])}) and least at "
    start += f"{at[best]:g} π ({percent(accuracy[best])})"
    if sides is None:
        return f"{start}."
    return f"{start}; mean up to 0.5 π {percent(sides[0])}, above {percent(sides[1])}."


def _read_corruption(record: Record) -> str:
    values = record.values
    by = values["by_corruption"]
    worst, best = min(by, key=by.__getitem__), max(by, key=by.__getitem__)
    start = "" if values["clean"] is None else f", clean {percent(values['clean'])}"
    return (
        f"Over {len(by)} corruptions, {severity_words(values['severities'])}, top-1 is "
        f"{percent(values['mean'])} on "
        f"average{start}; worst is {worst} ({percent(by[worst])}), best {best} "
        f"({percent(by[best])})."
    )


def _read_calibration(record: Record) -> str:
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


def _with_chance(read: Callable[[Record], str]) -> Callable[[Record], str]:
    return lambda record: f"{read(record)[:-1]} ({chance(record)})."


READINGS: dict[str, Callable[[Record], str]] = {  # one sentence on a record
    "occlusion": _with_chance(_read_occlusion),
    "fgsm": _with_chance(_read_attack),
    "pgd": _with_chance(_read_attack),
    "frequency": _with_chance(_read_frequency),
    "corruption": _with_chance(_read_corruption),
    "calibration": _read_calibration,
}


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
        accuracy = 100 * np.asarray(models[0].record.arrays["accuracy"], float)
        values = np.column_stack([accuracy, accuracy.mean(1)])
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
    text = f"temperature {scaling['temperature']:.2f}"
    scores = [f"ECE {100 * before['ece']:.1f} → {100 * after['ece']:.1f} %"]
    scores += [
        f"{n} {before[k]:.2f} → {after[k]:.2f}" for n, k in (("NLL", "nll"), ("Brier", "brier"))
    ]
    how = f"{figure.how} The {text}, fitted on {count(scaling['num_fitted'])} images, changes on "
    how += f"{count(after['num_images'])} others: {', '.join(scores)}."
    panels = (replace(figure.panels[0], title="As it is"), replace(second, title=sentence(text)))
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
