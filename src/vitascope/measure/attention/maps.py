"""Attention maps of one query patch and of class tokens and registers, per layer and head.

The row of the attention map of one query patch, laid out on the image, per layer and head,
averaged over images (ConViT, https://arxiv.org/abs/2103.10697, Fig. 3, 7 and 15-17; shown there on
a log colour scale). Gated layers give three: content, position, and the mix that is used, with
their gates. A value is the weight of one key; a row sums to 1, less what goes to class tokens.

In windows the map is zero outside the query's window; pooled keys make a coarser map. The query is
given as a fraction of the image (down, across), so that it means the same in every layer: the
middle is (0.5, 0.5).

Tokens without coordinates (class, distillation, registers) have their own maps, ``tokens``, and as
keys a share of the attention of all patches, ``to_tokens``, by layer and head. In class attention
(CaiT, https://arxiv.org/abs/2103.17239, eq. 6-9) only such tokens are queries: the layer has
``tokens`` and neither a query patch nor ``to_tokens``.

Shapes: H heads, h x w keys, P tokens without coordinates as queries, S as keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.repeated_calls import module_of
from vitascope.errors import UserError
from vitascope.measure.attention.gates import gates_in_force
from vitascope.measure.attention.nonlocality import without_patches
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import StreamingInstrument, run_instrument
from vitascope.settings import checked

__all__ = ["MapsOfQuery", "StreamingMaps", "maps", "without_map"]


@dataclass(frozen=True)
class MapsOfQuery(InstrumentResult, kind="maps"):
    """Attention maps of one query, by layer; content and position for gated layers alone.

    ``query`` has every layer; None in class attention, where no patch is a query.
    """

    mixed: Mapping[str, np.ndarray]  # layer -> (H, h, w)
    content: Mapping[str, np.ndarray]
    position: Mapping[str, np.ndarray]
    gate: Mapping[str, np.ndarray]  # layer -> (H,)
    query: Mapping[str, tuple[float, float] | None]  # where it lies on the map, in its pixels
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # layer -> why
    tokens: Mapping[str, np.ndarray] = field(default_factory=dict)  # layer -> (P, H, h, w)
    to_tokens: Mapping[str, np.ndarray] = field(default_factory=dict)  # layer -> (S, H), of 1
    token_names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of each layer

    def summary(self) -> dict[str, Any]:
        """Return the layers with their queries, and the shares of tokens, means over heads."""
        return {
            "layers": list(self.query),
            "query": list(self.query.values()),
            "gated": list(self.gate),
            "token_share": {name: share.mean(1) for name, share in self.to_tokens.items()},
        }


UP_AND_LEFT = (0.02, 0.01)  # pixels: a query between patches takes the upper, then the left one


class _Layer:
    """The row of a layer's maps to take, and where its keys are on the image."""

    def __init__(
        self,
        coordinates: capture.TokenCoordinates,
        query: tuple[float, float],
        size: tuple[int, int],
    ):
        target = coordinates.query.new_tensor(
            [q * s - 0.5 - nudge for q, s, nudge in zip(query, size, UP_AND_LEFT, strict=True)]
        )
        distance = (coordinates.query - target).norm(dim=-1).nan_to_num(float("inf"))  # (W, T)
        self.window, self.row = divmod(int(distance.argmin()), distance.shape[1])
        self.num_windows = len(distance)
        flat = coordinates.key.reshape(-1, 2)
        rows, columns = (_levels(flat[:, axis]) for axis in (0, 1))
        key = coordinates.key[self.window]
        self.placed = ~key[:, 0].isnan()
        self.index = torch.stack(
            [_nearest(rows, key[self.placed, 0]), _nearest(columns, key[self.placed, 1])]
        )
        self.shape = len(rows), len(columns)
        self.asking = coordinates.query[self.window, :, 0].isnan()  # queries without coordinates
        self.at: tuple[float, float] | None = None  # no patch is a query
        if not coordinates.only_tokens_ask:
            at = coordinates.query[self.window, self.row]
            self.at = _fraction(rows, at[0].item()), _fraction(columns, at[1].item())

    def __call__(self, weights: Tensor) -> Tensor:
        """Sum over images of the query's row on the grid of keys. (H, h, w)"""
        mine = weights.unflatten(0, (-1, self.num_windows))[:, self.window, :, self.row]
        total = mine.double().sum(0).cpu()[:, self.placed]
        out = total.new_zeros(len(total), *self.shape)
        out[:, self.index[0], self.index[1]] = total
        return out

    def of_tokens(self, weights: Tensor) -> Tensor:
        """Sum over images of the maps of tokens without coordinates. (P, H, h, w)"""
        rows = weights[:, :, self.asking].double().sum(0).cpu().transpose(0, 1)  # (P, H, S)
        out = rows.new_zeros(*rows.shape[:2], *self.shape)
        out[:, :, self.index[0], self.index[1]] = rows[..., self.placed]
        return out

    def to_tokens(self, weights: Tensor) -> Tensor:
        """Sum over images of the patches' attention to tokens without coordinates. (S, H)"""
        given = weights[..., ~self.placed][:, :, ~self.asking].double().mean(2).sum(0)
        return given.mT.cpu()


