"""Gates of GPSA: how much does each head attend by position?

    gate[h] = sigmoid(lambda[h])        A[h] = (1 - gate) content + gate position

(ConViT, https://arxiv.org/abs/2103.10697, eq. 7 and Fig. 6.) 1 is a head that looks only at
positions, 0 one that looks only at content; a fresh ConViT has lambda = 1, so 0.731. No images are
needed. As in the paper; a gate that is forced (masking) is reported as forced.

In mixture attention (:mod:`vitascope.layers.mixture`) the gate is the share of position among four
parts; ``shares`` has the shares of all of them.

Shapes: H heads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.input_check import require_weights
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["Gates", "gates", "gates_in_force"]


@dataclass(frozen=True)
class Gates(InstrumentResult, kind="gates", rows="layers"):
    """The gate of every head of every gated layer."""

    gate: Mapping[str, np.ndarray]  # layer -> (H,), between 0 and 1
    # of mixture attention: layer -> share of each part, mean over heads
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[str, ...]:
        """The gated layers, in the model's order."""
        return tuple(self.gate)

    def per_layer(self) -> np.ndarray:
        """Mean over heads. (L,)"""
        return np.array([float(g.mean()) for g in self.gate.values()])

    def summary(self) -> dict[str, Any]:
        """Return the means over heads."""
        return {"per_layer": self.per_layer()}


def gates_in_force(layer: nn.Module) -> np.ndarray:
    """The gates a layer uses: its own ``gate`` where it has one, else sigmoid of its parameter."""
    gate = getattr(layer, "gate", None)
    if hasattr(layer, "shares_of_parts"):
        gate = _shares(layer)["position"]
    elif not isinstance(gate, Tensor):
        gate = torch.sigmoid(layer.get_parameter("gating_param"))
    return gate.detach().double().flatten().cpu().numpy()


def _shares(layer: Any) -> dict[str, Tensor]:
    """The share of each part of mixture attention in each head. part -> (H,)"""
    shares: dict[str, Tensor] = layer.shares_of_parts()
    return shares


@checked
def gates(model: nn.Module, batches: Any = None, *, layers: str | Iterable[str] = "*") -> Gates:
    """The gates of every gated layer of ``model``; ``batches`` is ignored."""
    require_weights(model)
    mixed = {n: m for n, m in model.named_modules() if hasattr(m, "shares_of_parts")}
    gated = {**capture.gated_layers(model), **mixed}
    if not gated:
        raise UserError(
            f"{type(model).__name__} has no gates: they are the gating_param of gated positional "
            "self-attention (convit_tiny, convit_micro, …) or the shares of mixture attention "
            "(vit_micro+mixture, …)"
        )
    names = capture.matching(layers, gated, "gated layer")
    return Gates(
        gate={name: gates_in_force(gated[name]) for name in names},
        shares={
            name: {part: float(share.mean()) for part, share in _shares(mixed[name]).items()}
            for name in names
            if name in mixed
        },
    )
