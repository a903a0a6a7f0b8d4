"""From a trained convolution to gated positional attention that computes the same.

A k x k convolution sums, over the offsets Delta_h of its kernel, the patch at that offset times a
slice of the kernel: ``sum_h X[i + Delta_h] K_h``. A positional head with a narrow window picks that
patch (d'Ascoli et al. 2021, eq. 5, https://arxiv.org/abs/2103.10697, whose section 5 leaves the
start from a *trained* convolution to the future), so k^2 heads with W_out,h = K_h are the
convolution. ``weight`` and ``bias`` of the layer are the convolution's own, in its own shape.

**Gates that are exact and can learn.** In ``A_h = (1 - s_h) C_h + s_h P_h`` only s = 1 leaves the
convolution alone, and there a sigmoid has no slope and the queries no gradient. So the gates start
at the paper's lambda = 1, s_0 = 0.73, and the layer starts in balance: W_val = I / s_0, all heads
start from the same random queries and keys, and one more head, by content alone, takes away what
the k^2 gates let in:

    out = sum_h A_h X K_h / s_0 + C_0 X M / s_0,      M = -(1 - s_0) sum_h K_h   at the start.

With every C_h = C_0 the content cancels and ``sum_h P_h X K_h`` is left, while gates, queries, keys
and M all have full gradients; the first update separates them.

**Borders.** Keys lie on the padded map, and what a window sees there is folded back onto the patch
that the padding repeats (``replicate``, ``reflect``, ``circular``) or dropped (``zeros``, whose
value is 0), one axis at a time. So the layer equals the convolution at the borders too, for every
padding mode; with ``zeros`` a border row of a head that looks outside sums to less than one.
Without padding the outer patches, which a valid convolution does not compute, are cut off.

``locality_strength = 20`` makes the windows one-hot to rounding in float32 (exp(-20) = 2e-9; give
40 for float64). Such windows have next to no gradient: they move by weight decay or not at all.
Below about 10 they learn, and the layer is no longer the convolution.

Shapes: B images, H = k^2 heads, N patches on a grid (h, w), C channels in, d channels of a query.
"""

from collections.abc import Sequence
from math import exp
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.layers.gpsa import GPSA
from vitascope.layers.kernel import (
    MODES,
    fold,
    head_offsets,
    margins,
    reason_not_convertible,
    trimmed,
)
from vitascope.layers.positions import apply_windows, axis_windows
from vitascope.layers.psa import AttentionMaps, split_heads

__all__ = ["ConvolutionAttention", "KernelGPSA", "attention_from_convolution"]


class KernelGPSA(GPSA):
    """The gated heads of a convolution, on tokens; :class:`ConvolutionAttention` takes images."""

    def __init__(
        self, conv: nn.Conv2d, *, locality_strength: float, gate_init: float, head_dim: int
    ):
        num_heads = conv.kernel_size[0] * conv.kernel_size[1]
        like: dict[str, Any] = {"device": conv.weight.device, "dtype": conv.weight.dtype}
        options = {"locality_strength": locality_strength, "gate_init": gate_init, **like}
        super().__init__(num_heads * head_dim, num_heads, **options)
        self.dim, self.groups = conv.in_channels, conv.groups
        self.qk = nn.Linear(self.dim, 2 * (num_heads + 1) * head_dim, bias=False, **like)
        del self.v, self.proj  # W_val is a number, W_out the kernel
        self.weight = nn.Parameter(conv.weight.detach().clone())  # (out, C / groups, k, k)
        self.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone())
        self.counterweight = nn.Parameter(self.weight.new_empty(self.weight.shape[:2]))  # M
        self.value_scale = 1 + exp(-gate_init)  # 1 / s_0
        self.margins, self.mode = margins(conv), MODES[conv.padding_mode]
        start = torch.cat([2 * head_offsets(conv).flip(-1), -torch.ones(num_heads, 1)], dim=-1)
        self.start = (locality_strength * start).tolist()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset to the convolution of the current ``weight`` and ``bias``."""
        if not hasattr(self, "start"):  # while the base class is being built
            return
        shared = torch.randn(2, 1, self.head_dim, self.dim) * self.dim**-0.5
        self.qk.weight.copy_(shared.expand(-1, self.num_heads + 1, -1, -1).reshape(-1, self.dim))
        self.pos_proj.weight.copy_(torch.tensor(self.start))
        self.gating_param.fill_(self.gate_init)
        self.counterweight.copy_((1 / self.value_scale - 1) * self.weight.sum((2, 3)))

    def forward(self, x: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """The convolution, plus attention by content. (B, N, C) -> (B, N, out)"""
        grid = self.resolve_grid(x.shape[1], grid)
        value = (x * self.value_scale)[:, None]  # (B, 1, N, C), the same for every head
        query, key = self.queries_and_keys(x)
        spare = (0, max(0, self.dim - self.head_dim))  # the fused kernel wants one width for all
        content = F.scaled_dot_product_attention(
            F.pad(query, spare),
            F.pad(key, spare),
            value.expand(-1, self.num_heads + 1, -1, -1),
            scale=self.head_dim**-0.5,
        )  # (B, H + 1, N, C)
        position = apply_windows(
            self.windows(grid), value.expand(-1, self.num_heads, -1, -1), grid
        ).to(content.dtype)
        gated, alone = self.mix(content[:, :-1], position), content[:, -1:]
        out = self.project(gated, self.weight, self.bias)
        return (out + self.project(alone, self.counterweight, None)).mT

    def project(self, heads: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Sum the heads through their slices of the kernel. (B, H, N, C) -> (B, out, N)"""
        stacked = heads.permute(0, 3, 1, 2).flatten(1, 2)  # (B, C H, N)
        return F.conv1d(stacked, weight.flatten(1)[..., None], bias, groups=self.groups)

    def windows(self, grid: Sequence[int]) -> list[Tensor]:
        """One matrix per head and axis, the padding folded in. [(H, n, n)]"""
        padded = [size + sum(margin) for size, margin in zip(grid, self.margins, strict=True)]
        square = axis_windows(self.pos_proj.weight, padded)
        return [
            fold(window, size, margin, self.mode)
            for window, size, margin in zip(square, grid, self.margins, strict=True)
        ]

    def attention(self, x: Tensor, grid: Sequence[int] | None = None) -> AttentionMaps:
        """The maps of the k^2 gated heads; the head by content alone is not among them."""
        rows, columns = self.windows(self.resolve_grid(x.shape[1], grid))
        query, key = (heads[:, :-1] for heads in self.queries_and_keys(x))
        content = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        dense = rows[:, :, None, :, None] * columns[:, None, :, None, :]
        position = dense.flatten(3).flatten(1, 2)[None].to(content.dtype)
        return AttentionMaps(content, position, self.mix(content, position), self.gate)

    def queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """2 x (B, H + 1, N, d)"""
        query, key = split_heads(self.qk(x), 2 * (self.num_heads + 1)).chunk(2, dim=1)
        return query, key