def without_map(structure: ModelStructure) -> dict[str, str]:
    """Attention layers in which no query attends to patches, and why."""
    asked = {name for name, tokens in structure.coordinates.items() if tokens.only_tokens_ask}
    return {name: why for name, why in without_patches(structure).items() if name not in asked}


def _levels(values: Tensor) -> Tensor:
    return (values[~values.isnan()] * 16).round().unique() / 16


def _nearest(levels: Tensor, values: Tensor) -> Tensor:
    return (values[:, None] - levels).abs().argmin(1)


def _fraction(levels: Tensor, value: float) -> float:
    """The index of ``value`` among ``levels``: 1.5 is between the second and the third."""
    if len(levels) == 1:
        return 0.0
    step = (levels[-1] - levels[0]).item() / (len(levels) - 1)
    return (value - levels[0].item()) / step


class StreamingMaps(StreamingInstrument, name="maps"):
    """Sums the query's rows over images."""

    def __init__(
        self,
        structure: ModelStructure,
        layers: str | Iterable[str] = "*",
        query: tuple[float, float] = (0.5, 0.5),
    ):
        if not all(0 <= value <= 1 for value in query):
            raise UserError(
                f"query {query} is not on the image; give fractions (down, across) in 0..1"
            )
        coordinates, self.left_out = structure.chosen_layers(layers, without_map(structure), "maps")
        size = (structure.images.shape[-2], structure.images.shape[-1])
        self.read = {name: _Layer(tokens, query, size) for name, tokens in coordinates.items()}
        gated = capture.gated_layers(structure.model)
        self.gated = {n: gated[module_of(n)] for n in coordinates if module_of(n) in gated}
        parts = ("mixed", "content", "position")
        self.maps = {name: parts if name in self.gated else parts[:1] for name in coordinates}
        self.names = {
            name: structure.query_names(c) if c.only_tokens_ask else structure.key_names(c)
            for name, c in coordinates.items()
        }
        self.names = {name: tokens for name, tokens in self.names.items() if tokens}
        self.sums: dict[str, dict[str, Any]] = {p: {} for p in (*parts, "tokens", "to_tokens")}

    def add_map(self, layer: str, part: str, weights: Tensor) -> None:
        """Add a batch."""
        read, tokens = self.read[layer], part == "mixed" and layer in self.names
        parts = {part: read(weights)} if read.at is not None else {}
        if tokens:
            parts["tokens"] = read.of_tokens(weights)
        if tokens and read.at is not None:
            parts["to_tokens"] = read.to_tokens(weights)
        for key, value in parts.items():
            self.sums[key][layer] = self.sums[key].get(layer, 0.0) + value

    def result(self, num_images: int) -> MapsOfQuery:
        """Means over images."""
        mean = {
            part: {name: (total / num_images).numpy() for name, total in sums.items()}
            for part, sums in self.sums.items()
        }
        return MapsOfQuery(
            **mean,
            gate={name: gates_in_force(layer) for name, layer in self.gated.items()},
            query={name: read.at for name, read in self.read.items()},
            num_images=num_images,
            left_out=self.left_out,
            token_names=self.names,
        )


@checked
def maps(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    query: tuple[float, float] = (0.5, 0.5),
    layers: str | Iterable[str] = "*",
    **layout: Any,
) -> MapsOfQuery:
    """Collect the maps of one query patch, averaged over images.

    Args:
        model: Any model with attention to patches; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        query: Down and across, 0 to 1; the patch nearest to it is taken.
        layers: Wildcards for the attention layers.
        layout: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be traced.
    """
    return run_instrument(StreamingMaps, model, batches, layout, layers=layers, query=query)
