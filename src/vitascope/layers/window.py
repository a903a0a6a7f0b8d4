"""Windowed multi-head self-attention with a relative position bias, on image-shaped maps.

The map is cut into windows of M x M; inside each (Liu et al. 2021, https://arxiv.org/abs/2103.14030,
eq. 4; the MSA of AlterNet, Park and Kim 2022, https://arxiv.org/abs/2202.06709, App. E)

    A_h = softmax(Q_h K_h^T / sqrt(d) + b_h[y_i - y_j, x_i - x_j]),   out = concat_h [A_h V_h] W_out

with one learned number b_h for each of the (2M - 1)^2 offsets. Swin's shifted windows are left out,
as in AlterNet.

Any map works. One that is no multiple of M is padded at its bottom and right, and no query looks at
the padding. On an axis shorter than M the window is the whole axis; the table stays as it is and
its middle is used. So the layer equals dense attention over the map in which i sees j if both
lie in one window.

Shapes: B images, C channels, map (h, w), W windows of T = M^2 pixels, H heads of width d.
"""

from operator import index
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError

__all__ = ["WindowAttention", "into_windows", "offset_bias", "out_of_windows"]


def into_windows(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Cut a map whose sides are multiples of the window. (B, C, h, w) -> (B W, T, C)"""
    batch, channels, height, width = x.shape
    (down, across), (rows, columns) = (height // window[0], width // window[1]), window
    x = x.reshape(batch, channels, down, rows, across, columns).permute(0, 2, 4, 3, 5, 1)
    return x.reshape(batch * down * across, rows * columns, channels)


def out_of_windows(x: Tensor, window: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Undo :func:`into_windows`. (B W, T, C) -> (B, C, h, w)"""
    (down, across), (rows, columns) = (size[0] // window[0], size[1] // window[1]), window
    x = x.reshape(-1, down, across, rows, columns, x.shape[-1]).transpose(2, 3)
    return x.reshape(x.shape[0], *size, x.shape[-1]).movedim(-1, 1)  # channels last in memory


def offset_bias(table: Tensor, window: tuple[int, int]) -> Tensor:
    """The bias of each pair of pixels in a window that is no larger than the table's.

    (H, 2M - 1, 2M - 1) -> (H, T, T)
    """
    reach = table.shape[-1] // 2  # offsets from -(M - 1) to M - 1
    y, x = (torch.arange(side, device=table.device) for side in window)
    rows = (y[:, None] - y + reach)[:, None, :, None]  # (y_i, 1, y_j, 1)
    columns = (x[:, None] - x + reach)[None, :, None, :]  # (1, x_i, 1, x_j)
    return table[:, rows, columns].flatten(3, 4).flatten(1, 2)


class WindowAttention(nn.Module):
    """Self-attention inside windows of a map.

    Args:
        dim: Channels that come in.
        num_heads: Heads.
        window: M, the side of a window.
        head_dim: Width of one head; ``dim / num_heads`` when it is not given.
        dim_out: Channels that go out; ``dim`` when it is not given.
        bias_per_head: A table of biases for each head as in Swin, or one that all heads share, as
            AlterNet's released definition has.
        qkv_bias: Biases of the queries, keys and values.
        attn_drop: Dropout of the attention map while training.

    >>> WindowAttention(8, 2, window=4)(torch.zeros(1, 8, 7, 3)).shape
    torch.Size([1, 8, 7, 3])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window: int = 7,
        *,
        head_dim: int | None = None,
        dim_out: int | None = None,
        bias_per_head: bool = True,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if window < 1 or num_heads < 1 or (head_dim is not None and head_dim < 1):
            raise UserError(
                f"window {window}, {num_heads} heads of width {head_dim}: each must be 1 or more"
            )
        if head_dim is None and dim % num_heads:
            raise UserError(f"width {dim} cannot be split over {num_heads} heads; give head_dim=")
        kwargs = {"device": device, "dtype": dtype}
        self.dim, self.dim_out = dim, dim_out or dim
        self.num_heads, self.head_dim = num_heads, head_dim or dim // num_heads
        self.window, self.attn_drop = window, attn_drop
        inner = self.num_heads * self.head_dim
        self.qkv = nn.Linear(dim, 3 * inner, bias=qkv_bias, **kwargs)
        offsets = 2 * window - 1
        tables = num_heads if bias_per_head else 1
        self.position_bias = nn.Parameter(torch.empty(tables, offsets, offsets, **kwargs))
        self.proj = nn.Linear(inner, self.dim_out, **kwargs)
        nn.init.trunc_normal_(self.position_bias, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Mix every pixel with the pixels of its window. (B, C, h, w) -> (B, dim_out, h, w)"""
        batch, _, *size = x.shape
        height, width = index(size[0]), index(size[1])  # compilers stall over symbolic sizes here
        window = min(self.window, height), min(self.window, width)
        below, right = -height % window[0], -width % window[1]
        padded = height + below, width + right
        if below or right:
            x = F.pad(x, (0, right, 0, below))
        qkv = self.qkv(into_windows(x, window))  # (B W, T, 3 H d)
        query, key, value = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        bias = offset_bias(self.position_bias, window)[None].to(query.dtype)  # (1, H or 1, T, T)
        if below or right:
            hidden = x.new_zeros(1, 1, height, width).to(query.dtype)
            hidden = F.pad(hidden, (0, right, 0, below), value=float("-inf"))
            hidden = into_windows(hidden, window)[:, None].mT  # (W, 1, 1, T)
            bias = (bias + hidden).repeat(batch, 1, 1, 1)
        dropout = self.attn_drop if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)
        out = torch.cat(out.unbind(1), dim=-1)  # not a view, whose strides ONNX export gets wrong
        out = out_of_windows(self.proj(out), window, padded)
        return out[:, :, :height, :width]

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"dim={self.dim}, num_heads={self.num_heads}, window={self.window}"
