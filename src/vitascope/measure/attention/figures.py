"""Figures and table rows of attention: distances, gates, windows, entropy, maps."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from vitascope.figure import Figure, Lines, Maps, Panel, Series, Style
from vitascope.formatting import joined, number, sentence, short_names
from vitascope.measure.instrument import (
    ModelRecord,
    along,
    layer_names,
    mean_row,
    table_row,
)
from vitascope.record import Record
from vitascope.table import TableRow

NONLOCALITY = (
    "D_h = 1/N Σ_ij A^h_ij |p_i − p_j|: the mean distance, in patches, between a patch and those "
    "it attends to, weighted by attention; 0 attends to itself (ConViT, arXiv 2103.10697, eq. 8)."
)
GATE = (
    "The gate σ(λ_h) of a head: its attention is (1 − σ) softmax(content) + σ softmax(position); "
    "1 is position alone (ConViT, eq. 7)."
)
MIXTURE = (
    "In mixture attention it is the share of position among content, position, the mean of all "
    "patches and content within windows; the four shares of a head sum to one."
)
WINDOW = (
    "A positional head attends to a patch δ away with the weight exp(−α |δ − Δ|²): Δ is its "
    "centre, 1/√α its width, in patches; both are learned (ConViT, eq. 5)."
)
FARTHEST = 4  # patches that a picture of a window shows on each side of the query
FRESH_GATE = 1 / (1 + np.exp(-1))  # sigmoid(1), where a ConViT starts


def _heads(model: ModelRecord) -> list[np.ndarray]:
    return [np.asarray(model.record.arrays[name], float) for name in model.values["layers"]]


def _shown(models: Sequence[ModelRecord]) -> str:
    legend = "dots: single heads" if len(models) == 1 else "bands: lowest to highest head"
    return f"Lines: mean of the heads of a layer; {legend}."


def nonlocality(models: Sequence[ModelRecord]) -> Figure:
    """Nonlocality (attention distance) in patches, per layer."""
    uniform = {round(float(value), 6) for model in models for value in model.values["uniform"]}
    levels = (("uniform attention", next(iter(uniform))),) if len(uniform) == 1 else ()
    ends = [(model.label, model.values["per_layer"]) for model in models]
    if len(models) == 1:
        name, far = ends[0]
        end = f" and {number(far[-1])} in its last" if len(far) > 1 else ""
        reading = (
            f"{name} attends {number(far[0])} patches away in its first attention layer{end}; "
        )
        reading += f"uniform attention would be {number(models[0].values['uniform'][0])} away."
    else:
        distances = [f"{name} {number(far[0])} and {number(far[-1])}" for name, far in ends]
        reading = (
            f"Attention distance, in patches, in the first and the last layer: {joined(distances)}"
        )
    panel = along(
        models,
        "layers",
        "per_layer",
        _heads,
        floor=0.0,
        include=(0.0,),
        y_label="nonlocality (patches)",
        levels=levels,
    )
    return Figure(
        name="nonlocality",
        title="Nonlocality: how far the heads look",
        headline=_how_far(models),
        reading=reading,
        how=_shown(models) + (" Dashed: a head with uniform attention." if levels else ""),
        panels=(panel,),
        definition=NONLOCALITY,
    )


def _how_far(models: Sequence[ModelRecord]) -> str:
    """Return whether the first and the last layer look nearby or everywhere, in words."""
    shares_of = []
    for model in models:
        uniform = model.values["uniform"]
        shares = [
            far / most for far, most in zip(model.values["per_layer"], uniform, strict=True) if most
        ]
        distances = ["nearby" if s < 0.75 else "far" if s < 0.9 else "everywhere" for s in shares]
        if len(set(distances)) == 1:
            shares_of.append(f"all layers look {distances[0]}")
        elif distances:
            same = distances[0] == distances[-1]
            last = (
                "the first and the last look" if same else f"early layers look {distances[0]}, the"
            )
            shares_of.append(
                f"{last} {distances[0]}" if same else f"{last} last looks {distances[-1]}"
            )
    if len(models) == 1 or len(shares_of) < len(models):
        return sentence(shares_of[0]) if shares_of else ""
    if len(set(shares_of)) == 1:
        return sentence(f"{shares_of[0]} in all {len(models)} models")
    named = [
        f"{model.label}: {distances}" for model, distances in zip(models, shares_of, strict=True)
    ]
    return joined(named, 3).rstrip(".")


def gates(models: Sequence[ModelRecord]) -> Figure:
    """Gates, the weight of position, per gated layer."""
    parts = []
    for model in models:
        layers = model.values["per_layer"]
        low = int(np.argmin(layers))
        name = short_names(model.values["layers"])[low]
        where = f"layer {int(name) + 1}" if name.isdigit() else name
        mean = number(float(np.mean(layers)))
        parts.append(
            f"{model.label} gives position a weight of {mean} on average, "
            f"least in {where} ({number(layers[low])})"
        )
    panel = along(
        models,
        "layers",
        "per_layer",
        _heads,
        floor=0.0,
        ceiling=1.0,
        include=(0.0, 1.0),
        y_label="gate σ(λ)",
        levels=(("fresh ConViT", FRESH_GATE),),
    )
    mixed = [model for model in models if model.values.get("shares")]
    return Figure(
        name="gates",
        title="Gates: attention by position or by content",
        reading=joined(parts),
        how=_shown(models),
        panels=(panel, *map(_mixture, mixed)),
        definition=GATE if not mixed else f"{GATE} {MIXTURE}",
    )


def _mixture(model: ModelRecord) -> Lines:
    """The share of each part of mixture attention, through the layers of one model."""
    shares = model.values["shares"]
    return Lines(
        title=f"{model.label}: shares of the four parts",
        x_label="attention layer",
        y_label="share, mean over heads",
        x_names=layer_names(model.values["layers"][: len(shares)]),
        series=tuple(
            Series(
                label=part,
                x=list(range(len(shares))),
                y=[layer[part] for layer in shares],
                style=Style.numbered(index),
            )
            for index, part in enumerate(shares[0])
        ),
        marks=True,
        floor=0.0,
        include=(0.0,),
    )


def windows(models: Sequence[ModelRecord]) -> Figure:
    """Learned windows of positional heads on the grid of patches, and how they moved."""
    parts = []
    for model in models:
        pairs = zip(model.values["distance"], model.values["width"], strict=True)
        measured = [(distance, width) for distance, width in pairs if distance is not None]
        if measured:
            distance, width = (float(np.mean(numbers)) for numbers in zip(*measured, strict=True))
            parts.append(
                f"{model.label}'s positional heads look {number(distance)} patches away from the "
                f"query on average, with windows {number(width)} patches wide"
            )
    panels: list[Panel] = []
    for model in models:
        panels += _window_maps(model, len(models) > 1)
    followed = len(models) == 1 and len(models[0].values["epochs"]) > 1
    if followed:
        panels += _window_paths(models[0])
    for key in () if followed else ("distance", "width"):
        if all(None not in model.values[key] for model in models):
            label = "width (patches)" if key == "width" else "distance of the centre (patches)"
            heads = partial(_window_heads, key)
            panels.append(along(models, "layers", key, heads, include=(0.0,), y_label=label))
    return Figure(
        name="windows",
        title="Windows: where the positional heads look",
        reading=joined(parts) if parts else "No head has a window: all look to the border.",
        how="Maps: attention by position from the ringed patch, each as a share of its peak. "
        + ("Over training: thin lines are heads." if followed else _shown(models)),
        panels=tuple(panels),
        definition=WINDOW,
    )


def _window_heads(key: str, model: ModelRecord) -> list[np.ndarray]:
    """Distances of the centres or widths, head by head, of each layer."""
    arrays = model.record.arrays
    if key == "width":
        return [np.asarray(arrays[f"width/{name}"], float) for name in model.values["layers"]]
    return [np.linalg.norm(arrays[f"centre/{name}"], axis=-1) for name in model.values["layers"]]


def _window_maps(model: ModelRecord, titled: bool) -> list[Panel]:
    """The windows around one patch in the middle, one row per layer and one column per head."""
    layers = model.values["layers"]
    centres = [np.asarray(model.record.arrays[f"centre/{name}"], float) for name in layers]
    widths = [np.asarray(model.record.arrays[f"width/{name}"], float) for name in layers]
    if any(centre.shape[-1] != 2 for centre in centres):
        return []  # a sequence or a volume
    far = max((float(np.nanmax(np.abs(c))) for c in centres if np.isfinite(c).any()), default=1.0)
    reach = int(np.clip(np.ceil(far) + 1, 3, FARTHEST))
    values = np.full((len(layers), max(map(len, centres)), *(2 * reach + 1,) * 2), np.nan)
    offsets = np.arange(-reach, reach + 1)
    for row, centre, width in zip(values, centres, widths, strict=True):
        down, across = (
            np.exp(-(((offsets - centre[:, [axis]]) / width[:, None]) ** 2)) for axis in (0, 1)
        )
        row[: len(centre)] = down[:, :, None] * across[:, None, :]
    names = tuple(f"layer {int(n) + 1}" if n.isdigit() else n for n in short_names(layers))
    panel = Maps(
        title=model.label if titled else "Attention by position",
        rows=names,
        columns=tuple(f"head {head + 1}" for head in range(values.shape[1])),
        values=values,
        log=False,
        query=(float(reach), float(reach)),
    )
    return [panel]


def _window_paths(model: ModelRecord) -> list[Panel]:
    """Drift of the centres and widths over the epochs that the run kept, a panel for each."""
    epochs, layers = model.values["epochs"], model.values["layers"]
    panels: list[Panel] = []
    for part in ("centres", "widths"):
        label = "width (patches)" if part == "widths" else "drift of the centre (patches)"
        series = []
        for index, (name, short) in enumerate(zip(layers, layer_names(layers), strict=True)):
            values = np.asarray(model.record.arrays[f"{part}/{name}"], float)
            if part == "centres":
                values = np.linalg.norm(values - values[:1], axis=-1)
            heads = values[:, np.isfinite(values).all(0)]
            if heads.size:
                series.append(
                    Series(
                        label=f"layer {short}" if short.isdigit() else short,
                        x=list(epochs),
                        y=heads.mean(1).tolist(),
                        strands=heads.T.tolist(),
                        style=Style(index % 6, "circle"),
                    )
                )
        if series:
            panels.append(
                Lines(
                    title="over training",
                    x_label="epoch",
                    y_label=label,
                    series=tuple(series),
                    include=(0.0,),
                    marks=True,
                )
            )
    return panels


def windows_rows(record: Record) -> list[TableRow]:
    """The distance of the centres and the width; heads without a window are counted."""
    rows = []
    for key, label in (("distance", "centre, patches from the query"), ("width", "width, patches")):
        pairs = zip(record.values["layers"], record.values[key], strict=True)
        measured = [(name, value) for name, value in pairs if value is not None]
        if measured:
            names, numbers = zip(*measured, strict=True)
            rows.append(mean_row("windows", label, names, numbers))
    without = sum(record.values["without_window"])
    if without or not rows:
        rows.append(table_row("windows", "heads without a window", str(without)))
    return rows


def entropy(models: Sequence[ModelRecord]) -> Figure:
    """Entropy of attention in each layer, relative to a uniform head."""
    shares = [
        f"{model.label} has {number(100 * float(np.mean(model.values['relative'])))} %"
        for model in models
    ]
    shares[0] += " of a uniform head's entropy on average"
    panel = along(
        models,
        "layers",
        "relative",
        _relative,
        floor=0.0,
        ceiling=1.0,
        include=(0.0,),
        y_label="entropy / log(keys)",
        levels=(("uniform attention", 1.0),),
    )
    return Figure(
        name="entropy",
        title="Entropy: how spread out attention is",
        reading=joined(shares),
        how=_shown(models),
        panels=(panel,),
        definition="E_h = −1/T Σ_ij A^h_ij log A^h_ij, divided by log S for S keys: 0 is all on "
        "one token, 1 is uniform.",
    )


def _relative(model: ModelRecord) -> list[np.ndarray]:
    pairs = zip(_heads(model), model.values["num_keys"], strict=True)
    return [heads / np.log(keys) for heads, keys in pairs]


def maps(models: Sequence[ModelRecord]) -> Figure:
    """Draw what one patch attends to; gated layers also by content and position."""
    panels: tuple[Panel, ...] = tuple(_maps(model, len(models) > 1) for model in models)
    panels += tuple(_to_tokens(model) for model in models if model.values.get("token_share"))
    parts = []
    for model in models:
        arrays, name = model.record.arrays, model.values["layers"][0]
        by_patch = f"mixed/{name}" in arrays
        first = np.asarray(arrays[f"mixed/{name}"] if by_patch else arrays[f"tokens/{name}"][0])
        share = first.reshape(len(first), -1).max(1) / first.reshape(len(first), -1).sum(1)
        who = "a head" if by_patch else f"a head of the {model.values['token_names'][name][0]}"
        parts.append(
            f"in the first layer of {model.label} {who} puts {number(100 * float(share.max()))} "
            f"% of its weight on one patch at most"
        )
    summary = joined(parts)
    asked = any(at is not None for model in models for at in model.values["query"])
    return Figure(
        name="maps",
        title=f"Attention maps of {'one patch' if asked else 'the class token'}",
        reading=sentence(summary),
        how="One row per layer, one column per head; log colours over three decades"
        + ("; ringed: the query patch." if asked else "."),
        panels=panels,
        definition=f"The row of the attention map of {'one query patch' if asked else 'a token'}, "
        "laid out on the image and averaged over images (ConViT, Fig. 7).",
    )


def _maps(model: ModelRecord, titled: bool) -> Maps:
    arrays, layers = model.record.arrays, model.values["layers"]
    gated = set(model.values.get("gated") or ())
    names = short_names(layers)
    rows: list[tuple[str, np.ndarray]] = []
    of_tokens: list[str] = []
    for name, short in zip(layers, names, strict=True):
        title, last = f"layer {int(short) + 1}" if short.isdigit() else short, name == layers[-1]
        if name in gated and len(layers) <= 5:
            rows += [(f"{title}, {p}", arrays[f"{p}/{name}"]) for p in ("content", "position")]
        by_patch = f"mixed/{name}" in arrays  # else only tokens without coordinates are queries
        if by_patch:
            rows.append((title, arrays[f"mixed/{name}"]))
        if (last or len(layers) <= 5 or not by_patch) and f"tokens/{name}" in arrays:
            pairs = zip(model.values["token_names"][name], arrays[f"tokens/{name}"], strict=False)
            form = "{0}, {1}" if by_patch else "{1}, {0}"
            made = [(form.format(title, token), map_values) for token, map_values in pairs]
            rows += made
            of_tokens += [form for form, _ in made]
    most = max(len(part) for _, part in rows)
    high, wide = (max(part.shape[axis] for _, part in rows) for axis in (1, 2))
    same = all(part.shape[1:] == (high, wide) for _, part in rows)
    values = np.full((len(rows), most, high, wide), np.nan)
    for index, (_, part) in enumerate(rows):
        down, across = (
            int(np.ceil(a / b)) for a, b in zip((high, wide), part.shape[1:], strict=True)
        )
        fine = np.repeat(np.repeat(part, down, 1), across, 2)[:, :high, :wide]
        values[index, : len(part), : fine.shape[1], : fine.shape[2]] = fine
    query = next((at for at in model.values["query"] if at is not None), None) if same else None
    return Maps(
        title=model.label if titled else "",
        rows=tuple(row for row, _ in rows),
        values=values,
        columns=tuple(f"head {head + 1}" for head in range(most)),
        query=(float(query[0]), float(query[1])) if query is not None else None,
        unringed=tuple(of_tokens),
    )


def _to_tokens(model: ModelRecord) -> Lines:
    """Share of the patches' attention that goes to class tokens and registers, layer by layer."""
    shares, layers = model.values["token_share"], model.values["layers"]
    by_layer = {
        n: dict(zip(model.values["token_names"][n], shares[n], strict=True)) if n in shares else {}
        for n in layers
    }
    names = list(dict.fromkeys(token for rows in by_layer.values() for token in rows))
    series = []
    for index, token in enumerate(names):
        rows = [by_layer[name].get(token) for name in layers]
        series.append(
            Series(
                label=token,
                x=list(range(len(layers))),
                y=[None if share is None else 100 * share for share in rows],
                style=Style(index % 6, "circle"),
            )
        )
    return Lines(
        title=f"{model.label}: attention of patches to class tokens and registers",
        x_label="attention layer",
        y_label="share of attention (%)",
        series=tuple(series),
        x_names=layer_names(layers),
        floor=0.0,
        include=(0.0,),
        marks=True,
    )


def first_maps(record: Record) -> Figure:
    """Positional attention before training, one row per locality strength (Fig. 3)."""
    maps = np.asarray(record.arrays["maps"], float)
    heads = tuple(f"head {head + 1}" for head in range(maps.shape[1]))
    panel = Maps(
        title="Positional attention before training",
        rows=tuple(f"α = {strength:g}" for strength in record.values["strengths"]),
        columns=heads,
        values=maps / maps.max((1, 2, 3), keepdims=True),
        query=(float(record.values["query"][0]), float(record.values["query"][1])),
    )
    return Figure(name="first_maps", title=panel.title, reading="", panels=(panel,))


def maps_rows(record: Record) -> list[TableRow]:
    """Return how many layers there are, and how many are gated."""
    values = record.values
    gated = f", {len(values['gated'])} gated" if values["gated"] else ""
    return [table_row("maps", f"{len(values['layers'])} layers{gated}")]
