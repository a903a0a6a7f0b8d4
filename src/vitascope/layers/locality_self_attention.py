"""Locality self-attention: a learned temperature and a masked diagonal.

    A_h = softmax(M(Q_h K_h^T / tau_h)),      M sets the diagonal to minus infinity

(Lee et al. 2021, https://arxiv.org/abs/2112.13492, section 3.2 and eq. 4-6). Softmax over many
similar scores is flat, and the largest score is a token's with itself: a temperature that may fall
below sqrt(d) and a masked diagonal make attention look at other tokens, and sharply. The class
token's own entry is masked as well. tau starts at sqrt(d); one number per head, as in the released
code (the paper speaks of one per layer).

Shapes: B images, H heads, T tokens, D width, d = D / H.
"""

from typing import Any

import torch
from timm.layers import Attention
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.layers.attention_path import fused


class LocalitySelfAttention(Attention):
    """timm's self-attention with a learned temperature per head and a masked diagonal.

    >>> LocalitySelfAttention(8, 2)(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    locality = "mild: sharper attention, and none of a token to itself"

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.temperature = nn.Parameter(self.qkv.weight.new_empty(self.num_heads))
        self.reset_temperature()

    def reset_temperature(self) -> None:
        """Set the temperature to sqrt(d)."""
        nn.init.constant_(self.temperature, self.head_dim**0.5)

    def forward(  # type: ignore[override]
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        if attn_mask is not None or is_causal:
            raise UserError("locality self-attention has its own mask and takes no other")
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)  # (B, H, T, d)
        query = self.q_norm(query) / self.temperature[:, None, None]
        others = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        dropout = self.attn_drop.p if self.training else 0.0
        out = fused(query, self.k_norm(key), value, attn_mask=others, dropout_p=dropout, scale=1.0)
        return self.proj_drop(self.proj(self.norm(out.transpose(1, 2).flatten(2))))
