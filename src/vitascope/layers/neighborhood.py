"""Self-attention in which each patch sees only the k x k patches around it.

The "convolutional MSA" of Park and Kim 2022 (https://arxiv.org/abs/2202.06709, section 2, Fig. 7,
after Yang et al. 2019): self-attention "only between feature map points in convolutional receptive
fields".

The layer is timm's ``Attention`` with another attention mask: a ViT's weights load. Its window,
borders and prefix tokens are those of `neighbors`, which has the equation as functions.

Shapes: B images, H heads, N patches on a grid (h, w), T = prefix tokens + N, D width, d = D / H.
"""

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import Attention
from torch import Tensor

from vitascope.errors import UserError
from vitascope.layers.neighbors import BORDERS, neighborhood_attention, neighborhood_mask


class NeighborhoodAttention(Attention):
    """timm's self-attention, over the k x k neighbourhood of each patch.

    Args:
        dim: Width D, a multiple of ``num_heads``.
        num_heads: Heads H.
        kernel_size: k; one that covers the grid gives global attention.
        border: What the window does there: ``"shift"`` or ``"clip"``.
        kwargs: As for timm's ``Attention``.

    >>> NeighborhoodAttention(36, 9, kernel_size=3)(torch.zeros(2, 21, 36), grid=(4, 5)).shape
    torch.Size([2, 21, 36])
    """

    maps_on_request = True  # `vitascope.capture` asks `attention`: forward never forms the map

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kernel_size: int = 3,
        border: str = "shift",
        **kwargs: Any,
    ):
        if num_heads < 1 or dim % num_heads:
            raise UserError(
                f"width {dim} cannot be split over {num_heads} heads; "
                f"give a width that is a multiple of the number of heads"
            )
        if kernel_size < 1:
            raise UserError(
                f"kernel_size={kernel_size}; a neighbourhood has 1 patch a side or more"
            )
        if border not in BORDERS:
            raise UserError(f"border={border!r}; there are: {', '.join(BORDERS)}")
        super().__init__(dim, num_heads, **kwargs)
        self.kernel_size, self.border = kernel_size, border

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:  # type: ignore[override]
        """Mix every token with those it sees. (B, T, D) -> (B, T, D)

        Args:
            x: Prefix tokens, if any, then the patches row by row.
            grid: (h, w) of the patches; the tokens beyond h * w come first.
        """
        self.count_prefix_tokens(x, grid)
        out = neighborhood_attention(
            *self.project(x),
            grid,
            self.kernel_size,
            border=self.border,
            dropout=self.attn_drop.p if self.training else 0.0,
        )
        return self.proj_drop(self.proj(self.norm(out.transpose(1, 2).flatten(2))))

    def attention(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """The map that :meth:`forward` applies without making it. (B, H, T, T)"""
        query, key, _ = self.project(x)
        prefix = self.count_prefix_tokens(x, grid)
        sees = neighborhood_mask(
            grid,
            self.kernel_size,
            border=self.border,
            num_prefix_tokens=prefix,
            device=x.device,
        )
        scores = query @ key.mT * self.head_dim**-0.5
        return scores.masked_fill(~sees, -torch.inf).softmax(dim=-1)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values. 3 x (B, H, T, d)"""
        parts = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return self.q_norm(query), self.k_norm(key), value

    def count_prefix_tokens(self, x: Tensor, grid: Sequence[int]) -> int:
        """The number of tokens before the patches; an error if the grid does not fit."""
        if len(grid) != 2 or x.shape[1] < grid[0] * grid[1]:
            raise UserError(f"{x.shape[1]} tokens cannot hold a grid of {tuple(grid)} patches")
        return x.shape[1] - grid[0] * grid[1]

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"num_heads={self.num_heads}, kernel_size={self.kernel_size}, border={self.border!r}"
