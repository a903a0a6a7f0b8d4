"""Attention and relevance maps of a model's layers on some images, laid out on grids.

A map goes from every patch or token to every other. Tokens without coordinates (class,
distillation, registers) come after the patches as queries; as keys they have a share of each
query's attention, and the rows among patches are made to sum to one again, as
:mod:`vitascope.measure.attention.nonlocality` does. Padding of windows is dropped. Windows become
whole maps that are zero outside the query's window; pooled keys lie at the middle of what they
pool.

Shapes: B images, W windows per image, H heads, T queries, S keys; Q queries: those on the grid,
then those without coordinates; K keys on the grid.

A gated layer has a content map per image, a positional map stored as two small matrices (it is the
same for all images, and separable) and its gates. Any other layer has the map it uses; so has a
gated one whose positional map is not separable.

Shapes: E epochs, n images, H heads, Q queries: those on a grid, then tokens without coordinates; K
keys on a grid.

Relevance maps show what each prediction depends on, one byte per place. A network without attention
also shows which places have similar features.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture import TokenCoordinates
from vitascope.errors import UserError
from vitascope.explorer.compression import compress
from vitascope.measure.attention.gates import gates_in_force
from vitascope.measure.attention.maps import without_map
from vitascope.measure.attribution.relevance import QUICK, Explainer
from vitascope.measure.streaming.model_structure import ModelStructure

MOST_QUERIES = 1024  # patches of a layer; more cannot be pointed at
MOST_PLACES = 256  # of features that are compared with each other


@dataclass(frozen=True)
class GridLayout:
    """Order of a layer's queries and keys: on their grids, then tokens without coordinates.

    -1 for padding.
    """

    query: Tensor  # (W, T)
    key: Tensor  # (W, S)
    query_axes: tuple[list[float], list[float]]  # places down and across, in patches
    key_axes: tuple[list[float], list[float]]
    query_tokens: tuple[str, ...] = ()  # names of those without coordinates
    key_tokens: tuple[str, ...] = ()

    @property
    def grid(self) -> tuple[int, int]:
        """Queries down and across."""
        return len(self.query_axes[0]), len(self.query_axes[1])

    @property
    def keys(self) -> tuple[int, int]:
        """Keys down and across."""
        return len(self.key_axes[0]), len(self.key_axes[1])

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """From (B * W, H, T, S) to maps among patches, rows summing to one, and tokens' shares.

        Returns:
            (B, H, Q, K) on the grid of keys, and the share of each query's attention to
            keys without coordinates. (B, H, Q, tokens)
        """
        weights = weights.float().cpu().unflatten(0, (-1, len(self.query)))
        (h, w), (kh, kw) = self.grid, self.keys
        size = (h * w + len(self.query_tokens), kh * kw + len(self.key_tokens))
        out = weights.new_zeros(len(weights), weights.shape[2], *size)
        for window, (query, key) in enumerate(zip(self.query, self.key, strict=True)):
            rows, columns = (query >= 0).nonzero()[:, 0], (key >= 0).nonzero()[:, 0]
            part = weights[:, window][:, :, rows[:, None], columns]
            out[:, :, query[rows][:, None], key[columns]] += part
        patches, tokens = out[..., : kh * kw], out[..., kh * kw :]
        shares = tokens / out.sum(-1, keepdim=True).clamp(min=1e-12)
        return patches / patches.sum(-1, keepdim=True).clamp(min=1e-12), shares


def grid_layout(
    places: TokenCoordinates, query_tokens: Sequence[str] = (), key_tokens: Sequence[str] = ()
) -> GridLayout:
    """The layout of a layer's maps on the grid of patches.

    Args:
        places: Of its queries and keys.
        query_tokens: Names of the queries without coordinates; without names they are dropped.
        key_tokens: Of the keys.

    Raises:
        UserError: If its patches do not fill a grid, or are too many, with the reason.
    """
    step = places.step
    query, query_axes = _cells(places.query, step)
    key, key_axes = _cells(places.key, step)
    h, w = map(len, query_axes)
    if len(query[query >= 0].unique()) != h * w:
        raise UserError("its patches do not fill a grid")
    if h * w > MOST_QUERIES:
        raise UserError(f"it has {h * w} patches; the explorer shows at most {MOST_QUERIES}")
    _append(query, h * w, len(query_tokens))
    _append(key, len(key_axes[0]) * len(key_axes[1]), len(key_tokens))
    return GridLayout(query, key, query_axes, key_axes, tuple(query_tokens), tuple(key_tokens))


def _append(cells: Tensor, first: int, count: int) -> None:
    """Number the tokens without coordinates of the only window from ``first`` on."""
    if count:
        cells[0, (cells[0] < 0).nonzero()[:, 0]] = torch.arange(first, first + count)


def separable(
    position: Tensor, grid: tuple[int, int], keys: tuple[int, int]
) -> list[Tensor] | None:
    """One matrix down and one across whose product is the map; None where there are none.

    Args:
        position: Rows sum to one. (H, Q, K)
        grid: Queries down and across, h x w.
        keys: Keys down and across.

    Returns:
        Rows that sum to one. (H, h, kh), (H, w, kw)
    """
    whole = position.unflatten(2, keys).unflatten(1, grid)  # (H, h, w, kh, kw)
    down, across = whole.sum(-1).mean(2), whole.sum(-2).mean(1)
    product = down[:, :, None, :, None] * across[:, None, :, None, :]
    return [down, across] if (product - whole).abs().max() < 1e-4 else None


def _cells(
    places: Tensor, step: tuple[float, float]
) -> tuple[Tensor, tuple[list[float], list[float]]]:
    """The number of each token's cell in row-major order, and where rows and columns lie."""
    there = ~places[..., 0].isnan()
    index, axes = [], []
    for axis in (0, 1):
        fine = (places[..., axis] * 16).round()  # places that differ by rounding are one
        levels, inverse = fine[there].unique(return_inverse=True)
        index.append(torch.full(there.shape, -1).masked_scatter(there, inverse))
        axes.append((levels / 16 / step[axis]).tolist())
    cell = torch.where(there, index[0] * len(axes[1]) + index[1], -1)
    return cell, (axes[0], axes[1])


