"""Convolutional ViT: a ViT in which each patch sees only the k x k patches around it.

Park and Kim 2022 (https://arxiv.org/abs/2202.06709, section 2, Fig. 7) ask whether long range is
what makes attention good: on CIFAR-100 with patches of 4 x 4 (a grid of 8 x 8), k = 5 beats k = 8,
which is global attention there. Even k, borders and the class token:
:mod:`vitascope.layers.neighborhood`.

Parameters have the names and shapes of timm's ViT, so weights load both ways, and a k that covers
the grid gives the ViT itself.

Shapes: B images, N patches on a grid (h, w), T = prefix tokens + N, D width.
"""

from collections.abc import Sequence
from typing import Any

from timm.models.vision_transformer import Block
from torch import Tensor, nn

from vitascope.layers.neighborhood import NeighborhoodAttention
from vitascope.models.vit.grid_vit import GridViT


class NeighborhoodBlock(Block):
    """timm's transformer block with attention over neighbourhoods."""

    def __init__(self, dim: int, num_heads: int, *, kernel_size: int, border: str, **kwargs: Any):
        super().__init__(dim, num_heads, **kwargs)
        names = ("qkv_bias", "qk_norm", "proj_bias", "attn_drop", "proj_drop", "norm_layer")
        shared = {name: kwargs[name] for name in (*names, "device", "dtype") if name in kwargs}
        self.attn = NeighborhoodAttention(
            dim, num_heads, kernel_size=kernel_size, border=border, **shared
        )

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D)"""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), grid)))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class ConvolutionalViT(GridViT):
    """timm's ViT with attention over neighbourhoods.

    Args:
        kernel_size: k, patches a side of the neighbourhood; 3, 5 and 8 in the paper.
        border: What it does at the border of the grid, ``"shift"`` or ``"clip"``.
        kwargs: As for timm's ViT: ``class_token=False, global_pool="avg"`` for one without a
            class token, which here is the only one that sees all patches.
    """

    def __init__(self, *, kernel_size: int = 3, border: str = "shift", **kwargs: Any):
        def block(**given: Any) -> nn.Module:
            return NeighborhoodBlock(kernel_size=kernel_size, border=border, **given)

        super().__init__(block_fn=block, **kwargs)
        self.kernel_size = kernel_size
