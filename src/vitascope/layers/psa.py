"""Positional self-attention (PSA): content and position in one softmax.

    A_h = softmax(Q_h K_h^T / sqrt(d) + v_h . r_ij),      PSA(X) = concat_h [A_h X W_val,h] W_out

(d'Ascoli et al. 2021, eq. 4, https://arxiv.org/abs/2103.10697; the "PSA" curves of Fig. 9).
Without a gate the two scores compete inside the softmax and the larger dominates, which is the
paper's reason for gating: see :mod:`vitascope.layers.gpsa`, which builds on this class.

At the start ``W_val = I`` and the heads look at the offsets of a convolution kernel. Equation 5
also has ``W_qry = W_key = 0`` (``content_std=0``). There the gradient of each is a product with the
other, so both stay 0 and the layer never uses content; by default they are drawn as the
released code draws them.
``pos_proj`` has no bias: it would shift all scores of a row alike, which a softmax cancels.

Shapes: B images, H heads, N patches on a grid (h, w), D width, d = D / H.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.layers.positions import convolutional_weight, dense_score

__all__ = ["PSA", "AttentionMaps"]


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """Attention maps by content, by position and mixed. Rows sum to one."""

    content: Tensor  # (B, H, N, N)
    position: Tensor  # (1, H, N, N)
    mixed: Tensor  # (B, H, N, N), what the layer applies
    gate: Tensor | None  # (H,), 0: content alone, 1: position alone; None where there is no gate


class PSA(nn.Module):
    """Self-attention whose scores depend on content and on relative position.

    Args:
        dim: Width D, a multiple of ``num_heads``.
        num_heads: Any number; a square one starts as an exact kernel.
        locality_strength: alpha, how narrow the heads' windows are at the start.
        conv_init: Start as a convolution; otherwise every weight is random.
        content_std: Of the queries' and keys' first weights; 0 as in equation 5.
        attn_drop: Dropout of the attention map while training.
        ndim: Number of axes of the grid: 1 for sequences, 3 for volumes.

    >>> PSA(36, 9)(torch.zeros(2, 20, 36), grid=(4, 5)).shape
    torch.Size([2, 20, 36])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 9,
        *,
        locality_strength: float = 1.0,
        conv_init: bool = True,
        content_std: float = 0.02,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        ndim: int = 2,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise UserError(
                f"width {dim} cannot be split over {num_heads} heads; "
                f"give a width that is a multiple of the number of heads"
            )
        if content_std < 0:
            raise UserError(f"content_std={content_std} is no standard deviation; give 0 or more")
        kwargs = {"device": device, "dtype": dtype}
        self.dim, self.num_heads, self.ndim = dim, num_heads, ndim
        self.head_dim = dim // num_heads
        self.locality_strength, self.conv_init = locality_strength, conv_init
        self.content_std = content_std
        self.qk = nn.Linear(dim, 2 * dim, bias=qkv_bias, **kwargs)
        self.v = nn.Linear(dim, dim, bias=qkv_bias, **kwargs)
        self.pos_proj = nn.Linear(ndim + 1, num_heads, bias=False, **kwargs)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim, **kwargs)
        self.proj_drop = nn.Dropout(proj_drop)
        self.register_load_state_dict_pre_hook(_drop_position_bias)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the linear maps as the paper's code does, then set the convolutional start."""
        for linear in (self.qk, self.v, self.pos_proj, self.proj):
            std = self.content_std if linear is self.qk else 0.02
            nn.init.trunc_normal_(linear.weight, std=std) if std else nn.init.zeros_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        if self.conv_init:
            nn.init.eye_(self.v.weight)
            start = convolutional_weight(self.num_heads, self.ndim, self.locality_strength)
            self.pos_proj.weight.copy_(start)

    def forward(self, x: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Mix every patch with the patches it attends to. (B, N, D) -> (B, N, D)

        Args:
            x: Patches in row-major order, no prefix tokens.
            grid: (h, w) with h * w = N; a square when it is not given.
        """
        out = self.attend(x, self.resolve_grid(x.shape[1], grid))  # (B, H, N, d)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))

    def attend(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``A_h X W_val,h`` of every head. (B, N, D) -> (B, H, N, d)"""
        query, key = self.queries_and_keys(x)
        score = dense_score(self.pos_proj.weight, grid).to(query.dtype)
        dropout = self.attn_drop.p if self.training else 0.0
        return F.scaled_dot_product_attention(
            query, key, self.values(x), attn_mask=score[None], dropout_p=dropout
        )

    def attention(self, x: Tensor, grid: Sequence[int] | None = None) -> AttentionMaps:
        """The maps behind :meth:`forward`."""
        query, key = self.queries_and_keys(x)
        content = query @ key.mT * self.head_dim**-0.5
        position = dense_score(self.pos_proj.weight, self.resolve_grid(x.shape[1], grid))[None]
        content, position, mixed = (
            score.to(content.dtype).softmax(dim=-1)
            for score in (content, position, content + position)
        )
        return AttentionMaps(content, position, mixed, gate=None)

    def queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """2 x (B, H, N, d)"""
        query, key = split_heads(self.qk(x), 2 * self.num_heads).chunk(2, dim=1)
        return query, key

    def values(self, x: Tensor) -> Tensor:
        """(B, H, N, d)"""
        return split_heads(self.v(x), self.num_heads)

    def resolve_grid(self, num_patches: int, grid: Sequence[int] | None) -> Sequence[int]:
        """The grid of the patches; an error if its size is not the number of patches."""
        if grid is None and self.ndim == 1:
            return (num_patches,)
        if grid is None and self.ndim == 2 and isqrt(num_patches) ** 2 == num_patches:
            return (isqrt(num_patches),) * 2
        if grid is None:
            raise UserError(
                f"{num_patches} patches do not form a square; give grid=(h, w) with "
                f"h * w = {num_patches}, and leave class tokens out"
            )
        if len(grid) != self.ndim or prod(grid) != num_patches:
            raise UserError(
                f"grid {tuple(grid)} does not hold {num_patches} patches in {self.ndim} dimensions"
            )
        return grid

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"dim={self.dim}, num_heads={self.num_heads}, ndim={self.ndim}"


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, H, N, d)"""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _drop_position_bias(_: nn.Module, state: dict[str, Tensor], prefix: str, *__: Any) -> None:
    """Drop the bias of timm's and the released checkpoints, which a softmax cancels."""
    state.pop(f"{prefix}pos_proj.bias", None)
