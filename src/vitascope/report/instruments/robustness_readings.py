"""Robustness measures in words: one line per number, and one sentence per record."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from vitascope.record import Record

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
    found = values.get(error)
    return f"{100 * values[key]:.2f}" + ("" if found is None else f" ± {100 * found:.2f}") + " %"


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


def _accuracies(values: Values, words: list[str], clean: str) -> list[Number]:
    first = [("top-1, " + clean, percent(values["clean"]), "")]
    found = zip(words, values["accuracy"], strict=True)
    return first + [
        (f"top-1, {word}", percent(one), f"{100 * (values['clean'] - one):.1f}")
        for word, one in found
    ]


def _occlusion(record: Record) -> list[Number]:
    values = record.values
    words = [f"centre {100 * s:g} % of each side {values['fill']}" for s in values["sizes"]]
    return _accuracies(values, words, "nothing hidden")


def attack_words(record: Record) -> str:
    """Which attack, and against which labels."""
    values = record.values
    if record.kind == "fgsm":
        return f"FGSM against the {values['against']}"
    start = "a random start" if values["random_start"] else "the image"
    return f"PGD of {values['steps']} steps from {start} against the {values['against']}"


def _attack(record: Record) -> list[Number]:
    values = record.values
    words = [f"ε {epsilon_words(e)} of the pixel range" for e in values["epsilons"]]
    found = _accuracies(values, words, f"no attack ({attack_words(record)})")
    if values.get("num_stuck"):
        found.append(("images without any gradient", str(values["num_stuck"]), ""))
    return found


def _frequency(record: Record) -> list[Number]:
    values = record.values
    words = [f"noise at {f:g} π ± {values['window'] / 2:g} π" for f in values["frequencies"]]
    return _accuracies(values, words, f"no noise (noise: rms {values['rms']:g} of the pixel range)")


def _corruption(record: Record) -> list[Number]:
    values, clean = record.values, record.values["clean"]
    levels = severity_words(values["severities"])
    found: list[Number] = [] if clean is None else [("top-1, clean", percent(clean), "")]
    how = (
        "published images" if values["constants"] == "given" else f"{values['constants']} constants"
    )
    named = {f"mean of {len(values['corruptions'])} ({how})": values["mean"]}
    named |= values["by_corruption"]
    for name, accuracy in named.items():
        lost = "" if clean is None else f"{100 * (clean - accuracy):.1f}"
        found.append((f"top-1, {name}, {levels}", percent(accuracy), lost))
    if values["mce"] is not None:
        found.append(("mCE, AlexNet is 100", f"{values['mce']:.1f} %", ""))
    return found


def _calibration(record: Record) -> list[Number]:
    values, scaling = record.values, record.values["scaling"]
    found = [("top-1", percent(values["top1"]), "")]
    found += [] if values["top5"] is None else [("top-5", percent(values["top5"]), "")]
    found += [
        (f"ECE, {len(values['bin_count'])} bins", with_error(values, "ece", "ece_error"), ""),
        *(
            (f"{words}, {len(values['bin_count'])} bins", with_error(values, key, error), "")
            for words, key, error in (
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
        found += [
            (fitted, f"{scaling['temperature']:.3f}", ""),
            (f"ECE of {rest}, before", f"{100 * before['ece']:.2f} %", ""),
            (f"ECE of {rest}, after", f"{100 * after['ece']:.2f} %", ""),
            (f"NLL of {rest}, before", f"{before['nll']:.4f} nats", ""),
            (f"NLL of {rest}, after", f"{after['nll']:.4f} nats", ""),
        ]
    return found


_NUMBERS: dict[str, Callable[[Record], list[Number]]] = {
    "occlusion": _occlusion,
    "fgsm": _attack,
    "pgd": _attack,
    "frequency": _frequency,
    "corruption": _corruption,
    "calibration": _calibration,
}


def chance(record: Record) -> str:
    """How far chance alone may move an accuracy on that many images."""
    count = record.values["num_images"]
    return f"{count} images, standard error of an accuracy up to {50 / sqrt(count):.1f} points"


def _read_occlusion(record: Record) -> str:
    values = record.values
    place = int(np.argmin(np.abs(np.asarray(values["sizes"]) - 0.5)))
    size, left = values["sizes"][place], values["accuracy"][place]
    return (
        f"With the central {100 * size:g} % of each side {values['fill']} "
        f"({100 * size**2:.0f} % of the area) top-1 goes from {percent(values['clean'])} to "
        f"{percent(left)}."
    )


def _read_attack(record: Record) -> str:
    values = record.values
    order = np.argsort(values["epsilons"])
    epsilons = [values["epsilons"][i] for i in order]
    found = [values["accuracy"][i] for i in order]
    half = next((e for e, a in zip(epsilons, found, strict=True) if a <= values["clean"] / 2), None)
    last = f"ε = {epsilon_words(epsilons[-1])}"
    end = f"half of it is not lost even at {last}"
    if half is not None:
        end = f"half of it is lost by ε = {epsilon_words(half)}"
    return (
        f"{attack_words(record)} brings top-1 from {percent(values['clean'])} to "
        f"{percent(found[-1])} at {last}; {end}."
    )


def low_and_high(record: Record) -> tuple[float, float] | None:
    """Mean accuracy under noise up to 0.5 pi, and above; None if one of them was not tried."""
    pairs = list(zip(record.values["frequencies"], record.values["accuracy"], strict=True))
    low, high = ([a for f, a in pairs if (f > 0.5) == above] for above in (False, True))
    return (float(np.mean(low)), float(np.mean(high))) if low and high else None


def _read_frequency(record: Record) -> str:
    values = record.values
    found, at = values["accuracy"], values["frequencies"]
    worst, best = int(np.argmin(found)), int(np.argmax(found))
    sides = low_and_high(record)
    start = f"Noise of rms {values['rms']:g} hurts most at {at[worst]:g} π "
    start += f"({percent(values['clean'])} to {percent(found[worst])}) and least at "
    start += f"{at[best]:g} π ({percent(found[best])})"
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
        f"{scaling['num_fitted']} images, brings the ECE of the other "
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
