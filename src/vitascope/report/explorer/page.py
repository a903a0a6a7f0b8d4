"""The attention explorer as a section of a page: markup, script, style and data; no server.

The maps are base64 inside JSON, escaped so that it cannot end its script element; the script reads
them as :mod:`vitascope.report.explorer.attention_maps` does. Without JavaScript the page shows a
few maps as drawings. Two models are shown side by side (ConViT, https://arxiv.org/abs/2103.10697,
Fig. 7: log colour scale, query boxed).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from vitascope.record import Record
from vitascope.report.explorer import attention_maps as stored_maps
from vitascope.report.explorer.data import RELEVANCE_NAMES, as_json, data_of, labels_of
from vitascope.report.figures.style import COLOURS
from vitascope.report.page_templates import asset, environment, script_hash

MOST_BYTES = 3_600_000  # of maps and images in a page, as base64

_RAMP = ("#000004", "#3d0965", "#8a226a", "#d24644", "#f98e09", "#f9cb35", "#fcffa4")  # inferno


@dataclass(frozen=True, kw_only=True)
class ExplorerPart:
    """A part of a page."""

    html: Markup
    script: str
    style: str


_PARTS = ("explorer_choice.js", "explorer_maps.js", "explorer_drawing.js", "explorer.js")

_BODY = "\n".join(map(asset, _PARTS))

EXPLORER_SCRIPT = f'(function () {{\n"use strict";\n{_BODY}}})();\n'

EXPLORER_STYLE = asset("explorer.css")


def section(
    records: Sequence[Record],
    css: Mapping[str, str] | None = None,
    live: Mapping[str, Any] | None = None,
    most: int = MOST_BYTES,
    first: Sequence[str] = (),
) -> ExplorerPart:
    """The explorer of these records, as far as they fit in a page.

    Args:
        records: Of kind "explorer", one per model.
        css: The class that colours a model, by its name; chosen here when left out.
        live: Where a server answers for uploaded images: ``path``, ``token``, ``most`` bytes.
        most: Bytes of maps and images; beyond, whole records are left out, and named.
        first: The models to open with.
    """
    records = sorted(records, key=lambda record: record.values["model"] not in first)
    shown, left_out = within(records, most)
    data = data_of(shown, css, first)
    notes = [f"{m['label']}: {'; '.join(m['notes'])}." for m in data["models"] if m["notes"]]
    notes += [f"Left out, to keep the page small: {', '.join(left_out)}."] if left_out else []
    errors = [layer["max_error"] for record in shown for layer in record.values["layers"]]
    text = {**data, "live": live} if live else data
    html = (
        environment()
        .get_template("explorer.html")
        .render(
            data=as_json(text),
            still=[
                ((model["label"], model["css"]), _still(record))
                for model, record in zip(data["models"], shown, strict=True)
            ],
            several={1: "", 2: "two models"}.get(len(shown), "two of the models"),
            gated=any(layer["gated"] for record in shown for layer in record.values["layers"]),
            attention=bool(errors),
            patches=any(0 not in layer["grid"] for r in shown for layer in r.values["layers"]),
            tokens=any(layer.get("key_tokens") for r in shown for layer in r.values["layers"]),
            rests=any(record.values.get("relevance") for record in shown),
            error=f"{100 * max(errors, default=0.0):.1f}\u00a0%",
            notes=notes,
        )
    )
    return ExplorerPart(html=Markup(html), script=EXPLORER_SCRIPT, style=EXPLORER_STYLE)


def page(records: Sequence[Record], live: Mapping[str, Any] | None = None) -> str:
    """A whole page with nothing but the explorer."""
    part = section(records, live=live)
    script = asset("script.js") + part.script
    text = (
        environment()
        .get_template("live.html")
        .render(
            title=", ".join(labels_of(records)),
            hash=script_hash(script),
            colours=COLOURS,
            style=Markup(asset("style.css") + part.style),
            script=Markup(script),
            body=part.html,
        )
    )
    return str(text)


def within(records: Sequence[Record], most: int) -> tuple[list[Record], list[str]]:
    """The records that fit together in ``most`` bytes of base64, and the names of the others."""
    shown: list[Record] = []
    left_out: list[str] = []
    total = 0
    for record in records:
        size = sum(array.nbytes for array in record.arrays.values()) * 4 // 3
        if shown and total + size > most:
            left_out.append(str(record.values["model"]))
        else:
            shown.append(record)
            total += size
    return shown, left_out


def _still(record: Record) -> list[tuple[str, Markup]]:
    """Attention of the middle patch in the first and last layer, head 1, and relevance maps.

    Drawn without a script. In class attention it is the attention of the class token.
    """
    layers, drawn = record.values["layers"], []
    for one in record.values.get("relevance") or ():
        if one["method"] == "similarity":  # of one place to all: needs the script
            continue
        row = record.arrays[f"relevance/{one['method']}"][0].astype(float)
        name = RELEVANCE_NAMES.get(one["method"], one["method"])
        svg = _svg(row / max(row.sum(), 1.0), None, row.shape, "Relevance of each place")
        drawn.append((f"depends on: {name}", svg))
    for number in dict.fromkeys((0, len(layers) - 1)) if layers else ():
        layer, epoch = layers[number], len(record.values["epochs"]) - 1
        h, w = layer["grid"]
        label = f"layer {number + 1}, head 1"
        if not h * w:
            row, who = stored_maps.with_tokens(record, layer["name"], epoch)[0, 0], "the "
            who += str(layer["query_tokens"][0])
            svg = _svg(row.reshape(layer["keys"]), None, (h, w), f"Attention of {who}")
            drawn.append((f"{label}, {who}", svg))
            continue
        query = (h // 2, w // 2)
        row = stored_maps.mixed(record, layer["name"], epoch)[0, query[0] * w + query[1]]
        svg = _svg(row.reshape(layer["keys"]), query, (h, w), "Attention of the middle patch")
        drawn.append((label, svg))
    return drawn


def _svg(
    row: np.ndarray, query: tuple[int, int] | None, grid: tuple[int, ...], label: str
) -> Markup:
    height, width = row.shape
    share = np.log(np.clip(row * row.size / 0.05, 1, None)) / np.log(row.size / 0.05)
    steps = np.clip((share * len(_RAMP)).astype(int), 0, len(_RAMP) - 1)
    paths = [
        f'<path fill="{colour}" d="'
        + "".join(f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(steps == number))
        + '"/>'
        for number, colour in enumerate(_RAMP)
    ]
    frame = ""
    if query is not None:
        down, across = height / grid[0], width / grid[1]
        frame = f'<rect x="{query[1] * across:g}" y="{query[0] * down:g}" width="{across:g}" '
        frame += f'height="{down:g}" fill="none" stroke="#fff" stroke-width="{across / 7:g}"/>'
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
        f' shape-rendering="crispEdges">{"".join(paths)}{frame}</svg>'
    )
