"""What robustness measures found, a row a number, with its units and settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitascope.record import Record
from vitascope.report.tables.terminal import table

__all__ = [
    "attack_words",
    "epsilon_words",
    "percent",
    "robustness_table",
    "rows",
    "severity_words",
]

Row = list[str]  # setting, value, change
Values = Mapping[str, Any]


def rows(record: Record) -> list[Row]:
    """Setting, value and change of each number of a record."""
    return _ROWS[record.kind](record)


def robustness_table(records: Mapping[str, Record]) -> str:
    """All numbers of some records, for a terminal."""
    lines = [[name, *row] for name, record in records.items() for row in rows(record)]
    return table(["measure", "setting", "value", "lost"], lines)


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
    """Of a share of 1."""
    return f"{100 * share:.1f} %"


def _accuracies(values: Values, words: list[str], clean: str) -> list[Row]:
    first = [["top-1, " + clean, percent(values["clean"]), ""]]
    found = zip(words, values["accuracy"], strict=True)
    return first + [
        [f"top-1, {word}", percent(one), f"{100 * (values['clean'] - one):.1f}"]
        for word, one in found
    ]


def _occlusion(record: Record) -> list[Row]:
    values = record.values
    words = [f"centre {100 * s:g} % of each side {values['fill']}" for s in values["sizes"]]
    return _accuracies(values, words, "nothing hidden")


def attack_words(record: Record) -> str:
    """Which attack, and what it drives the model away from."""
    values = record.values
    if record.kind == "fgsm":
        return f"FGSM against the {values['against']}"
    start = "a random start" if values["random_start"] else "the image"
    return f"PGD of {values['steps']} steps from {start} against the {values['against']}"


def _attack(record: Record) -> list[Row]:
    values = record.values
    words = [f"ε {epsilon_words(e)} of the pixel range" for e in values["epsilons"]]
    found = _accuracies(values, words, f"no attack ({attack_words(record)})")
    if values.get("num_stuck"):
        found.append(["images without any gradient", str(values["num_stuck"]), ""])
    return found


def _frequency(record: Record) -> list[Row]:
    values = record.values
    words = [f"noise at {f:g} π ± {values['window'] / 2:g} π" for f in values["frequencies"]]
    return _accuracies(values, words, f"no noise (noise: rms {values['rms']:g} of the pixel range)")


def _corruption(record: Record) -> list[Row]:
    values, clean = record.values, record.values["clean"]
    levels = severity_words(values["severities"])
    found = [] if clean is None else [["top-1, clean", percent(clean), ""]]
    how = (
        "published images" if values["constants"] == "given" else f"{values['constants']} constants"
    )
    named = {f"mean of {len(values['corruptions'])} ({how})": values["mean"]}
    named |= values["by_corruption"]
    for name, accuracy in named.items():
        lost = "" if clean is None else f"{100 * (clean - accuracy):.1f}"
        found.append([f"top-1, {name}, {levels}", percent(accuracy), lost])
    if values["mce"] is not None:
        found.append(["mCE, AlexNet is 100", f"{values['mce']:.1f} %", ""])
    return found


def _calibration(record: Record) -> list[Row]:
    values, scaling = record.values, record.values["scaling"]
    found = [["top-1", percent(values["top1"]), ""]]
    found += [] if values["top5"] is None else [["top-5", percent(values["top5"]), ""]]
    found += [
        [f"ECE, {len(values['bin_count'])} bins", f"{100 * values['ece']:.2f} %", ""],
        ["NLL", f"{values['nll']:.4f} nats", ""],
        ["Brier, 0 to 2", f"{values['brier']:.4f}", ""],
    ]
    if scaling is not None:
        before, after = scaling["before"], scaling["after"]
        rest = f"the other {before['num_images']} images"
        fitted = f"temperature, fitted on {scaling['num_fitted']} images"
        found += [
            [fitted, f"{scaling['temperature']:.3f}", ""],
            [f"ECE of {rest}, before", f"{100 * before['ece']:.2f} %", ""],
            [f"ECE of {rest}, after", f"{100 * after['ece']:.2f} %", ""],
            [f"NLL of {rest}, before", f"{before['nll']:.4f} nats", ""],
            [f"NLL of {rest}, after", f"{after['nll']:.4f} nats", ""],
        ]
    return found


_ROWS: dict[str, Callable[[Record], list[Row]]] = {
    "occlusion": _occlusion,
    "fgsm": _attack,
    "pgd": _attack,
    "frequency": _frequency,
    "corruption": _corruption,
    "calibration": _calibration,
}