LayerMaps = dict[str, dict[str, Tensor]]  # layer -> maps (n, H, Q, K), shares, gate, down, across


def layouts_of(
    structure: ModelStructure, layers: str | Iterable[str]
) -> tuple[dict[str, GridLayout], dict[str, str]]:
    """Layouts of layers that attend to patches on a grid; the other layers, with the reason."""
    able, left_out = structure.chosen_layers(layers, without_map(structure), "the explorer")
    layouts = {}
    for name, places in able.items():
        try:
            tokens = [structure.query_names(places), structure.key_names(places)]
            layouts[name] = grid_layout(places, *tokens)
        except UserError as error:
            left_out[name] = str(error)
    if not layouts:
        name, why = next(iter(left_out.items()))
        raise UserError(f"the explorer needs attention on a grid of patches; {name}: {why}")
    return layouts, left_out


def attention_maps(
    model: nn.Module, images: Tensor, layouts: Mapping[str, GridLayout]
) -> tuple[LayerMaps, Tensor]:
    """Maps of every layer on a batch, and the model's probabilities. (n, K)"""
    gated = {n: m for n, m in capture.gated_layers(model).items() if n in layouts}
    gated = {n: m for n, m in gated.items() if not layouts[n].query_tokens + layouts[n].key_tokens}
    wanted = {n: ("content", "position") if n in gated else ("mixed",) for n in layouts}
    raw: dict[str, dict[str, Tensor]] = {name: {} for name in layouts}

    def show(layer: str, part: str, weights: Tensor) -> None:
        some = weights[:1] if part == "position" else weights  # the same for every image
        raw[layer][part], shares = layouts[layer](some)
        if shares.shape[-1]:
            raw[layer]["shares"] = shares

    with capture.evaluating(model), capture.watch_maps(model, wanted, show):
        answers = capture.logits_of(model(images)).float().softmax(-1).cpu()
    layer_maps: LayerMaps = {}
    for name, layout in layouts.items():
        maps = raw[name]
        if "mixed" in maps:
            layer_maps[name] = {part: maps[part] for part in ("mixed", "shares") if part in maps}
            layer_maps[name]["maps"] = layer_maps[name].pop("mixed")
            continue
        gate = torch.from_numpy(gates_in_force(gated[name])).float()
        axes = separable(maps["position"][0], layout.grid, layout.keys)
        if axes is None:
            share = gate[:, None, None]
            layer_maps[name] = {"maps": (1 - share) * maps["content"] + share * maps["position"]}
        else:
            layer_maps[name] = {"maps": maps["content"], "gate": gate}
            layer_maps[name] |= {"down": axes[0], "across": axes[1]}
    return layer_maps, answers


