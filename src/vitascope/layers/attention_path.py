"""Choose how attention is computed: torch's fused kernel, or two plain products and a softmax.

    softmax(Q K^T / sqrt(d)) V

is the same number either way, to rounding. The fused kernel never makes the T x T map and is faster
wherever the map is large. With few tokens in narrow heads its set-up outweighs that: trained on one
core, 9 heads of 8 channels with 16 tokens take 1.6 times as long fused as plain, 1.4 times with 36;
from 49 tokens on, or from heads of 32 channels on, the fused kernel is never slower. With 256
tokens it is 4 to 5 times as fast as plain products, and also ahead of plain products over one image
at a time, whose maps stay in the cache. The rule is the same for every model of ours, so that
comparisons do not depend on the kernel.

Shapes: B images, H heads, T tokens, d channels of a head.
"""

from timm.layers import Attention
from torch import Tensor, nn
from torch.nn import functional as F

MOST_TOKENS = 48
WIDEST_HEAD = 16


def is_plain(num_tokens: int, head_dim: int) -> bool:
    """Whether plain products are faster than the fused kernel.

    >>> is_plain(17, 8), is_plain(65, 8), is_plain(17, 64)
    (True, False, False)
    """
    return num_tokens <= MOST_TOKENS and head_dim <= WIDEST_HEAD


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """``softmax(Q K^T / sqrt(d)) V``. 3 x (B, H, T, d) -> (B, H, T, d)"""
    head_dim = query.shape[-1]
    if is_plain(query.shape[-2], head_dim):
        return (query * head_dim**-0.5 @ key.mT).softmax(dim=-1) @ value
    return F.scaled_dot_product_attention(query, key, value)


def choose_path(model: nn.Module, num_tokens: int) -> None:
    """Set the path of timm's attention layers in a model that runs with ``num_tokens`` tokens."""
    for layer in model.modules():
        if isinstance(layer, Attention) and is_plain(num_tokens, layer.head_dim):
            setattr(layer, "fused_attn", False)  # noqa: B010 - timm declares it final for scripting
