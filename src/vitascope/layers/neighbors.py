"""Attention of each patch over the k x k patches around it: functions of queries, keys, values.

Row i of the map is

    A_i = softmax_{j in window(i)}(q_i . k_j / sqrt(d)),      window(i): k x k patches around i

* **Even k**: the longer side of the window lies up and left, as for a convolution with padding
  ``k // 2``.
* **Borders**: the window is pushed back onto the grid (``border="shift"``), so every patch sees
  k x k patches, and a k that covers the grid is global attention, as 8 x 8 is on the paper's grid
  of 8 x 8 (Park and Kim 2022, Fig. 7). ``border="clip"`` keeps the window centred and drops what
  lies outside.
* **Prefix tokens** (class token) see every token, and every patch sees them.
  The paper is silent here.

The grid is cut into blocks of 8 x 8 queries. A block needs the keys of its halo, 7 + k a side, and
attends to them by one fused kernel with a small mask. Time and memory are linear in the patches,
and nothing of size N x N is made. On grids with fewer patches than two halos the blocks do not pay:
there one masked product is taken; and where k covers the grid there is no mask.

This file needs torch alone, not timm; `neighborhood` has the layer.

Shapes: B images, H heads, N patches on a grid (h, w), T = prefix tokens + N, d channels per head.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vitascope.layers.attention_path import fused

__all__ = ["neighborhood_attention", "neighborhood_mask"]

BLOCK = 8  # queries a side; 4 to 16 were timed on grids of 14 to 64, and 8 was first or near it

BORDERS = ("shift", "clip")  # what a window does at the border of the grid


class Window(NamedTuple):
    """Number of patches that a patch sees along each axis."""

    size: int  # k
    border: str  # "shift" or "clip"

    def first(self, position: Tensor, length: int) -> Tensor:
        """The first key that a query sees on an axis of ``length``."""
        start = position - self.size // 2
        return start.clamp(0, max(length - self.size, 0)) if self.border == "shift" else start

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        """Return whether queries see keys along one axis. (..., q), (..., k) -> (..., q, k)"""
        step = key.unsqueeze(-2) - self.first(query, length).unsqueeze(-1)
        return (step >= 0) & (step < self.size)

    def covers(self, grid: Sequence[int]) -> bool:
        """Return whether every patch sees the whole grid."""
        reach = self.size if self.border == "shift" else (self.size + 1) // 2
        return reach >= max(grid)


def neighborhood_mask(
    grid: Sequence[int],
    kernel_size: int,
    *,
    border: str = "shift",
    num_prefix_tokens: int = 0,
    device: Any = None,
) -> Tensor:
    """Return which token (row) sees which (column), as a dense boolean matrix. (T, T)

    >>> neighborhood_mask((1, 4), 3).int().tolist()
    [[1, 1, 1, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 1, 1]]
    """
    window = Window(kernel_size, border)
    down, across = (
        window.sees(position, position, len(position))
        for position in (torch.arange(n, device=device) for n in grid)
    )
    patches = (down[:, None, :, None] & across[None, :, None, :]).flatten(2).flatten(0, 1)
    return F.pad(patches, (num_prefix_tokens, 0, num_prefix_tokens, 0), value=True)


def _blocks(length: int, window: Window, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """An axis in blocks: queries (n, b), keys of their halos (n, s), mask (n, b, s).

    The blocks are as equal as they can be; the last repeats its last query where it is too long.
    """
    count = -(-length // BLOCK)
    side = -(-length // count)
    halo = min(side + window.size - 1, length)
    start = torch.arange(count, device=device) * side
    query = (start[:, None] + torch.arange(side, device=device)).clamp(max=length - 1)
    first = (start - window.size // 2).clamp(0, length - halo)
    key = first[:, None] + torch.arange(halo, device=device)
    return query, key, window.sees(query, key, length)


def neighborhood_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Sequence[int],
    kernel_size: int,
    *,
    border: str = "shift",
    dropout: float = 0.0,
) -> Tensor:
    """Attention of each patch over its neighbourhood. 3 x (B, H, T, d) -> (B, H, T, d)

    ``query``, ``key`` and ``value`` hold T - h * w prefix tokens, then the patches row by row.
    """
    window, prefix = Window(kernel_size, border), query.shape[2] - grid[0] * grid[1]
    if window.covers(grid):
        return fused(query, key, value, dropout_p=dropout)
    if grid[0] * grid[1] <= 2 * (BLOCK + kernel_size - 1) ** 2:
        sees = neighborhood_mask(
            grid, kernel_size, border=border, num_prefix_tokens=prefix, device=query.device
        )
        bias = _bias(sees, query.dtype)
        return fused(query, key, value, attn_mask=bias, dropout_p=dropout)
    patches = _blocked(query, key, value, grid, window, dropout)
    if not prefix:
        return patches
    tokens = fused(query[:, :, :prefix], key, value, dropout_p=dropout)
    return torch.cat([tokens, patches], dim=2)


def _blocked(
    query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], window: Window, dropout: float
) -> Tensor:
    """Attention output of the patches, block by block. (B, H, N, d)"""
    batch, heads, tokens, dim = query.shape
    device, (_, width), prefix = query.device, grid, tokens - grid[0] * grid[1]
    (qy, ky, down), (qx, kx, across) = (_blocks(n, window, device) for n in grid)
    asking = prefix + _outer(qy * width, qx)  # (blocks, queries of a block)
    halo = prefix + _outer(ky * width, kx)
    everywhere = torch.arange(prefix, device=device).expand(len(halo), -1)
    asked = torch.cat([everywhere, halo], dim=1)  # (blocks, keys of a block)
    bias = (
        _bias(down, query.dtype)[:, None, :, None, :, None]
        + (_bias(across, query.dtype)[None, :, None, :, None, :])
    )
    bias = F.pad(bias.flatten(4).flatten(2, 3).flatten(0, 1), (prefix, 0)).unsqueeze(1)

    def take(x: Tensor, index: Tensor) -> Tensor:
        """(B, H, T, d) -> (blocks, B * H, rows of a block, d): all images share a block's mask."""
        rows = x.permute(2, 0, 1, 3).reshape(tokens, -1).index_select(0, index.flatten())
        return rows.view(*index.shape, batch * heads, dim).transpose(1, 2)

    seen = fused(
        take(query, asking), take(key, asked), take(value, asked), attn_mask=bias, dropout_p=dropout
    )
    rows = seen.transpose(1, 2).reshape(-1, batch * heads * dim)
    back = rows.index_select(0, _home(grid, (qy, qx)))
    return back.view(-1, batch, heads, dim).permute(1, 2, 0, 3)


def _outer(rows: Tensor, columns: Tensor) -> Tensor:
    """Sums over two axes of blocks. (n, a), (m, b) -> (n * m, a * b)"""
    return (rows[:, None, :, None] + columns[None, :, None, :]).flatten(2).flatten(0, 1)


def _home(grid: Sequence[int], blocks: Sequence[Tensor]) -> Tensor:
    """Return where each patch's query lies among the blocks' queries, row by row. (N,)"""
    (_, high), (count, wide) = (block.shape for block in blocks)
    y, x = (torch.arange(n, device=blocks[0].device) for n in grid)
    rows = (y // high) * (count * high * wide) + (y % high) * wide
    return (rows[:, None] + (x // wide) * (high * wide) + x % wide).flatten()


def _bias(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where seen, minus infinity where not."""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, -torch.inf)
