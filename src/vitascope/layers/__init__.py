"""The papers' equations as modules.

From the smallest part up:

* `positions` (a Gaussian window per head), `psa` (eq. 4), `gpsa` (eq. 6-7), `pruned` (skips closed
  branches at inference), `freezing` (ablations);
* `neighbors` and `neighborhood` (attention over the k x k patches around each), `window` (attention
  inside windows of a map);
* `blur` (the mean over k x k points of a map, without weights);
* `kernel` and `from_convolution` (a trained convolution as attention);
* `context_broadcasting`: every token gets the mean of all tokens, in any model.

`attention_path` chooses between the fused kernel and plain products; `self_attention` is timm's
plain multi-head self-attention on that path.

A layer is imported, with timm, when it is first used: `neighbors` needs torch alone.

Subpackages: `context_broadcasting`. Imports `capture`; used by `models`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timm.layers import Attention as SelfAttention

    from vitascope.layers.blur import BoxBlur
    from vitascope.layers.context_broadcasting.broadcast import ContextBroadcast
    from vitascope.layers.context_broadcasting.broadcasting import BroadcastCost, broadcast_cost
    from vitascope.layers.freezing import (
        freeze_gates,
        freeze_gpsa,
        gpsa_layers,
    )
    from vitascope.layers.from_convolution import attention_from_convolution
    from vitascope.layers.gpsa import GPSA
    from vitascope.layers.neighborhood import NeighborhoodAttention
    from vitascope.layers.neighbors import neighborhood_attention, neighborhood_mask
    from vitascope.layers.pruned import PrunedGPSA
    from vitascope.layers.psa import PSA, AttentionMaps
    from vitascope.layers.window import WindowAttention

__all__ = [
    "GPSA",
    "PSA",
    "AttentionMaps",
    "BoxBlur",
    "BroadcastCost",
    "ContextBroadcast",
    "NeighborhoodAttention",
    "PrunedGPSA",
    "SelfAttention",
    "WindowAttention",
    "attention_from_convolution",
    "broadcast_cost",
    "freeze_gates",
    "freeze_gpsa",
    "gpsa_layers",
    "neighborhood_attention",
    "neighborhood_mask",
]

_HOME = {
    "AttentionMaps": "psa",
    "BoxBlur": "blur",
    "BroadcastCost": "context_broadcasting.broadcasting",
    "ContextBroadcast": "context_broadcasting.broadcast",
    "GPSA": "gpsa",
    "NeighborhoodAttention": "neighborhood",
    "PSA": "psa",
    "PrunedGPSA": "pruned",
    "WindowAttention": "window",
    "attention_from_convolution": "from_convolution",
    "broadcast_cost": "context_broadcasting.broadcasting",
    "freeze_gates": "freezing",
    "freeze_gpsa": "freezing",
    "gpsa_layers": "freezing",
    "neighborhood_attention": "neighbors",
    "neighborhood_mask": "neighbors",
}


def __getattr__(name: str) -> Any:
    if name == "SelfAttention":
        return import_module("timm.layers").Attention
    if name in _HOME:
        return getattr(import_module(f"vitascope.layers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'vitascope.layers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
