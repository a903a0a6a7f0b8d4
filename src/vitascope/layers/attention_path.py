"""Choose how attention is computed: torch's fused kernel, or two plain products and a softmax.

    softmax(Q K^T / sqrt(d)) V

is the same number either way, to rounding. The fused kernel never makes the T x T map and is faster
wherever the map is large. With few tokens in narrow heads its set-up outweighs that: trained on one
core, 9 heads of 8 channels with 16 tokens take 1.6 times as long fused as plain, 1.4 times with 36;
from 49 tokens on, or from heads of 32 channels on, the fused kernel is never slower. With 256
tokens it is 4 to 5 times as fast as plain products, and also ahead of plain products over one image
at a time, whose maps stay in the cache.

On a CPU the kernel is slow for heads of fewer than 16 channels: 8 of them with 256 tokens take 1.7
times as long as 16. Zeros change neither a product of queries and keys nor the other channels of
the output, so narrow heads are filled up with them: 1.7 times as fast in training with 256 tokens,
1.15 times with 64, never slower.

The rule is the same for every model of ours, so that comparisons do not depend on the kernel.

Shapes: B images, H heads, T tokens, D width, d = D / H channels of a head.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_TOKENS = 48
WIDEST_HEAD = 16
KERNEL_WIDTH = 16  # channels of a head that a CPU's kernel is made for, at least


def is_plain(num_tokens: int, head_dim: int) -> bool:
    """Return whether plain products are faster than the fused kernel.

    >>> is_plain(17, 8), is_plain(65, 8), is_plain(17, 64)
    (True, False, False)
    """
    return num_tokens <= MOST_TOKENS and head_dim <= WIDEST_HEAD


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """``softmax(Q K^T / sqrt(d)) V``. 3 x (B, H, T, d) -> (B, H, T, d)"""
    head_dim = query.shape[-1]
    if is_plain(query.shape[-2], head_dim):
        return (query * head_dim**-0.5 @ key.mT).softmax(dim=-1) @ value
    return fused(query, key, value)


def fused(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, **how: Any
) -> Tensor:
    """torch's ``scaled_dot_product_attention``, of narrow heads filled up with zeros on a CPU.

    Not where the fused kernel is off (``sdpa_kernel(SDPBackend.MATH)``), as it is to count
    multiply-adds and for second derivatives, nor in what is compiled or exported.
    """
    head_dim = query.shape[-1]
    spare = KERNEL_WIDTH - head_dim
    if spare <= 0 or query.device.type != "cpu" or not _is_kernel_used():
        return F.scaled_dot_product_attention(query, key, value, scale=scale, **how)
    query, key, value = (F.pad(part, (0, spare)) for part in (query, key, value))
    scale = head_dim**-0.5 if scale is None else scale
    return F.scaled_dot_product_attention(query, key, value, scale=scale, **how)[..., :head_dim]


def _is_kernel_used() -> bool:
    """The switch is CUDA's by name, and that of the CPU's kernel, too; compilers do not know it."""
    return not torch.compiler.is_compiling() and torch.backends.cuda.flash_sdp_enabled()
