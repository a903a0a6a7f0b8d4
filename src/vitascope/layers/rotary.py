"""Rotary position embeddings (RoPE-Mixed): queries and keys are rotated by their patch's position.

Channels of a query or key are pairs, and pair t of a patch at (x, y) is rotated by the angle

    theta_t = f_t^x x + f_t^y y

with learned frequencies f for every layer, head and pair (Heo et al. 2024,
https://arxiv.org/abs/2403.13298, eq. 14, "RoPE-Mixed"). A score then depends on the relative
position of two patches alone. Prefix tokens are not rotated. Frequencies and rotation are timm's
:class:`~timm.layers.RotaryEmbeddingMixed`.

Shapes: B images, H heads, T = prefix tokens + N patches on a grid (h, w), d channels of a head.
"""

import torch
from timm.layers import Attention, RotaryEmbeddingMixed, apply_rot_embed_cat
from torch import Tensor, nn

from vitascope.errors import UserError


class Rotary(nn.Module):
    """Rotate queries or keys. (B, H, T, d) -> (B, H, T, d)"""

    locality = "mild: scores by relative position (rotary), and no absolute positions"

    def __init__(self, dim: int, num_heads: int, grid: tuple[int, int], num_prefix_tokens: int):
        super().__init__()
        if dim // num_heads % 4:
            raise UserError(
                f"rotary positions need heads of 4, 8, 12, ... channels, not {dim // num_heads}"
            )
        self.rotations = RotaryEmbeddingMixed(dim, 1, num_heads, feat_shape=list(grid))
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, x: Tensor) -> Tensor:
        """Rotate the patches."""
        turns = self.rotations.get_embed()[0].to(x.dtype)  # (H, N, 2 d)
        prefix, patches = x[:, :, : self.num_prefix_tokens], x[:, :, self.num_prefix_tokens :]
        if patches.shape[2] != turns.shape[1]:
            raise UserError(
                f"rotary positions were made for {turns.shape[1]} patches and got "
                f"{patches.shape[2]}; build the model with the img_size of its images"
            )
        return torch.cat([prefix, apply_rot_embed_cat(patches, turns)], dim=2)


class _SharedRotary(nn.Module):
    """Rotate keys with the queries' frequencies, which are registered once."""

    def __init__(self, rotary: Rotary):
        super().__init__()
        self.queries = (rotary,)  # in a tuple, so that it is not registered twice

    def forward(self, x: Tensor) -> Tensor:
        return self.queries[0](x)


def add_rotary(layer: Attention, grid: tuple[int, int], num_prefix_tokens: int) -> None:
    """Add rotary positions to a layer, in place of timm's norms of queries and keys."""
    rotary = Rotary(layer.attn_dim, layer.num_heads, grid, num_prefix_tokens)
    layer.q_norm = rotary.to(layer.qkv.weight)
    layer.k_norm = _SharedRotary(rotary)
