"""How far attention reaches, in patches.

The nonlocality of a head is the mean distance from a query patch to the key patches it attends to
(ConViT, https://arxiv.org/abs/2103.10697, eq. 8):

    D[h] = 1/N sum_ij A[h, i, j] |p_i - p_j|

0 is a head that looks at its own patch; on a 14 x 14 grid a uniform head has D = 7.3. One patch is
one step of the layer's own grid (the finer of queries and keys); ``step`` gives it in pixels.

Deviations. The released script feeds every layer the patch embedding: here each layer is measured
on the input it really gets. Tokens without a place (class, distillation, registers, padding) are
dropped and the rows renormalised over the patches (the paper has none in its GPSA layers). Windows
count with distances on the image; pooled keys lie at the middle of what they pool. Layers whose
only query is a class token, and attention over channels, have no distance: they are left out, and
a model that has nothing else is refused.

Shapes: B images, W windows an image, H heads, T queries, S keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.batches import first_images, images_in
from vitascope.record import Record

__all__ = ["Nonlocality", "attention_distance", "grid_places", "measured_layers", "nonlocality"]


@dataclass(frozen=True)
class Nonlocality:
    """Mean attention distance of every head of every layer, in patches."""

    distance: Mapping[str, np.ndarray]  # layer -> (H,)
    grid: Mapping[str, tuple[int, int]]  # patches down and across
    step: Mapping[str, tuple[float, float]]  # one patch in pixels
    uniform: Mapping[str, float]  # what a head that looks everywhere it may would have
    num_images: int

    @property
    def layers(self) -> tuple[str, ...]:
        """The measured layers, in order of execution."""
        return tuple(self.distance)

    def per_layer(self) -> np.ndarray:
        """Mean over heads. (L,)"""
        return np.array([float(d.mean()) for d in self.distance.values()])

    def to_record(self) -> Record:
        """Layers, grids and means as values, one array of heads a layer."""
        values = {
            "layers": list(self.layers),
            "per_layer": self.per_layer().tolist(),
            "uniform": list(self.uniform.values()),
            "grid": [list(grid) for grid in self.grid.values()],
            "step": [list(step) for step in self.step.values()],
            "unit": "patches",
            "num_images": self.num_images,
        }
        return Record(kind="nonlocality", values=values, arrays=dict(self.distance))


def grid_places(height: int, width: int) -> Tensor:
    """Places (y, x) of a grid's patches in row-major order, one apart. (1, N, 2)"""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns], dim=-1).reshape(1, -1, 2).double()


def attention_distance(weights: Tensor, distances: Tensor) -> Tensor:
    """Mean distance from query to key, over heads' rows. (B, H)

    Args:
        weights: Rows sum to one. (B * W, H, T, S), image by image.
        distances: NaN where a query or a key has no place. (W, T, S)

    >>> uniform = torch.full((1, 1, 4, 4), 0.25)
    >>> places = grid_places(2, 2)
    >>> attention_distance(uniform, torch.cdist(places, places)).round(decimals=3)
    tensor([[0.8540]], dtype=torch.float64)
    """
    placed = ~distances.isnan()
    distances = distances.nan_to_num(0.0).to(weights.device)
    placed = placed.to(weights.device)
    weights = weights.double().unflatten(0, (-1, len(distances)))  # (B, W, H, T, S)
    kept = (weights * placed.unsqueeze(1)).sum(-1)  # (B, W, H, T)
    reached = (weights * distances.unsqueeze(1)).sum(-1) / kept.clamp(min=1e-12)
    counted = (kept > 1e-12).double()
    return (reached * counted).sum((1, 3)) / counted.sum((1, 3)).clamp(min=1)


def distances_of(places: capture.Places) -> Tensor:
    """Between every query and key of each window, in patches. (W, T, S)"""
    step = torch.tensor(places.step, dtype=torch.float64)
    query, key = places.query.double() / step, places.key.double() / step
    return (query.unsqueeze(2) - key.unsqueeze(1)).pow(2).sum(-1).sqrt()


def measured_layers(
    model: nn.Module, images: Tensor, layers: str | Iterable[str], what: str
) -> dict[str, capture.Places]:
    """Attention layers with a patch for a query, among those that match ``layers``."""
    found = capture.places(model, images)
    if not found:
        raise UserError(f"{what} needs attention over tokens; {type(model).__name__} has none")
    able = {n: p for n, p in found.items() if not (p.query.isnan().all() or p.key.isnan().all())}
    if not able:
        raise UserError(
            f"{what} needs patches that attend to patches; in {type(model).__name__} "
            f"{', '.join(list(found)[:3])} … attend over channels or from a class token"
        )
    return {name: able[name] for name in capture.matching(layers, able, f"{what} layer")}


def nonlocality(
    model: nn.Module, batches: Iterable[Any], *, layers: str | Iterable[str] = "*"
) -> Nonlocality:
    """Measure every head of ``model`` on ``batches`` of images.

    Args:
        model: Any model with attention over patches; it is left as it came.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        layers: Wildcards for the attention layers.
    """
    images, batches = first_images(batches, model)
    places = measured_layers(model, images, layers, "nonlocality")
    distances = {name: distances_of(place) for name, place in places.items()}
    sums: dict[str, Tensor] = {}
    num_images = 0
    for images in images_in(batches, model):

        def reduce(name: str, weights: Tensor) -> Tensor:
            return attention_distance(weights, distances[name]).sum(0).cpu()

        with capture.evaluating(model), capture.attention(model, list(places), reduce) as seen:
            model(images)
        for name, value in seen.items():
            sums[name] = sums.get(name, 0) + value
        num_images += len(images)
    return Nonlocality(
        {name: (value / num_images).numpy() for name, value in sums.items()},
        {name: places[name].grid for name in sums},
        {name: places[name].step for name in sums},
        {name: float(distances[name].nanmean()) for name in sums},
        num_images,
    )
