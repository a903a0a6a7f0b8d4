"""Windows of positional heads: where does each head look from its patch, and how widely?

A positional head of GPSA attends from patch i to patch j, delta patches away, with the score

    v . r_ij = a |delta|^2 + sum_k b_k delta_k = -alpha |delta - Delta|^2 + constant

    alpha = -a        Delta = b / (2 alpha)        width = 1 / sqrt(alpha)

(ConViT, https://arxiv.org/abs/2103.10697, eq. 5: v = -alpha (1, -2 Delta_1, -2 Delta_2)). So its
attention is a Gaussian window centred Delta from the query, in patches, that has fallen to 1/e of
its peak one width away. Both are learned. A fresh ConViT has the offsets of a convolution's kernel
as centres and a width of 1 / sqrt(locality strength). A head with alpha <= 0 has no window (it
looks to the border); its numbers are NaN. No images are needed.

Shapes: H heads, A axes of the grid (down, across), E epochs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.input_check import require_module
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["Windows", "position_weights", "window_of", "windows"]

WEIGHT = "pos_proj.weight"  # of a GPSA or PSA layer, ours or timm's


@dataclass(frozen=True)
class Windows(InstrumentResult, kind="windows", rows="layers"):
    """The window of every head of every positional layer, now and at earlier epochs."""

    centre: Mapping[str, np.ndarray]  # layer -> (H, A), patches from the query: down, across
    width: Mapping[str, np.ndarray]  # layer -> (H,), patches
    epochs: tuple[int, ...] = ()
    centres: Mapping[str, np.ndarray] = field(default_factory=dict)  # layer -> (E, H, A)
    widths: Mapping[str, np.ndarray] = field(default_factory=dict)  # layer -> (E, H)

    @property
    def layers(self) -> tuple[str, ...]:
        """The positional layers, in the model's order."""
        return tuple(self.centre)

    def distance(self) -> dict[str, np.ndarray]:
        """Distance of each head's centre from its query, in patches. layer -> (H,)"""
        return {name: np.linalg.norm(centre, axis=-1) for name, centre in self.centre.items()}

    def drift(self) -> dict[str, np.ndarray]:
        """Distance of each centre from its place at the first epoch. layer -> (E, H)"""
        return {name: np.linalg.norm(c - c[:1], axis=-1) for name, c in self.centres.items()}

    def summary(self) -> dict[str, Any]:
        """Return the means over the heads that have a window, and how many have none."""
        return {
            "distance": [_mean(distance) for distance in self.distance().values()],
            "width": [_mean(width) for width in self.width.values()],
            "without_window": [int(np.isnan(width).sum()) for width in self.width.values()],
        }


def _mean(heads: np.ndarray) -> float | None:
    """The mean over heads that have a window; None if none has."""
    finite = heads[np.isfinite(heads)]
    return float(finite.mean()) if len(finite) else None


def window_of(weight: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Centre (H, A) and width (H,) of positional heads with these weights (H, A + 1).

    >>> from vitascope.layers.positions import window_weight
    >>> import torch
    >>> window_of(window_weight(torch.tensor([[1.0, -2.0]]), 4.0))
    (array([[ 1., -2.]]), array([0.5]))
    """
    stored = weight.detach().double().cpu().numpy()
    alpha = np.where(stored[:, -1] < 0, -stored[:, -1], np.nan)
    return stored[:, -2::-1] / (2 * alpha[:, None]), alpha**-0.5


def position_weights(model: nn.Module) -> dict[str, Tensor]:
    """The position weights (H, A + 1) of each positional layer of a model, by its name."""
    weights_of = {}
    for name, module in model.named_modules():
        weight = getattr(getattr(module, "pos_proj", None), "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[1] > 1:
            weights_of[name] = weight
    return weights_of


@checked
def windows(
    model: nn.Module,
    batches: Any = None,
    *,
    layers: str | Iterable[str] = "*",
    earlier: Mapping[int, Mapping[str, Tensor]] | None = None,
) -> Windows:
    """The window of every positional head of ``model``; ``batches`` is ignored.

    Args:
        model: With GPSA or PSA layers, ours or timm's.
        batches: No images are needed.
        layers: Wildcards for the layers.
        earlier: State dicts by epoch, for the windows over training.

    Raises:
        UserError: If it has no positional heads, or the earlier weights are of another model.
    """
    require_module(model)
    weights = position_weights(model)
    if not weights:
        raise UserError(
            f"{type(model).__name__} has no positional heads: they are the pos_proj of (gated) "
            "positional self-attention (convit_tiny, convit_micro, …)"
        )
    names = capture.matching(layers, weights, "positional layer")
    now = {name: window_of(weights[name]) for name in names}
    earlier = earlier or {}
    epochs = tuple(sorted(earlier))
    path = {
        name: [_at(earlier[epoch], name, weights[name], epoch) for epoch in epochs]
        for name in (names if earlier else ())
    }
    return Windows(
        centre={name: centre for name, (centre, _) in now.items()},
        width={name: width for name, (_, width) in now.items()},
        epochs=epochs,
        centres={name: np.stack([centre for centre, _ in each]) for name, each in path.items()},
        widths={name: np.stack([width for _, width in each]) for name, each in path.items()},
    )


def _at(
    state: Mapping[str, Tensor], name: str, now: Tensor, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centre and width of one layer in the weights of an epoch."""
    weight = state.get(f"{name}.{WEIGHT}")
    if weight is None or weight.shape != now.shape:
        raise UserError(
            f"the weights of epoch {epoch} have no {name}.{WEIGHT} of {tuple(now.shape)}"
        )
    return window_of(weight)
