"""Ablations that switch off a part of a model, and restore it afterwards.

Test-time masking (d'Ascoli et al. 2021, appendix F): Table 5 takes the position embeddings away,
Table 6 forces the gates of the first k GPSA layers to 1 (content masked) or 0 (position masked).
Training ablations (Table 3): gates frozen, whole GPSA layers frozen.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from vitascope.errors import UserError
from vitascope.layers.gpsa import GPSA
from vitascope.layers.psa import PSA

__all__ = ["forced_gates", "freeze_gates", "freeze_gpsa", "gpsa_layers", "without_pos_embed"]


def gpsa_layers(model: nn.Module) -> dict[str, GPSA]:
    """Our gated layers by name, in the order of the model; none is an error."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, GPSA)}
    if not layers:
        raise UserError(f"{type(model).__name__} has no GPSA layer, so it has no gates")
    return layers


@contextmanager
def forced_gates(model: nn.Module, gate: float, first: int | None = None) -> Iterator[None]:
    """Inside the block the first ``first`` GPSA layers (all by default) have all gates at ``gate``.

    1 masks the content, 0 masks the position.
    """
    layers = list(gpsa_layers(model).values())
    if not 0 <= gate <= 1:
        raise UserError(f"a gate lies between 0 (content) and 1 (position), not at {gate}")
    if first is not None and not 0 <= first <= len(layers):
        raise UserError(f"the model has {len(layers)} GPSA layers; cannot force the first {first}")
    before = [layer.forced_gate for layer in layers]
    try:
        for layer in layers[:first]:
            layer.forced_gate = float(gate)
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.forced_gate = value


@contextmanager
def without_pos_embed(model: nn.Module) -> Iterator[None]:
    """Inside the block the model's absolute position embeddings are zero (Table 5)."""
    table = getattr(model, "pos_embed", None)
    if not isinstance(table, nn.Parameter):
        raise UserError(f"{type(model).__name__} has no position embedding `pos_embed`")
    before = table.detach().clone()
    try:
        with torch.no_grad():
            table.zero_()
        yield
    finally:
        with torch.no_grad():
            table.copy_(before)


def freeze_gates(model: nn.Module) -> None:
    """Stop training the gates, where they are now (Table 3, b: at lambda = 0)."""
    for layer in gpsa_layers(model).values():
        layer.gating_param.requires_grad_(False)


def freeze_gpsa(model: nn.Module) -> None:
    """Stop training every positional attention layer as it is now (Table 3, f and g)."""
    for layer in model.modules():
        if isinstance(layer, PSA):
            layer.requires_grad_(False)
