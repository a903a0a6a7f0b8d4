"""Attention maps read back from an explorer's record.

What the page's script computes, in numpy, for the drawing that needs no script.

    scores      softmax_j sum_c scale_c query_ic key_jc          components
    levels      0 where the level is 0, else floor^((255 - level) / 254), divided by the row's sum
    mixed       (1 - g) content + g position, g the gate as learned, 0 or 1

Tokens without coordinates (class, distillation, registers) come after the patches as queries; as
keys they have shares of each query's attention, and rows are among patches.

Shapes: H heads, Q queries on a grid (h, w), K keys on a grid.
"""

import numpy as np

from vitascope.record import Record

FLOOR = 1e-5  # the weight of level 1, as vitascope.explorer.compression writes it


def content(record: Record, layer: str, epoch: int = 0, image: int = 0) -> np.ndarray:
    """The stored maps of a layer: content where it is gated, else what it uses. (H, Q, K)"""
    described = next(one for one in record.values["layers"] if one["name"] == layer)
    return with_tokens(record, layer, epoch, image)[:, : int(np.prod(described["grid"]))]


def with_tokens(record: Record, layer: str, epoch: int = 0, image: int = 0) -> np.ndarray:
    """Like :func:`content`, with the rows of tokens without coordinates last. (H, queries, K)"""
    if f"levels/{layer}" in record.arrays:
        levels = record.arrays[f"levels/{layer}"][epoch, image].astype(float)
        weights = np.where(levels > 0, FLOOR ** ((255 - levels) / 254), 0.0)
    else:
        query, key, scale = (
            record.arrays[f"{part}/{layer}"][epoch, image].astype(float)
            for part in ("query", "key", "scale")
        )
        scores = (query * scale[:, None]) @ key.swapaxes(-1, -2)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300))


def position(record: Record, layer: str, epoch: int = 0) -> np.ndarray | None:
    """The positional maps of a gated layer; None where it has none. (H, Q, K)"""
    if f"gate/{layer}" not in record.arrays:
        return None
    down, across = (record.arrays[f"{part}/{layer}"][epoch] for part in ("down", "across"))
    whole = np.einsum("hac,hbd->habcd", down.astype(float), across.astype(float))
    heads, h, w, kh, kw = whole.shape
    return whole.reshape(heads, h * w, kh * kw)


def mixed(
    record: Record, layer: str, epoch: int = 0, image: int = 0, gate: float | None = None
) -> np.ndarray:
    """The maps a layer uses, with its gates as learned or all at ``gate``. (H, Q, K)"""
    maps, fixed = content(record, layer, epoch, image), position(record, layer, epoch)
    if fixed is None:
        return maps
    learned = record.arrays[f"gate/{layer}"][epoch].astype(float)
    share = (learned if gate is None else np.full_like(learned, gate))[:, None, None]
    return np.asarray((1 - share) * maps + share * fixed)
