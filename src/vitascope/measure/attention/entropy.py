"""Attention entropy: how dense is the attention of each head?

The entropy of each row of the attention map, averaged over queries and images (context
broadcasting, supplement; dense attention = high entropy):

    E[h] = -1/T sum_ij A[h, i, j] log A[h, i, j]

in nats, and relative to log S, its value for a uniform head over S keys: 0 looks at one token, 1 at
all alike (log 197 = 5.28 nats for a ViT on 14 x 14 patches). Class tokens count, as queries and as
keys; in windows S is the window. Layers that attend over channels or to a single key, and layers
whose tokens cannot be traced, are listed in ``left_out``; it is an error if no layer remains.

Shapes: B images, H heads, T queries, S keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.measure.attention.rows import row_blocks
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import StreamingInstrument, run_instrument
from vitascope.settings import checked

__all__ = ["Entropy", "StreamingEntropy", "entropy", "row_entropy"]


@dataclass(frozen=True)
class Entropy(InstrumentResult, kind="entropy", rows="layers"):
    """Attention entropy of every head of every layer."""

    nats: Mapping[str, np.ndarray]  # layer -> (H,)
    num_keys: Mapping[str, int]
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # layer -> why

    @property
    def relative(self) -> dict[str, np.ndarray]:
        """Relative to a uniform head, 0 to 1."""
        return {name: value / log(self.num_keys[name]) for name, value in self.nats.items()}

    def summary(self) -> dict[str, Any]:
        """Return the means over heads."""
        return {
            "nats": [float(heads.mean()) for heads in self.nats.values()],
            "relative": [float(heads.mean()) for heads in self.relative.values()],
        }


def row_entropy(weights: Tensor) -> Tensor:
    """Mean entropy of the rows of (..., T, S), in nats; the rows are averaged in float64. (...)

    >>> round(row_entropy(torch.full((3, 4), 0.25, dtype=torch.float64)).item() / log(4), 6)
    1.0
    """
    tiny = torch.finfo(weights.dtype).tiny  # 0 log 0 = 0
    rows = [part.clamp(min=tiny).log_().mul_(part).sum(-1).double() for part in row_blocks(weights)]
    return -torch.cat(rows, -1).mean(-1)


class StreamingEntropy(StreamingInstrument, name="entropy"):
    """Sums entropies over images."""

    def __init__(self, structure: ModelStructure, layers: str | Iterable[str] = "*"):
        coordinates = structure.coordinates.items()
        unable = {name: "attends to a single key" for name, p in coordinates if p.key.shape[1] == 1}
        unable |= {name: "attends over channels" for name, p in coordinates if not p.over_tokens}
        self.coordinates, self.left_out = structure.chosen_layers(layers, unable, "entropy")
        self.maps = dict.fromkeys(self.coordinates, ("mixed",))
        self.sums: dict[str, Any] = dict.fromkeys(self.coordinates, 0.0)

    def add_map(self, layer: str, part: str, weights: Tensor) -> None:
        """Add a batch; windows are averaged."""
        images = len(weights) / len(self.coordinates[layer].query)
        self.sums[layer] += row_entropy(weights).mean(0).cpu() * images

    def result(self, num_images: int) -> Entropy:
        """Means over images."""
        nats = {name: (value / num_images).numpy() for name, value in self.sums.items()}
        num_keys = {name: tokens.key.shape[1] for name, tokens in self.coordinates.items()}
        return Entropy(nats, num_keys, num_images, self.left_out)


@checked
def entropy(
    model: nn.Module, batches: Iterable[Any], *, layers: str | Iterable[str] = "*", **layout: Any
) -> Entropy:
    """Measure every head of ``model`` on ``batches`` of images.

    Args:
        model: Any model with attention over tokens; it is left unchanged.
        batches: Images (B, C, height, width) or (images, labels).
        layers: Wildcards for the attention layers.
        layout: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be traced.
    """
    return run_instrument(StreamingEntropy, model, batches, layout, layers=layers)