class ConvolutionAttention(nn.Module):
    """Drop-in replacement for an ``nn.Conv2d``: image-shaped tensors in and out."""

    def __init__(self, attn: KernelGPSA, trim: Sequence[tuple[int, int]]):
        super().__init__()
        self.attn = attn
        self.trim = list(trim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h, w), smaller where the convolution was padded less"""
        if x.ndim != 4 or x.shape[1] != self.attn.dim:
            raise UserError(
                f"the layer takes maps of {self.attn.dim} channels (B, C, h, w), "
                f"and got {tuple(x.shape)}"
            )
        tokens = x.flatten(2).mT.contiguous()  # the fused kernel wants channels last
        out = self.attn(tokens, x.shape[2:]).mT.unflatten(-1, x.shape[2:])
        for axis, (first, lost) in enumerate(self.trim, start=2):
            out = out.narrow(axis, first, out.shape[axis] - lost) if lost else out
        return out


def attention_from_convolution(
    conv: nn.Conv2d,
    *,
    locality_strength: float = 20.0,
    gate_init: float = 1.0,
    head_dim: int | None = None,
) -> ConvolutionAttention:
    """Gated positional attention that computes what ``conv`` computes, and can learn content.

    Args:
        conv: Stride 1; any kernel, dilation, groups, bias and padding mode, padded to at most its
            input's size. It is left unchanged.
        locality_strength: alpha, how narrow the windows are; see the module for exactness.
        gate_init: lambda at the start, from -2 on; 1 in the paper. Exact whatever it is.
        head_dim: Channels of a query; C / k^2 by default, as wide in all as the map.

    >>> conv = nn.Conv2d(4, 6, 3, padding=1)
    >>> x = torch.randn(1, 4, 5, 7)
    >>> bool(torch.allclose(attention_from_convolution(conv)(x), conv(x), atol=1e-5))
    True
    """
    reason = reason_not_convertible(conv)
    if reason:
        raise UserError(f"this layer cannot become attention: {reason}")
    if locality_strength <= 0 or gate_init < -2:
        raise UserError(
            f"locality_strength={locality_strength} must be positive and gate_init={gate_init} "
            "at least -2: values are divided by the gate, and rounding with them"
        )
    width = head_dim or max(1, conv.in_channels // (conv.kernel_size[0] * conv.kernel_size[1]))
    attn = KernelGPSA(
        conv, locality_strength=locality_strength, gate_init=gate_init, head_dim=width
    )
    for name in ("weight", "bias"):
        theirs, ours = getattr(conv, name), getattr(attn, name)
        if theirs is not None:
            ours.requires_grad_(theirs.requires_grad)
    return ConvolutionAttention(attn, trimmed(conv)).train(conv.training)
