"""Nonlocality: mean attention distance per head, in patches.

The nonlocality of a head is the mean distance from a query patch to the key patches it attends to
(ConViT, https://arxiv.org/abs/2103.10697, eq. 8):

    D[h] = 1/N sum_ij A[h, i, j] |p_i - p_j|

0 is a head that looks at its own patch; on a 14 x 14 grid a uniform head has D = 7.3. One patch is
one step of the layer's own grid (the finer of queries and keys); ``step`` gives it in pixels.

Deviations. The released script feeds every layer the patch embedding: here each layer is measured
on the input it really gets. Tokens without coordinates (class, distillation, registers, padding)
are dropped and the rows renormalised over the patches (the paper has none in its GPSA layers).
Windows count with distances on the image; pooled keys lie at the middle of what they pool. Layers
whose only query is a class token, attention over channels, and layers whose tokens cannot be traced
have no distance: ``left_out`` names them, and it is an error if no layer remains.

Shapes: B images, W windows per image, H heads, T queries, S keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.measure.attention.rows import row_blocks
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import StreamingInstrument, run_instrument
from vitascope.settings import checked

__all__ = [
    "Nonlocality",
    "StreamingNonlocality",
    "attention_distance",
    "grid_coordinates",
    "nonlocality",
    "without_patches",
]


@dataclass(frozen=True)
class Nonlocality(InstrumentResult, kind="nonlocality", rows="layers"):
    """Mean attention distance of every head of every layer, in patches."""

    distance: Mapping[str, np.ndarray]  # layer -> (H,)
    grid: Mapping[str, tuple[int, int]]  # patches down and across
    step: Mapping[str, tuple[float, float]]  # one patch in pixels
    uniform: Mapping[str, float]  # distance of a head that attends uniformly
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # layer -> why

    @property
    def layers(self) -> tuple[str, ...]:
        """The measured layers, in order of execution."""
        return tuple(self.distance)

    def per_layer(self) -> np.ndarray:
        """Mean over heads. (L,)"""
        return np.array([float(d.mean()) for d in self.distance.values()])

    def summary(self) -> dict[str, Any]:
        """Return the means over heads."""
        return {"per_layer": self.per_layer(), "unit": "patches"}


def grid_coordinates(height: int, width: int) -> Tensor:
    """Coordinates (y, x) of a grid's patches in row-major order, in patches. (1, N, 2)"""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns], dim=-1).reshape(1, -1, 2).double()


def attention_distance(weights: Tensor, distances: Tensor) -> Tensor:
    """Mean distance from query to key, over heads' rows. (B, H)

    Args:
        weights: Rows sum to one. (B * W, H, T, S), image by image.
        distances: NaN where a query or a key has no coordinates. (W, T, S)

    >>> uniform = torch.full((1, 1, 4, 4), 0.25)
    >>> coordinates = grid_coordinates(2, 2)
    >>> attention_distance(uniform, torch.cdist(coordinates, coordinates)).round(decimals=3)
    tensor([[0.8540]], dtype=torch.float64)
    """
    return _Distances(distances)(weights)


class _Distances:
    """Distances from every query to every key, ready for maps. (W, T, S)"""

    def __init__(self, distances: Tensor):
        placed = ~distances.isnan()
        self.num_windows = len(distances)
        self.distances = distances.nan_to_num(0.0).unsqueeze(1)
        self.keys = placed.any(1)[:, None, None]  # (W, 1, 1, S)
        self.queries = placed.any(2)[:, None]  # (W, 1, T)
        self.all_placed = bool(placed.all())
        self.uniform = float(distances.nanmean())

    def __call__(self, weights: Tensor) -> Tensor:
        """Mean distance of a batch of maps. (B, H)"""
        self.distances, self.keys = self.distances.to(weights), self.keys.to(weights)
        weights = weights.unflatten(0, (-1, self.num_windows))  # (B, W, H, T, S)
        reached, row_sums, first = [], [], 0
        for rows in row_blocks(weights):
            last = first + rows.shape[-2]
            reached.append((rows * self.distances[..., first:last, :]).sum(-1).double())
            to_patches = rows if self.all_placed else rows * self.keys
            row_sums.append(to_patches.sum(-1).double())
            first = last
        row_sum = torch.cat(row_sums, -1)  # (B, W, H, T)
        counted = (row_sum > 1e-12).double() * self.queries.to(row_sum)
        mean = torch.cat(reached, -1) / row_sum.clamp(min=1e-12) * counted
        return mean.sum((1, 3)) / counted.sum((1, 3)).clamp(min=1)


