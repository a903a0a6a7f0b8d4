"""timm's multi-head self-attention on the path that is fastest for its shape."""

from timm.layers import Attention
from torch import Tensor

from vitascope.layers.attention_path import attend


class SelfAttention(Attention):
    """timm's self-attention, computed the way that is fastest for its shape.

    ``fused_attn = False`` turns to timm's plain products, as there.
    """

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        dropped = self.training and self.attn_drop.p > 0
        if attn_mask is not None or is_causal or dropped or self.gate or not self.fused_attn:
            return super().forward(x, attn_mask, is_causal)
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)  # (B, H, T, d)
        out = attend(self.q_norm(query), self.k_norm(key), value)
        return self.proj_drop(self.proj(self.norm(out.transpose(1, 2).flatten(2))))
