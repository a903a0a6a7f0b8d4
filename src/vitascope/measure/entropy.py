"""How dense is attention?

The entropy of each row of the attention map, averaged over queries and images (context
broadcasting, supplement; dense attention = high entropy):

    E[h] = -1/T sum_ij A[h, i, j] log A[h, i, j]

in nats, and relative to log S, its value for a uniform head over S keys: 0 looks at one token, 1 at
all alike (log 197 = 5.28 nats for a ViT on 14 x 14 patches). Class tokens count, as queries and as
keys; in windows S is the window. Attention over channels is left out, and refused when there is
nothing else; so is attention to a single key.

Shapes: B images, H heads, T queries, S keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.batches import first_images, images_in
from vitascope.record import Record

__all__ = ["Entropy", "entropy", "row_entropy"]


@dataclass(frozen=True)
class Entropy:
    """Attention entropy of every head of every layer."""

    nats: Mapping[str, np.ndarray]  # layer -> (H,)
    num_keys: Mapping[str, int]
    num_images: int

    @property
    def relative(self) -> dict[str, np.ndarray]:
        """Relative to a uniform head, 0 to 1."""
        return {name: value / log(self.num_keys[name]) for name, value in self.nats.items()}

    def to_record(self) -> Record:
        """Means over heads as values, one array of heads a layer in nats."""
        values = {
            "layers": list(self.nats),
            "nats": [float(v.mean()) for v in self.nats.values()],
            "relative": [float(v.mean()) for v in self.relative.values()],
            "num_keys": list(self.num_keys.values()),
            "num_images": self.num_images,
        }
        return Record(kind="entropy", values=values, arrays=dict(self.nats))


def row_entropy(weights: Tensor) -> Tensor:
    """Mean entropy of the rows of (..., T, S), in nats. (...)

    >>> row_entropy(torch.full((3, 4), 0.25)).item() == log(4)
    True
    """
    return torch.special.entr(weights.double()).sum(-1).mean(-1)


def entropy(
    model: nn.Module, batches: Iterable[Any], *, layers: str | Iterable[str] = "*"
) -> Entropy:
    """Measure every head of ``model`` on ``batches`` of images.

    Args:
        model: Any model with attention over tokens; it is left as it came.
        batches: Images (B, C, height, width) or (images, labels).
        layers: Wildcards for the attention layers.
    """
    images, batches = first_images(batches, model)
    places = capture.places(model, images)
    able = {n: p.key.shape[1] for n, p in places.items() if p.over_tokens and p.key.shape[1] > 1}
    if not able:
        raise UserError(f"entropy needs attention over tokens; {type(model).__name__} has none")
    names = capture.matching(layers, able, "attention layer")
    sums: dict[str, Tensor] = {}
    num_images = 0
    for images in images_in(batches, model):
        size = len(images)

        def reduce(_name: str, weights: Tensor, size: int = size) -> Tensor:
            return row_entropy(weights).mean(0).cpu() * size  # windows are averaged

        with capture.evaluating(model), capture.attention(model, names, reduce) as seen:
            model(images)
        for name, value in seen.items():
            sums[name] = sums[name] + value if name in sums else value
        num_images += size
    nats = {name: (value / num_images).numpy() for name, value in sums.items()}
    return Entropy(nats, {name: able[name] for name in nats}, num_images)