def distances_of(coordinates: capture.TokenCoordinates) -> Tensor:
    """Distance between every query and key of each window, in patches. (W, T, S)"""
    step = torch.tensor(coordinates.step, dtype=torch.float64)
    query, key = coordinates.query.double() / step, coordinates.key.double() / step
    return (query.unsqueeze(2) - key.unsqueeze(1)).pow(2).sum(-1).sqrt()


def _distances_of_layers(
    layers: Mapping[str, capture.TokenCoordinates],
) -> dict[str, _Distances]:
    """Distances by layer, kept once for layers that have the same tokens."""
    different: list[tuple[capture.TokenCoordinates, _Distances]] = []
    distances = {}
    for name, tokens in layers.items():
        same = next((d for other, d in different if tokens.same_places(other)), None)
        if same is None:
            same = _Distances(distances_of(tokens))
            different.append((tokens, same))
        distances[name] = same
    return distances


def without_patches(structure: ModelStructure) -> dict[str, str]:
    """Attention layers in which no patch attends to a patch, and why."""
    reasons = {}
    for name, tokens in structure.coordinates.items():
        if not tokens.over_tokens:
            reasons[name] = "attends over channels"
        elif tokens.query.isnan().all():
            names = [f"the {name}" for name in structure.query_names(tokens)]
            if len(names) > 4:  # queries for objects
                names = [f"{len(names)} tokens that are no patches"]
            who = " and ".join(names) or "tokens without coordinates"
            reasons[name] = f"no patch attends, only {who}"
        elif tokens.key.isnan().all():
            reasons[name] = "its keys are no patches: learned, or weights computed without keys"
    return reasons


class StreamingNonlocality(StreamingInstrument, name="nonlocality"):
    """Sums distances over images."""

    def __init__(self, structure: ModelStructure, layers: str | Iterable[str] = "*"):
        unable = without_patches(structure)
        self.coordinates, self.left_out = structure.chosen_layers(layers, unable, "nonlocality")
        self.maps = dict.fromkeys(self.coordinates, ("mixed",))
        self.distances = _distances_of_layers(self.coordinates)
        self.sums: dict[str, Any] = dict.fromkeys(self.coordinates, 0.0)

    def add_map(self, layer: str, part: str, weights: Tensor) -> None:
        """Add a batch."""
        self.sums[layer] += self.distances[layer](weights).sum(0).cpu()

    def result(self, num_images: int) -> Nonlocality:
        """Means over images."""
        return Nonlocality(
            {name: (value / num_images).numpy() for name, value in self.sums.items()},
            {name: tokens.grid for name, tokens in self.coordinates.items()},
            {name: tokens.step for name, tokens in self.coordinates.items()},
            {name: distances.uniform for name, distances in self.distances.items()},
            num_images,
            self.left_out,
        )


@checked
def nonlocality(
    model: nn.Module, batches: Iterable[Any], *, layers: str | Iterable[str] = "*", **layout: Any
) -> Nonlocality:
    """Measure every head of ``model`` on ``batches`` of images.

    Args:
        model: Any model with attention over patches; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        layers: Wildcards for the attention layers.
        layout: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be traced.
    """
    return run_instrument(StreamingNonlocality, model, batches, layout, layers=layers)
