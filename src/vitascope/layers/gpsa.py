"""Gated positional self-attention (GPSA), at the cost of plain self-attention.

Each head mixes where a patch looks by content with where it looks by position
(d'Ascoli et al. 2021, eq. 6-7, https://arxiv.org/abs/2103.10697):

    A_h = (1 - s_h) softmax(Q_h K_h^T / sqrt(d)) + s_h softmax(v_h . r_ij)
    s_h = sigmoid(lambda_h),      GPSA(X) = concat_h [A_h X W_val,h] W_out

The paper normalises the rows of A_h once more; a convex mix of rows that sum to one needs none.
The positional softmax is separable (see :mod:`vitascope.layers.positions`), so

    A_h V = (1 - s_h) SDPA(Q, K, V) + s_h (P_y (x) P_x) V

is exact, the content part runs on the fused kernel wherever that is faster (see
:mod:`vitascope.layers.attention_path`), and nothing of size N x N needs to be made, forward or
backward. One exception: ``attn_drop > 0`` while training drops entries of the mixed map, as
the released code does, and for that the map must exist.

``lambda = 1`` at the start: gates of 0.73, more position than content.

Shapes: B images, H heads, N patches on a grid (h, w), D width, d = D / H.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.layers.attention_path import attend
from vitascope.layers.positions import apply_windows, axis_windows, dense_score
from vitascope.layers.psa import PSA, AttentionMaps

__all__ = ["GPSA", "TokenGPSA"]


class GPSA(PSA):
    """Gated positional self-attention, initialised as a convolution.

    Args:
        dim: Width D, a multiple of ``num_heads``.
        num_heads: Any number; a square one starts as an exact kernel.
        locality_strength: alpha, how narrow the heads' windows are at the start.
        gate_init: lambda at the start; 1 in the paper, 0 in its ablation without gates (Table 3).
        kwargs: As for :class:`PSA`.

    >>> GPSA(36, 9, locality_strength=2.0)(torch.zeros(2, 20, 36), grid=(4, 5)).shape
    torch.Size([2, 20, 36])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 9,
        *,
        locality_strength: float = 1.0,
        gate_init: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(dim, num_heads, locality_strength=locality_strength, **kwargs)
        self.gating_param = nn.Parameter(self.qk.weight.new_full((num_heads,), gate_init))
        self.gate_init = gate_init
        self.forced_gate: float | None = None  # see `measure.ablation.masking`

    def reset_parameters(self) -> None:
        """Like :class:`PSA`, and the gates at ``gate_init``."""
        super().reset_parameters()
        if hasattr(self, "gating_param"):  # not while the base class is being built
            nn.init.constant_(self.gating_param, self.gate_init)

    @property
    def gate(self) -> Tensor:
        """The gates in force, s_h. (H,)"""
        if self.forced_gate is not None:
            return torch.full_like(self.gating_param, self.forced_gate)
        return self.gating_param.sigmoid()

    def attend(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``A_h X W_val,h`` of every head, without A_h. (B, N, D) -> (B, H, N, d)"""
        value = self.values(x)
        if self.training and self.attn_drop.p > 0:
            return self.attn_drop(self.attention(x, grid).mixed) @ value
        content = attend(*self.queries_and_keys(x), value)
        position = apply_windows(axis_windows(self.pos_proj.weight, grid), value, grid)
        return self.mix(content, position)

    def attention(self, x: Tensor, grid: Sequence[int] | None = None) -> AttentionMaps:
        """The maps that :meth:`forward` applies without making them."""
        query, key = self.queries_and_keys(x)
        content = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        score = dense_score(self.pos_proj.weight, self.resolve_grid(x.shape[1], grid))
        position = score.softmax(dim=-1)[None].to(content.dtype)
        return AttentionMaps(content, position, self.mix(content, position), self.gate)

    def mix(self, content: Tensor, position: Tensor) -> Tensor:
        """``(1 - s) content + s position``, head by head. (B, H, ...)"""
        gate = self.gate.to(content.dtype).view(-1, 1, 1)
        return torch.lerp(content, position, gate)


class TokenGPSA(GPSA):
    """GPSA with a class token before the patches (footnote 1 of the paper).

    The paper tried a class token "as an extra patch of the image to which all heads pay attention
    to at initialization" and does not say how. Here each head's positional attention gives the
    token a learned share t_h, one half at the start, and its window the rest:

        P_h[i] = (1 - t_h) softmax_j(v_h . r_ij) + t_h [token],      t_h = sigmoid(token_logit_h)

    The token itself has no place on the grid: by position it sees all tokens equally.

    >>> TokenGPSA(36, 9)(torch.zeros(2, 21, 36), grid=(4, 5)).shape
    torch.Size([2, 21, 36])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.token_logit = nn.Parameter(torch.zeros_like(self.gating_param))

    def resolve_grid(self, num_tokens: int, grid: Sequence[int] | None) -> Sequence[int]:
        """The grid of the patches, which are all tokens but the first."""
        return super().resolve_grid(num_tokens - 1, grid)

    def attend(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``A_h X W_val,h`` of every head, without A_h. (B, 1 + N, D) -> (B, H, 1 + N, d)"""
        value = self.values(x)
        if self.training and self.attn_drop.p > 0:
            return self.attn_drop(self.attention(x, grid).mixed) @ value
        content = attend(*self.queries_and_keys(x), value)
        window = apply_windows(axis_windows(self.pos_proj.weight, grid), value[:, :, 1:], grid)
        share = self.token_logit.sigmoid().to(value.dtype).view(-1, 1, 1)
        patches = torch.lerp(window, value[:, :, :1], share)
        position = torch.cat([value.mean(dim=2, keepdim=True), patches], dim=2)
        return self.mix(content, position)

    def attention(self, x: Tensor, grid: Sequence[int] | None = None) -> AttentionMaps:
        """The maps that :meth:`forward` applies without making them."""
        query, key = self.queries_and_keys(x)
        content = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        windows = dense_score(self.pos_proj.weight, self.resolve_grid(x.shape[1], grid)).softmax(-1)
        share = self.token_logit.sigmoid().view(-1, 1, 1)
        patches = torch.cat([share.expand(-1, windows.shape[1], 1), (1 - share) * windows], dim=-1)
        itself = torch.full_like(patches[:, :1], 1 / x.shape[1])
        position = torch.cat([itself, patches], dim=1)[None].to(content.dtype)
        return AttentionMaps(content, position, self.mix(content, position), self.gate)
