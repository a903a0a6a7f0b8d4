"""Positional attention: each head attends through a Gaussian window around the query.

A head attends from patch i to patch j with the score (d'Ascoli et al. 2021, eq. 4-5,
https://arxiv.org/abs/2103.10697)

    v . r_ij = a |delta|^2 + sum_k b_k delta_k,      delta = p_j - p_i,
    v = -alpha (1, -2 Delta_1, -2 Delta_2)           at initialisation,

a bump of inverse width alpha (the *locality strength*) at the offset Delta from the query.
The score is a sum over the axes of the grid, so its softmax is a product over them:

    softmax_j(v . r_ij) = prod_k softmax_{j_k}(a delta_k^2 + b_k delta_k) = P_1 (x) P_2 (x) ...

One n_k x n_k row-stochastic matrix per head and axis holds all of it, in any dimension: a sequence
of n tokens has P_1 alone, a volume three. Applying them one axis after the other costs
O(N (h + w) d) where the dense map costs O(N^2 d), and never makes anything of size N x N.

Weights are stored as the released code stores them: columns (b_last axis, ..., b_first axis, a),
that is (x, y, square) in two dimensions.

Shapes: B images, H heads, N patches on a grid (n_1, n_2, ...), d channels per head.
"""

from collections.abc import Sequence
from math import ceil, prod

import torch
from torch import Tensor
from torch.nn import functional as F


def axis_scores(weight: Tensor, grid: Sequence[int]) -> list[Tensor]:
    """The share of each axis in ``v . r_ij``. [(H, n_k, n_k)]

    Half-precision weights are widened first: squared distances do not fit in their digits.
    """
    if weight.dtype in (torch.float16, torch.bfloat16):
        weight = weight.float()
    square, linear = weight[:, -1], weight[:, :-1].flip(-1)  # (H,), (H, axes in grid order)
    scores = []
    for axis, size in enumerate(grid):
        position = torch.arange(size, device=weight.device, dtype=weight.dtype)
        delta = position[None, :] - position[:, None]  # key minus query
        scores.append(square[:, None, None] * delta**2 + linear[:, axis, None, None] * delta)
    return scores


def axis_windows(weight: Tensor, grid: Sequence[int]) -> list[Tensor]:
    """One row-stochastic matrix per head for each axis of the grid. [(H, n_k, n_k)]

    A window falls off like exp(-alpha delta^2) into denormal numbers, on which CPUs are several
    times slower. What lies below the square of the rounding error cannot change a sum, and becomes
    0.
    """
    windows = [score.softmax(dim=-1) for score in axis_scores(weight, grid)]
    return [F.threshold(window, torch.finfo(window.dtype).eps ** 2, 0.0) for window in windows]


def apply_windows(windows: Sequence[Tensor], values: Tensor, grid: Sequence[int]) -> Tensor:
    """``(P_1 (x) P_2 (x) ...) values`` without the Kronecker product. (B, H, N, d)"""
    batch, heads, _, dim = values.shape
    before, after = 1, prod(grid)
    out = values
    for window, size in zip(windows, grid, strict=True):
        after //= size
        out = out.reshape(batch, heads, before, size, after * dim)
        out = torch.matmul(window[:, None].to(out.dtype), out)
        before *= size
    return out.reshape(values.shape)


def dense_score(weight: Tensor, grid: Sequence[int]) -> Tensor:
    """All scores ``v . r_ij``, as a dense matrix for inspection. (H, N, N)"""
    dense, *others = axis_scores(weight, grid)
    for score in others:
        dense = dense[:, :, None, :, None] + score[:, None, :, None, :]
        dense = dense.flatten(3).flatten(1, 2)
    return dense


def kernel_offsets(num_heads: int, ndim: int = 2) -> Tensor:
    """Initial offsets of the heads: those of a convolution kernel. (H, ndim), float64

    A square number of heads gives the sqrt(H) x sqrt(H) kernel, in the released code's order (the
    first axis varies fastest). Even kernels are centred on half-integers, so each head spreads over
    the patches around its centre. For any other number of heads the released code leaves the rest
    random; here the H offsets nearest the middle of the smallest kernel that holds H are taken.

    >>> kernel_offsets(3).tolist()
    [[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5]]
    >>> kernel_offsets(12).norm(dim=1).max().round(decimals=2).item()  # the corners of 4 x 4 go
    1.58
    """
    size = ceil(round(num_heads ** (1 / ndim), 9))
    position = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    axes = torch.meshgrid(*[position] * ndim, indexing="ij")
    offsets = torch.stack([axis.flatten() for axis in reversed(axes)], dim=-1)
    nearest = offsets.square().sum(dim=-1).sort(stable=True).indices[:num_heads]
    return offsets[nearest.sort().values]


def convolutional_weight(num_heads: int, ndim: int = 2, locality_strength: float = 1.0) -> Tensor:
    """The weights of heads that look like a convolution. (H, ndim + 1)"""
    return window_weight(kernel_offsets(num_heads, ndim), locality_strength)


def window_weight(offsets: Tensor, locality_strength: float = 1.0) -> Tensor:
    """The weights of heads centred at these offsets: alpha (2 Delta, -1). (H, ndim + 1)"""
    square = offsets.new_full((len(offsets), 1), -1.0)
    return locality_strength * torch.cat([2 * offsets.flip(-1), square], dim=-1)
