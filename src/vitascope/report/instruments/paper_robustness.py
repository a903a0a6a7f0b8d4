"""Figures of what a model stands: accuracy against occlusion, epsilon, frequency and corruption,
and the reliability diagram.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitascope.record import Record
from vitascope.report.figures.style import COLOURS
from vitascope.report.instruments.paper_heads import GREY
from vitascope.report.instruments.robustness_readings import epsilon_words

__all__ = ["FIGURES"]

BLUE, RED = COLOURS[0][0], COLOURS[1][0]
FAINT = "#b9c0ca"
SCORES = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}


def _curve(
    record: Record, at: Sequence[float], *, begin: float | None = None, **axes: Any
) -> tuple[Figure, Axes]:
    """Accuracy in percent against something; dashed, that of the images as they are."""
    values = record.values
    clean, found = 100 * values["clean"], [100 * a for a in values["accuracy"]]
    figure = Figure(figsize=(4.0, 2.8))
    axis = figure.subplots()
    axis.axhline(clean, ls="--", color=GREY, lw=1, label=f"clean, {clean:.1f} %")
    points = sorted(zip(at, found, strict=True))
    if begin is not None and begin not in at:
        points.insert(0, (begin, clean))
    xs, ys = zip(*points, strict=True)
    axis.plot(xs, ys, "o-", color=BLUE, lw=1.6, ms=4.5, label=f"{values['num_images']} images")
    axis.set(ylabel="top-1 accuracy (%)", ylim=(0, 1.08 * max(clean, *ys, 1)), **axes)
    axis.legend(frameon=False, fontsize=8)
    return figure, axis


def draw_occlusion(record: Record) -> Figure:
    """Against the hidden share of each side."""
    sizes = [100 * size for size in record.values["sizes"]]
    figure, _ = _curve(
        record, sizes, begin=0.0, xlim=(0, 102),
        xlabel=f"hidden centre (% of each side), {record.values['fill']}")  # fmt: skip
    return figure


def draw_attack(record: Record) -> Figure:
    """Against epsilon."""
    values = record.values
    steps = [255 * epsilon for epsilon in values["epsilons"]]
    label = "ε (1/255 of the pixel range)"
    figure, axis = _curve(record, steps, begin=0.0, xlabel=label)
    shown = sorted({0.0, *steps})
    axis.set_xticks(shown, [epsilon_words(step / 255).removesuffix("/255") for step in shown])
    if any(abs(step - round(step)) > 1e-6 for step in shown):
        axis.set_xticks(shown, [f"{step:.3g}" for step in shown])
    how = "FGSM" if record.kind == "fgsm" else f"PGD, {values['steps']} steps"
    axis.set_title(f"{how}, against the {values['against']}", fontsize=8, loc="left")
    return figure


def draw_frequency(record: Record) -> Figure:
    """Against the centre of the noise's window, which is as wide as its bar."""
    values = record.values
    last = max(1.0, *values["frequencies"])
    figure, axis = _curve(
        record, values["frequencies"], xlim=(-0.06, last + 0.06),
        xlabel="centre frequency of the noise (π, radial)")  # fmt: skip
    found = [100 * accuracy for accuracy in values["accuracy"]]
    axis.errorbar(values["frequencies"], found, xerr=values["window"] / 2, fmt="none",
                  ecolor=BLUE, elinewidth=0.9, alpha=0.6)  # fmt: skip
    clipped = ", clipped" if values["clamp"] else ""
    words = f"window {values['window']:g} π, rms {values['rms']:g} of the pixel range{clipped}"
    axis.set_title(words, fontsize=8, loc="left")
    return figure


