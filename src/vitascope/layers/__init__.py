"""The papers' equations as modules.

From the smallest part up:

* `positions` (a Gaussian window per head), `psa` (eq. 4), `gpsa` (eq. 6-7), `pruned` (skips closed
  branches at inference), `freezing` (ablations);
* `neighbors` and `neighborhood` (attention over the k x k patches around each), `window` (attention
  inside windows of a map);
* `blur` (the mean over k x k points of a map, without weights);
* `kernel` and `from_convolution` (a trained convolution as attention);
* `context_broadcasting`: every token gets the mean of all tokens, in any model.

`attention_path` chooses between the fused kernel and plain products; plain multi-head
self-attention is timm's on that path.

Subpackages: `context_broadcasting`. Imports `capture`; used by `models`.
"""

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
]
