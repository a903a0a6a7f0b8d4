"""Parts of a ConViT that are not trained: its gates, or whole GPSA layers.

The training ablations of d'Ascoli et al. 2021 (https://arxiv.org/abs/2103.10697, Table 3). Masking
at test time (Tables 5 and 6) is `vitascope.measure.ablation.masking`.
"""

from torch import nn

from vitascope.errors import UserError
from vitascope.layers.gpsa import GPSA
from vitascope.layers.psa import PSA

__all__ = ["freeze_gates", "freeze_gpsa", "gpsa_layers"]


def gpsa_layers(model: nn.Module) -> dict[str, GPSA]:
    """Our gated layers by name, in the order of the model; none is an error."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, GPSA)}
    if not layers:
        raise UserError(f"{type(model).__name__} has no GPSA layer, so it has no gates")
    return layers


def freeze_gates(model: nn.Module) -> None:
    """Stop training the gates, where they are now (Table 3, b: at lambda = 0)."""
    for layer in gpsa_layers(model).values():
        layer.gating_param.requires_grad_(False)


def freeze_gpsa(model: nn.Module) -> None:
    """Stop training every positional attention layer as it is now (Table 3, f and g)."""
    for layer in model.modules():
        if isinstance(layer, PSA):
            layer.requires_grad_(False)
