"""Attention maps of a model's layers on some images, laid out on grids, with gates and predictions.

A gated layer has a content map per image, a positional map stored as two small matrices (it is the
same for all images, and separable) and its gates. Any other layer has the map it uses; so has a
gated one whose positional map is not separable.

Shapes: E epochs, n images, H heads, Q queries: those on a grid, then tokens without coordinates; K
keys on a grid.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.explorer.compression import compress
from vitascope.explorer.grid_maps import GridLayout, grid_layout, separable
from vitascope.measure.attention.gates import gates_in_force
from vitascope.measure.attention.maps import without_map
from vitascope.measure.streaming.model_structure import ModelStructure

LayerMaps = dict[str, dict[str, Tensor]]  # layer -> maps (n, H, Q, K), shares, gate, down, across


def layouts_of(
    structure: ModelStructure, layers: str | Iterable[str]
) -> tuple[dict[str, GridLayout], dict[str, str]]:
    """Layouts of layers that attend to patches on a grid; the other layers, with the reason."""
    able, left_out = structure.chosen_layers(layers, without_map(structure), "the explorer")
    found = {}
    for name, places in able.items():
        try:
            tokens = [structure.query_names(places), structure.key_names(places)]
            found[name] = grid_layout(places, *tokens)
        except UserError as error:
            left_out[name] = str(error)
    if not found:
        name, why = next(iter(left_out.items()))
        raise UserError(f"the explorer needs attention on a grid of patches; {name}: {why}")
    return found, left_out


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
    found: LayerMaps = {}
    for name, layout in layouts.items():
        maps = raw[name]
        if "mixed" in maps:
            found[name] = {part: maps[part] for part in ("mixed", "shares") if part in maps}
            found[name]["maps"] = found[name].pop("mixed")
            continue
        gate = torch.from_numpy(gates_in_force(gated[name])).float()
        axes = separable(maps["position"][0], layout.grid, layout.keys)
        if axes is None:
            share = gate[:, None, None]
            found[name] = {"maps": (1 - share) * maps["content"] + share * maps["position"]}
        else:
            found[name] = {"maps": maps["content"], "gate": gate}
            found[name] |= {"down": axes[0], "across": axes[1]}
    return found, answers


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
