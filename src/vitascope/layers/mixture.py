"""Mixture attention: every head chooses among four ways to mix the patches.

    A_h = g_1 softmax(Q K^T / sqrt(d))           content, over all tokens
        + g_2 softmax(v_h . r_ij)                position, as in ConViT's GPSA
        + g_3 1 1^T / T                          the mean of all tokens, as in context broadcasting
        + g_4 softmax_window(Q K^T / sqrt(d))    content, within windows of M x M patches
    g   = softmax(l_h),    four learned numbers l_h for each head

GPSA (:mod:`vitascope.layers.gpsa`) gates content against position. Its authors ask for a network
that chooses among the biases of several architectures (d'Ascoli et al. 2021,
https://arxiv.org/abs/2103.10697, section 5): this layer adds the uniform mean of context
broadcasting and the windows of Swin and AlterNet. With fixed gates it is each of them:

    (1, 0, 0, 0)        self-attention
    (1 - s, s, 0, 0)    GPSA with gate s
    (1/2, 0, 1/2, 0)    self-attention with context broadcasting of its values
    (0, 0, 0, 1)        attention within windows

No part makes a T x T map: position is applied one axis after the other, the mean is one vector, and
windows are blocks. A prefix token has no place on the grid; its row takes the content part in place
of position and window, so that every row of A_h still sums to one.

Parts that no head of a trained layer uses can be left out (:func:`prune_mixture`): without parts
of share e in a head, and with the other shares scaled to sum to one, a row of A_h changes by 2 e at
most, summed over the row.

Parameters have timm's names and shapes, so a ViT's weights load; the positions and the gates are
new.

Shapes: B images, H heads, T = prefix tokens + N patches on a grid (h, w), D width, d = D / H.
"""

from copy import deepcopy
from typing import Any

import torch
from timm.layers import Attention
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.layers.attention_path import attend, fused
from vitascope.layers.positions import (
    apply_windows,
    axis_windows,
    convolutional_weight,
    dense_score,
)
from vitascope.layers.window import into_windows, out_of_windows

__all__ = ["PARTS", "MixtureAttention", "prune_mixture"]

PARTS = ("content", "position", "mean", "window")
START = {  # logits of the gates; ConViT has exp(1) times as much position as content
    "convit": (0.0, 1.0, -3.0, -3.0),
    "equal": (0.0, 0.0, 0.0, 0.0),
}