def draw_corruption(record: Record) -> Figure:
    """A row a corruption, a column a severity; their means at the right, as bars."""
    values = record.values
    names, severities = values["corruptions"], values["severities"]
    shares = 100 * np.asarray(record.arrays["accuracy"])
    clean = None if values["clean"] is None else 100 * values["clean"]
    figure = Figure(figsize=(2.6 + 0.52 * len(severities) + 1.7, 1.1 + 0.24 * len(names)))
    heat, bars = figure.subplots(1, 2, sharey=True, width_ratios=[0.52 * len(severities), 1.7])
    top = max(clean or 0.0, float(shares.max()), 1.0)
    heat.imshow(shares, cmap="viridis", vmin=0, vmax=top, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        ink = "black" if share > 0.6 * top else "white"
        heat.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=7, color=ink)
    heat.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    heat.set_xticks(range(len(severities)), [str(severity) for severity in severities])
    heat.set(xlabel="severity")
    heat.set_title("top-1 accuracy (%)", fontsize=8, loc="left")
    heat.grid(visible=False)
    bars.barh(range(len(names)), shares.mean(1), color=BLUE, height=0.7)
    bars.grid(visible=False)
    mean = 100 * values["mean"]
    bars.axvline(mean, color=RED, lw=1.2)
    words = f"mean {mean:.1f}"
    if clean is not None:
        bars.axvline(clean, color=GREY, lw=1, ls="--")
        words += f", clean {clean:.1f} (dashed)"
    bars.set_title(words, fontsize=8, loc="left")
    bars.set(xlabel="mean over severities (%)", xlim=(0, 1.06 * top))
    bars.tick_params(axis="y", length=0)
    return figure


def draw_calibration(record: Record) -> Figure:
    """Reliability diagrams, as the model stands and after temperature scaling."""
    values, scaling = record.values, record.values["scaling"]
    panels = [(f"as it is\n{values['num_images']} images", values, _numbers(values))]
    if scaling is not None:
        after = scaling["after"]
        words = (
            f"temperature {scaling['temperature']:.2f}, fitted on {scaling['num_fitted']} images"
        )
        title = f"{words}\nshown on {after['num_images']} others, before → after"
        panels.append((title, after, _numbers(scaling["before"], after)))
    figure = Figure(figsize=(3.2 * len(panels), 4.0))
    rows = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False,
                           height_ratios=[3, 1])  # fmt: skip
    for axis, share, (title, scores, numbers) in zip(*rows, panels, strict=True):
        _reliability(axis, scores)
        said = ", ".join(f"{SCORES[name]} {number}" for name, number in numbers.items())
        axis.set_title(f"{title}\n{said}", fontsize=7.5, loc="left")
        counts = np.asarray(scores["bin_count"])
        middles, width = _middles(len(counts))
        share.bar(middles, 100 * counts / counts.sum(), width=0.92 * width, color=FAINT)
        share.set(xlabel="confidence", xlim=(0, 1))
    rows[0][0].set_ylabel("accuracy")
    rows[1][0].set_ylabel("images (%)")
    return figure


def _numbers(*stages: Any) -> dict[str, str]:
    """The scores, before and after where there are two."""
    said = {"ece": " → ".join(f"{100 * scores['ece']:.1f}" for scores in stages) + " %"}
    for name in ("nll", "brier"):
        said[name] = " → ".join(f"{scores[name]:.2f}" for scores in stages)
    return said


def _middles(num_bins: int) -> tuple[np.ndarray, float]:
    return (np.arange(num_bins) + 0.5) / num_bins, 1 / num_bins


def _reliability(axis: Axes, scores: Any) -> None:
    """Bars of accuracy; hatched, the gap to the mean confidence of the bin."""
    counts = np.asarray(scores["bin_count"])
    accuracy, sure = (np.asarray(scores[f"bin_{name}"]) for name in ("accuracy", "confidence"))
    middles, width = _middles(len(counts))
    there = counts > 0
    drawn: Any = {"width": 0.92 * width}
    axis.bar(middles[there], accuracy[there], color=BLUE, alpha=0.55, label="accuracy", **drawn)
    gap, floor = np.abs(sure - accuracy)[there], np.minimum(sure, accuracy)[there]
    axis.bar(middles[there], gap, bottom=floor, facecolor="none", edgecolor=RED, lw=0.8,
             hatch="/////", label="gap to confidence", **drawn)  # fmt: skip
    axis.plot([0, 1], [0, 1], "--", color=GREY, lw=1, label="perfect")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize=7, loc="upper left")


FIGURES: dict[str, Callable[[Record], Figure]] = {
    "occlusion": draw_occlusion,
    "fgsm": draw_attack,
    "pgd": draw_attack,
    "frequency": draw_frequency,
    "corruption": draw_corruption,
    "calibration": draw_calibration,
}
