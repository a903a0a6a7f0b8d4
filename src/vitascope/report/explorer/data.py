"""What the explorer's script needs of its records, as JSON that can stand in a page.

Arrays are base64, little-endian; a picture is kept once for all models that were shown it.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from vitascope.record import Record
from vitascope.report.explorer import attention_maps as stored_maps
from vitascope.report.figures.style import styles_of
from vitascope.report.figures.svg import picture_source

RELEVANCE_NAMES = {
    "rollout": "Attention rollout",
    "gradient": "Gradient-weighted attention",
    "grad-cam": "Grad-CAM",
    "similarity": "Features like those of the boxed place",
}
_PACKED = ("levels", "query", "key", "scale", "shares", "gate", "down", "across")


def data_of(
    records: Sequence[Record], css: Mapping[str, str] | None = None, first: Sequence[str] = ()
) -> dict[str, Any]:
    """All that the script needs, in JSON types."""
    labels = labels_of(records)
    kinds = [kind_of(record.values) for record in records]
    own = styles_of(zip(labels, kinds, strict=True))
    images: dict[str, Any] = {}
    models = []
    for record, label in zip(records, labels, strict=True):
        values = record.values
        keys = [f"{values['data']}#{image['index']}" for image in values["images"]]
        for number, (key, image) in enumerate(zip(keys, values["images"], strict=True)):
            source = picture_source(record.arrays[f"image/{number}"])
            images.setdefault(key, {"src": source, "label": str(image["label"] or "image")})
        models.append(
            {
                "label": label,
                "css": (css or {}).get(str(values["model"]), own[label].css),
                "about": values.get("about", ""),
                "epochs": values["epochs"],
                "images": keys,
                "answers": _judged(values["answers"], values["images"]),
                "layers": [_layer(record, layer) for layer in values["layers"]],
                "relevance": [_relevance(record, one) for one in values.get("relevance") or ()],
                "notes": [*values["notes"], *_missing(values["left_out"])],
            }
        )
    names = [str(record.values["model"]) for record in records]
    wanted = [names.index(name) for name in first if name in names]
    shown = list(dict.fromkeys([*wanted, *_first_pair(kinds)]))[:2]
    return {"floor": stored_maps.FLOOR, "models": models, "images": images, "shown": shown}


def as_json(value: Any) -> Markup:
    """JSON that can stand inside a script element: nothing in it can end the element.

    >>> print(as_json({"a": "</script><!--"}))
    {"a":"\\u003c/script\\u003e\\u003c!--"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def labels_of(records: Sequence[Record]) -> list[str]:
    """The models' names, told apart by a number where they are the same."""
    names = [str(record.values["model"]).removeprefix("timm:") for record in records]
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(f"{name} ({seen[name]})" if names.count(name) > 1 else name)
    return labels


def kind_of(values: Mapping[str, Any]) -> str:
    """Gates make a ConViT of a model, attention without them a ViT."""
    layers = values.get("layers") or ()
    gated = any(layer.get("gated") for layer in layers)
    return "convit" if gated else "vit" if layers else "other"


def _first_pair(kinds: Sequence[str]) -> list[int]:
    """Return the two to show first: a plain model and a gated one, as in Fig. 7, if there are both.

    >>> (
    ...     _first_pair(["other", "convit", "vit"]),
    ...     _first_pair(["other", "vit"]),
    ...     _first_pair(["vit", "vit"]),
    ... )
    ([2, 1], [1, 0], [0, 1])
    """
    order = [kinds.index(kind) for kind in ("vit", "convit", "other") if kind in kinds]
    return [*order, *(index for index in range(len(kinds)) if index not in order)][:2]


def _judged(answers: Any, images: Sequence[Mapping[str, Any]]) -> Any:
    """[class, probability, whether it is right if that is known] per epoch and image."""
    if answers is None:
        return None
    labels = [image["label"] for image in images]
    return [
        [
            [name, share, None if label is None else name == label]
            for (name, share), label in zip(row, labels, strict=True)
        ]
        for row in answers
    ]


def _missing(left_out: Mapping[str, str]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for layer, why in left_out.items():
        reasons.setdefault(why, []).append(layer)
    return [f"without {', '.join(layers)} ({why})" for why, layers in reasons.items()]


def _layer(record: Record, layer: Mapping[str, Any]) -> dict[str, Any]:
    arrays = {part: record.arrays.get(f"{part}/{layer['name']}") for part in _PACKED}
    there = {part: array for part, array in arrays.items() if array is not None}
    wanted = ("name", "heads", "gated", "grid", "keys", "query_axes", "key_axes")
    return {
        **{name: layer[name] for name in wanted},
        "queryTokens": list(layer.get("query_tokens") or ()),  # records before them have none
        "keyTokens": list(layer.get("key_tokens") or ()),
        "rank": there["key"].shape[-1] if "key" in there else 0,
        "packed": {part: _text(array) for part, array in there.items()},
    }


def _relevance(record: Record, one: Mapping[str, Any]) -> dict[str, Any]:
    method = str(one["method"])
    return {
        "name": RELEVANCE_NAMES.get(method, method),
        "grid": one["grid"],
        "pairs": method == "similarity",  # a map for each place
        "packed": _text(record.arrays[f"relevance/{method}"]),
    }


def _text(array: np.ndarray) -> str:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(np.ascontiguousarray(little).tobytes()).decode("ascii")
