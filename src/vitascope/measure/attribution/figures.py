"""Figure and table rows of relevance: maps, and deletion and insertion curves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure, Lines, Maps, Series, Style, check_photographs
from vitascope.formatting import joined, sentence
from vitascope.measure.instrument import ModelRecord, table_row
from vitascope.record import Record
from vitascope.table import TableRow

CURVES = ("deletion", "insertion", "road")
VERBS = {"deletion": "hidden", "insertion": "shown", "road": "filled in"}
NAMES = {
    "rollout": "rollout",
    "gradient": "gradient attention",
    "grad-cam": "Grad-CAM",
    "attnlrp": "AttnLRP",
    "integrated": "integrated gradients",
}


def gain_words(one: Mapping[str, Any]) -> str:
    """Points that an order is better than a random one, and whether that is beyond its error.

    >>> gain_words({"gain": 0.123, "error": 0.01}), gain_words({"gain": 0.01, "error": 0.01})
    ('+12.3 ± 1.0', '+1.0 ± 1.0, undecided')
    """
    gain, error = one["gain"], one["error"]
    if error is None:
        return f"{100 * gain:+.1f} on one image"
    decided = "" if abs(gain) > 2 * error else ", undecided"
    return f"{100 * gain:+.1f} ± {100 * error:.1f}{decided}"


def relevance(models: Sequence[ModelRecord]) -> Figure:
    """Maps of each model on a few images, then its deletion and insertion curves."""
    parts = []
    for model in models:
        best = max(model.values["methods"], key=lambda method: _total(model, method))
        hidden, shown = (_change_words(model.values[curve][best], curve) for curve in CURVES[:2])
        parts.append(
            f"hiding what {NAMES[best]} marks first makes {model.label}'s prediction {hidden} than "
            f"hiding random places; showing it first makes it {shown}"
        )
    return Figure(
        name="relevance",
        title="Relevance: what the prediction depends on",
        reading=sentence(joined(parts)),
        how="Maps: one column per image, bright where the prediction depends on it. Curves: the "
        "probability of the predicted class while the most relevant places are hidden (deletion, "
        "low is good) or shown on an empty image (insertion, high is good); dashed: the same "
        "places in random order; road: hidden places are filled in from what surrounds them. "
        "Shuffled weights: a map that stays alike shows the image and not the network, so near 0 "
        "is good. ± is the standard error over images.",
        panels=tuple(panel for model in models for panel in _panels(model, len(models) > 1)),
        definition="Rollout: Π (A/2 + I/2) (Abnar & Zuidema 2020); gradient attention: Π (I + "
        "mean max(0, ∇A · A)) (Chefer et al. 2021); Grad-CAM: max(0, Σ_c α_c A_c) (Selvaraju et "
        "al. 2017); AttnLRP (Achtibat et al. 2024); integrated gradients (Sundararajan et al. "
        "2017); deletion and insertion: areas below the curves (Petsiuk et al. 2018); road: ROAD "
        "(Rong et al. 2022); shuffled weights: rank correlation of maps (Adebayo et al. 2018).",
        wide=len(models) > 1,
    )


def _change_words(one: Mapping[str, Any], curve: str) -> str:
    """Return how the probability of the answer differs from that in random order.

    >>> _change_words({"gain": 0.123, "error": 0.01}, "deletion")
    '12.3 ± 1.0 points less probable'
    >>> _change_words({"gain": -0.01, "error": 0.01}, "insertion")
    '1.0 ± 1.0 points less probable (undecided)'
    """
    change, _, undecided = gain_words(one).partition(", ")
    word = "more" if (one["gain"] >= 0) == (curve == "insertion") else "less"
    points, _, few = change[1:].partition(" on ")
    ending = f" on {few}" if few else ""
    return f"{points} points {word} probable{ending}" + (" (undecided)" if undecided else "")


def _total(model: ModelRecord, method: str) -> float:
    return float(sum(model.values[curve][method]["gain"] for curve in CURVES))


def _panels(model: ModelRecord, titled: bool) -> Iterator[Maps | Lines | Dots]:
    yield _maps(model, titled)
    yield from (_curve(model, curve) for curve in CURVES)
    yield _randomised(model)


def _maps(model: ModelRecord, titled: bool) -> Maps:
    rows = {NAMES[m]: model.record.arrays[f"map/{m}"] for m in model.values["methods"]}
    pictures = np.asarray(model.record.arrays["pictures"])
    pictures = pictures / 255 if pictures.dtype == np.uint8 else pictures.astype(float)
    check_photographs(pictures, len(next(iter(rows.values()))))
    side = max(max(part.shape[1:]) for part in rows.values())
    values = np.stack([_resized(np.asarray(part, float), side) for part in rows.values()])
    return Maps(
        title=model.label if titled else "",
        rows=tuple(rows),
        columns=tuple(str(image + 1) for image in range(len(pictures))),
        values=values,
        log=False,
        photographs=pictures,
    )


def _resized(maps: np.ndarray, side: int) -> np.ndarray:
    """Maps (m, h, w) at side x side by their nearest places."""
    down, across = (
        ((np.arange(side) + 0.5) / side * size).astype(int).clip(0, size - 1)
        for size in maps.shape[1:]
    )
    return maps[:, down[:, None], across]


def _curve(model: ModelRecord, curve: str) -> Lines:
    series = []
    for index, method in enumerate(model.values["methods"]):
        points = model.values[curve][method]
        name = "road_shares" if curve == "road" else "shares"
        x = [100 * share for share in model.values[name]]
        style, plain = Style(index, "circle"), Style(6, "circle", "2 3")
        y = [100 * value for value in points["curve"]]
        series.append(Series(label=NAMES[method], x=x, y=y, style=style))
        if index == 0:
            random = [100 * value for value in points["random"]]
            series.append(Series(label="random order", x=x, y=random, style=plain))
    return Lines(
        title=f"{model.label}, {curve}",
        x_label=f"most relevant places {VERBS[curve]} (%)",
        y_label="probability of the prediction (%)",
        series=tuple(series),
        floor=0.0,
        ceiling=100.0,
        include=(0.0,),
    )


def _randomised(model: ModelRecord) -> Dots:
    """Return how alike each map is to that of the network with shuffled weights."""
    values = model.values["randomised"]
    return Dots(
        title=f"{model.label}, shuffled weights",
        y_label="rank correlation of both maps",
        groups=tuple(NAMES[method] for method in values),
        series=(
            DotSeries(
                label=model.label,
                values=[[one["correlation"]] for one in values.values()],
                style=model.style,
            ),
        ),
    )


def relevance_rows(record: Record) -> list[TableRow]:
    """Return how much better than a random order each map is, and whether weights matter to it."""
    randomised = record.values["randomised"].items()
    return [
        table_row(
            "relevance",
            f"{method}, {curve}: points of area better than random order",
            gain_words(record.values[curve][method]),
        )
        for method in record.values["methods"]
        for curve in CURVES
    ] + [
        table_row(
            "relevance",
            f"{method}: rank correlation with the map of shuffled weights",
            f"{one['correlation']:+.2f}"
            + ("" if one["error"] is None else f" ± {one['error']:.2f}"),
        )
        for method, one in randomised
    ]