def stack_epochs(
    parts: Sequence[LayerMaps], layouts: Mapping[str, GridLayout]
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Compressed arrays over epochs, and a description of each layer for the reader of a record."""
    arrays: dict[str, np.ndarray] = {}
    described = []
    for name, layout in layouts.items():
        maps = torch.stack([part[name]["maps"] for part in parts])  # (E, n, H, Q, K)
        small = compress(maps.flatten(0, 2))
        for key, value in small.arrays.items():
            arrays[f"{key}/{name}"] = value.reshape(*maps.shape[:3], *value.shape[1:])
        if all("shares" in part[name] for part in parts):
            shares = torch.stack([part[name]["shares"] for part in parts])
            arrays[f"shares/{name}"] = (65535 * shares.double()).round().numpy().astype(np.uint16)
        for key in ("gate", "down", "across"):
            if all(key in part[name] for part in parts):
                arrays[f"{key}/{name}"] = torch.stack([part[name][key] for part in parts]).numpy()
        described.append(
            {
                "name": name,
                "heads": maps.shape[2],
                "gated": f"gate/{name}" in arrays,
                "grid": layout.grid,
                "keys": layout.keys,
                "query_axes": layout.query_axes,
                "key_axes": layout.key_axes,
                "query_tokens": layout.query_tokens,
                "key_tokens": layout.key_tokens,
                "mean_error": small.mean_error,
                "max_error": small.max_error,
            }
        )
    return arrays, described


def top_answers(found: Sequence[Tensor], classes: Sequence[str]) -> list[list[Any]] | None:
    """[class, probability] per epoch and image; None if the outputs are other classes."""
    if found[0].shape[-1] != len(classes):
        return None
    return [[[classes[int(p.argmax())], round(p.max().item(), 4)] for p in one] for one in found]


def explainer_of(structure: ModelStructure) -> Explainer | None:
    """Return what explains the model; None where it has no features on a grid."""
    try:
        return Explainer(structure, QUICK)
    except UserError:
        return None


def relevance_maps(
    explain: Explainer | None, images: Tensor
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Arrays ``relevance/METHOD`` (n, h, w), 255 the largest of each, and their descriptions."""
    if explain is None:
        return {}, []
    try:
        maps, _ = explain(images)
    except UserError:  # no classifier, or a prediction that depends on no place
        return {}, []
    arrays, described = {}, []
    for method, values in maps.items():
        top = values.flatten(1).amax(1).clamp(min=1e-30)[:, None, None]
        arrays[f"relevance/{method}"] = (255 * values / top).round().byte().cpu().numpy()
        described.append({"method": method, "grid": tuple(values.shape[1:])})
    if explain.methods == ["grad-cam"]:  # nothing to show of attention
        similar = similar_features(explain, images)
        if similar is not None:
            arrays["relevance/similarity"] = (255 * similar).round().byte().cpu().numpy()
            described.append({"method": "similarity", "grid": tuple(similar.shape[2:])})
    return arrays, described


def similar_features(explain: Explainer, images: Tensor) -> Tensor | None:
    """Return the similarity of the features at each two places, 0 to 1. (n, h * w, h, w)

    The cosine of the features of two places, less their mean over the image; below 0 it is 0. They
    are the features that Grad-CAM weights. None where there are too many places.
    """
    assert explain.layer is not None
    name = explain.layer.name
    with capture.evaluating(explain.model), capture.features(explain.model, name) as outputs:
        explain.model(images)
    features = explain.layer.layout.as_image(outputs[name]).float()  # (n, C, h, w)
    h, w = features.shape[2:]
    if h * w > MOST_PLACES:
        return None
    places = features.flatten(2) - features.flatten(2).mean(2, keepdim=True)
    places = torch.nn.functional.normalize(places, dim=1)
    return (places.mT @ places).clamp(0, 1).unflatten(2, (h, w))