class MixtureAttention(Attention):
    """timm's self-attention with learned shares of content, position, mean and windows.

    Args:
        args: As for timm's ``Attention``.
        grid: Patches down and across.
        num_prefix_tokens: Tokens before the patches.
        window: M, patches a side of a window.
        kwargs: As for timm's ``Attention``.

    >>> MixtureAttention(8, 2, grid=(2, 3), num_prefix_tokens=1)(torch.zeros(1, 7, 8)).shape
    torch.Size([1, 7, 8])
    """

    maps_on_request = True  # :meth:`attention` gives the map
    locality = "chosen: learned shares of content, position, mean and windows"

    def __init__(
        self,
        *args: Any,
        grid: tuple[int, int] = (1, 1),
        num_prefix_tokens: int = 0,
        window: int = 4,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if window < 1:
            raise UserError(f"a window of {window} patches is out of range; give 1 or more")
        factory = {"device": kwargs.get("device"), "dtype": kwargs.get("dtype")}
        self.grid, self.num_prefix_tokens, self.window = grid, num_prefix_tokens, window
        self.parts: tuple[str, ...] = PARTS  # those that are computed
        self.pos_proj = nn.Linear(3, self.num_heads, bias=False, **factory)
        self.mixture_gating_param = nn.Parameter(torch.empty(self.num_heads, len(PARTS), **factory))
        self.start("convit")

    @torch.no_grad()
    def start(self, shares: str) -> None:
        """Set positions and values to a convolution's, and the gates to one of :data:`START`."""
        self.pos_proj.weight.copy_(convolutional_weight(self.num_heads))
        self.mixture_gating_param.copy_(torch.tensor(START[shares]))
        if shares == "convit":
            values = self.qkv.weight[2 * self.attn_dim :]
            values.copy_(torch.eye(*values.shape))

    @property
    def shares(self) -> Tensor:
        """The share of each part in each head. (H, 4), rows sum to one"""
        left_out = [part not in self.parts for part in PARTS]
        mask = torch.tensor(left_out, device=self.mixture_gating_param.device)
        return self.mixture_gating_param.masked_fill(mask, float("-inf")).softmax(dim=-1)

    def shares_of_parts(self) -> dict[str, Tensor]:
        """Return the share of each part in each head. part -> (H,)"""
        return dict(zip(PARTS, self.shares.detach().unbind(dim=1), strict=True))

    @torch.no_grad()
    def prune(self, tolerance: float) -> float:
        """Leave out the parts whose share is ``tolerance`` at most in every head.

        Returns:
            The most that a row of attention changes, summed over the row.
        """
        if not 0 <= tolerance < 1 / len(PARTS):
            raise UserError(f"the tolerance must be in [0, {1 / len(PARTS)}), not {tolerance}")
        before, most = self.shares, self.shares.amax(dim=0)
        needed = ("content",) if self.num_prefix_tokens else ()  # prefix tokens have no position
        self.parts = tuple(
            part
            for part, share in zip(PARTS, most.tolist(), strict=True)
            if share > tolerance or part in needed
        )
        lost = before.masked_fill(self.shares > 0, 0.0).sum(dim=-1)
        return 2 * float(lost.max())

    def forward(  # type: ignore[override]
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        if attn_mask is not None or is_causal:
            raise UserError("mixture attention mixes whole images and takes no mask")
        if self.training and self.attn_drop.p > 0:
            out = self.attn_drop(self.attention(x)) @ self._heads(x)[2]
        else:
            out = self.mix(*self._heads(x))
        return self.proj_drop(self.proj(self.norm(out.transpose(1, 2).flatten(2))))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``A_h V`` without A_h. 3 x (B, H, T, d) -> (B, H, T, d)"""
        first = self.num_prefix_tokens
        content_share, position_share, mean_share, window_share = self.shares.to(value.dtype).T[
            ..., None, None
        ]  # 4 x (H, 1, 1)
        patches = value[:, :, first:]
        out = torch.zeros_like(value)  # (B, H, T, d)
        if "content" in self.parts:
            content = attend(query, key, value)
            out[:, :, first:] += content_share * content[:, :, first:]
            out[:, :, :first] += (1 - mean_share) * content[:, :, :first]
        if "position" in self.parts:
            windows = axis_windows(self.pos_proj.weight, self.grid)
            out[:, :, first:] += position_share * apply_windows(windows, patches, self.grid)
        if "window" in self.parts:
            near = self.attend_within_windows(query[:, :, first:], key[:, :, first:], patches)
            out[:, :, first:] += window_share * near
        if "mean" in self.parts:
            out += mean_share * value.mean(dim=2, keepdim=True)
        return out

    def attend_within_windows(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Self-attention of the patches of each window. 3 x (B, H, N, d) -> (B, H, N, d)"""
        (height, width), heads = self.grid, value.shape[:2]
        window = min(self.window, height), min(self.window, width)
        padded = height + -height % window[0], width + -width % window[1]
        margins = (0, padded[1] - width, 0, padded[0] - height)

        def cut(tokens: Tensor) -> Tensor:
            """(B, H, N, d) -> (B H W, 1, M^2, d)"""
            maps = tokens.flatten(0, 1).mT.unflatten(-1, (height, width))
            return into_windows(F.pad(maps, margins), window)[:, None]

        mask = None
        if padded != (height, width):  # no query looks at the padding
            there = F.pad(value.new_ones(1, 1, height, width), margins)
            mask = into_windows(there, window).mT[:, None].bool()  # (W, 1, 1, M^2)
            mask = mask.repeat(heads[0] * heads[1], 1, 1, 1)
        out = fused(cut(query), cut(key), cut(value), attn_mask=mask)[:, 0]
        maps = out_of_windows(out, window, padded)[:, :, :height, :width]
        return maps.flatten(2).mT.unflatten(0, heads)

    def attention(self, x: Tensor, **_: Any) -> Tensor:
        """The map that :meth:`forward` applies without making it. (B, H, T, T)"""
        query, key = self._heads(x)[:2]
        return torch.einsum("hk,bhkij->bhij", self.shares.to(query.dtype), self.maps(query, key))

    def maps(self, query: Tensor, key: Tensor) -> Tensor:
        """The maps of the four parts. 2 x (B, H, T, d) -> (B, H, 4, T, T)"""
        first = self.num_prefix_tokens
        scores = query @ key.mT * self.scale
        content = scores.softmax(dim=-1)
        position, near = content.clone(), content.clone()
        on_grid = dense_score(self.pos_proj.weight, self.grid).softmax(dim=-1)
        position[:, :, first:] = F.pad(on_grid, (first, 0)).to(content)
        rows, columns = (torch.arange(side, device=key.device) // self.window for side in self.grid)
        block = (rows[:, None] * len(columns) + columns).flatten()
        apart = torch.ne(block[:, None], block)
        near[:, :, first:, :first] = 0.0
        inside = scores[:, :, first:, first:].masked_fill(apart, float("-inf"))
        near[:, :, first:, first:] = inside.softmax(dim=-1)
        mean = torch.full_like(content, 1 / key.shape[2])
        return torch.stack([content, position, mean, near], dim=2)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values. 3 x (B, H, T, d)"""
        down, across = self.grid
        if x.shape[1] != self.num_prefix_tokens + down * across:
            raise UserError(
                f"mixture attention was made for {self.num_prefix_tokens} prefix tokens and a grid "
                f"of {down} x {across} patches, and got {x.shape[1]} tokens; build the model with "
                "the img_size of its images"
            )
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        return self.q_norm(query), self.k_norm(key), value


def prune_mixture(model: nn.Module, tolerance: float = 0.01) -> tuple[nn.Module, dict[str, float]]:
    """Return a copy for inference without the parts of mixture attention that no head uses.

    Args:
        model: A network with mixture attention (``vit_micro+mixture``); it is left unchanged.
        tolerance: A part is left out of a layer where its share is this at most in every head.

    Returns:
        The copy, and for each layer the most that a row of its attention changes, summed over the
        row.
    """
    pruned = deepcopy(model).eval()
    layers = {n: m for n, m in pruned.named_modules() if isinstance(m, MixtureAttention)}
    if not layers:
        raise UserError(
            f"{type(model).__name__} has no mixture attention; vit_micro+mixture is a network that "
            "has"
        )
    return pruned, {name: layer.prune(tolerance) for name, layer in layers.items()}
