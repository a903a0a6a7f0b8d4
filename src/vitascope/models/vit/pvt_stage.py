"""One stage of a pyramid vision transformer: see :mod:`vitascope.models.vit.pvt`.

Shapes: B images, N patches on a grid (h, w), T = prefix tokens + N, D width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import DropPath, Mlp, resample_abs_pos_embed
from timm.models import checkpoint
from timm.models.pvt_v2 import Attention as SpatialReductionAttention
from torch import Tensor, nn

from vitascope.models.vit.patches import PatchEmbed


class PVTBlock(nn.Module):
    """A transformer block with spatial-reduction attention."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        reduction: int,
        mlp_ratio: float,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        drops: Any = {"attn_drop": attn_drop, "proj_drop": proj_drop}
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = SpatialReductionAttention(dim, num_heads, sr_ratio=reduction, **drops)
        self.drop_path1 = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop=proj_drop)
        self.drop_path2 = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class PVTStage(nn.Module):
    """Patches, position embeddings, a class token where one joins, blocks.

    Args:
        in_chans: Channels of the map before.
        side: Its height and width; for other sizes position embeddings are interpolated, unless
            ``strict``.
        dim: Width of the tokens.
        patch_size: Of a patch, on the map before.
        drop_paths: One rate per block.
        class_token: Whether a class token joins here.
        block: Arguments of :class:`PVTBlock`.
    """

    def __init__(
        self,
        in_chans: int,
        side: tuple[int, int],
        dim: int,
        patch_size: int,
        *,
        drop_paths: Sequence[float],
        class_token: bool = False,
        pos_drop: float = 0.0,
        strict: bool = True,
        **block: Any,
    ):
        super().__init__()
        self.patch_embed = PatchEmbed(
            side,
            patch_size,
            in_chans=in_chans,
            embed_dim=dim,
            norm_layer=nn.LayerNorm,
            strict_img_size=strict,
        )
        self.num_prefix_tokens = int(class_token)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        num_positions = self.patch_embed.num_patches + self.num_prefix_tokens
        self.pos_embed = nn.Parameter(torch.empty(1, num_positions, dim))
        self.pos_drop = nn.Dropout(pos_drop)
        self.blocks = nn.ModuleList(PVTBlock(dim, drop_path=p, **block) for p in drop_paths)
        self.grad_checkpointing = False

    def forward(self, x: Tensor) -> tuple[Tensor, Sequence[int]]:
        """A map to tokens and their grid. (B, C, height, width) -> (B, T, D), (h, w)"""
        grid = self.patch_embed.dynamic_feat_size((x.shape[-2], x.shape[-1]))
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        pos_embed = resample_abs_pos_embed(
            self.pos_embed,
            list(grid),
            list(self.patch_embed.grid_size),
            num_prefix_tokens=self.num_prefix_tokens,
            interpolation="bilinear",  # the paper's
        )
        x = self.pos_drop(x + pos_embed)
        for block in self.blocks:
            recompute = self.grad_checkpointing and self.training
            x = checkpoint(block, x, grid) if recompute else block(x, grid)
        return x, grid
