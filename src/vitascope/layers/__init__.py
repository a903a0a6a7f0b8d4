"""The papers' equations as modules. Imports `capture`; `models`, `studies` and `bench` use it.

From the smallest part up:

* `positions` (a Gaussian window per head), `psa` (eq. 4), `gpsa` (eq. 6-7), `pruned` (skips closed
  branches at inference), `switches` (ablations);
* `neighbors` and `neighborhood` (attention over the k x k patches around each), `window` (attention
  inside windows of a map);
* `blur` (the mean over k x k points of a map, without weights);
* `kernel` and `from_convolution` (a trained convolution as attention);
* `broadcast` (every token gets the mean), `class_token` (checks that there is one), `sublayers`
  (finds MLPs and attention in any model), `whole_image` (windows and padding), `broadcasting`
  (inserts it into a model).

Plain multi-head self-attention is timm's.
"""

from timm.layers import Attention as SelfAttention

from vitascope.layers.blur import BoxBlur
from vitascope.layers.broadcast import ContextBroadcast
from vitascope.layers.broadcasting import BroadcastCost, broadcast_cost
from vitascope.layers.from_convolution import attention_from_convolution
from vitascope.layers.gpsa import GPSA
from vitascope.layers.neighborhood import NeighborhoodAttention
from vitascope.layers.pruned import PrunedGPSA
from vitascope.layers.psa import PSA, AttentionMaps
from vitascope.layers.switches import (
    forced_gates,
    freeze_gates,
    freeze_gpsa,
    gpsa_layers,
    without_pos_embed,
)
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
    "forced_gates",
    "freeze_gates",
    "freeze_gpsa",
    "gpsa_layers",
    "without_pos_embed",
]
