"""One sentence on what each robustness measure found."""

from collections.abc import Callable
from math import sqrt

import numpy as np

from vitascope.record import Record
from vitascope.report.instruments.robustness_table import (
    attack_words,
    epsilon_words,
    percent,
    severity_words,
)

__all__ = ["READINGS", "chance", "low_and_high"]


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
    end = f"half of it is lost by ε = {epsilon_words(half)}" if half is not None else (
        f"half of it is not lost even at {last}")  # fmt: skip
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
