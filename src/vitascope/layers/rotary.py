"""Rotary positions with mixed axes: queries and keys turn with the place of their patch.

Channels of a query or key are pairs, and pair t of a patch at (x, y) is turned by the angle

    theta_t = f_t^x x + f_t^y y

with learned frequencies f for every layer, head and pair (Heo et al. 2024,
https://arxiv.org/abs/2403.13298, eq. 14, "RoPE-Mixed"). A score then depends on where two patches
lie relative to each other and not on where they lie. Prefix tokens have no place and do not turn.
Frequencies and rotation are timm's :class:`~timm.layers.RotaryEmbeddingMixed`.

Shapes: B images, H heads, T = prefix tokens + N patches on a grid (h, w), d channels of a head.
"""

import torch
from timm.layers import Attention, RotaryEmbeddingMixed, apply_rot_embed_cat
from torch import Tensor, nn

from vitascope.errors import UserError


class Rotary(nn.Module):
    """Turns queries or keys. (B, H, T, d) -> (B, H, T, d)"""

    locality = "mild: scores by relative position (rotary), and no table of places"

    def __init__(self, dim: int, num_heads: int, grid: tuple[int, int], num_prefix_tokens: int):
        super().__init__()
        if dim // num_heads % 4:
            raise UserError(
                f"rotary positions need heads of 4, 8, 12, ... channels, not {dim // num_heads}"
            )
        self.rotations = RotaryEmbeddingMixed(dim, 1, num_heads, feat_shape=list(grid))
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor) -> Tensor:
        """Turn the patches."""
        turns = self.rotations.get_embed()[0].to(x.dtype)  # (H, N, 2 d)
        prefix, patches = x[:, :, : self.num_prefix_tokens], x[:, :, self.num_prefix_tokens :]
        if patches.shape[2] != turns.shape[1]:
            raise UserError(
                f"rotary positions were made for {turns.shape[1]} patches and got "
                f"{patches.shape[2]}; build the model with the img_size of its images"
            )
        return torch.cat([prefix, apply_rot_embed_cat(patches, turns)], dim=2)


class _SameRotary(nn.Module):
    """The rotation of the queries, for the keys: its frequencies are kept once."""

    def __init__(self, rotary: Rotary):
        super().__init__()
        self.queries = (rotary,)  # in a tuple, so that it is no second owner

    def forward(self, x: Tensor) -> Tensor:
        return self.queries[0](x)


def add_rotary(layer: Attention, grid: tuple[int, int], num_prefix_tokens: int) -> None:
    """Turn the queries and keys of a layer, where timm's has its norms of them."""
    rotary = Rotary(layer.attn_dim, layer.num_heads, grid, num_prefix_tokens)
    layer.q_norm = rotary.to(layer.qkv.weight)
    layer.k_norm = _SameRotary(rotary)
