"""Impulse initialisation: every head starts by attending to one neighbour in a 3 x 3 window.

ConViT's idea without a gate (Zheng et al. 2025, https://arxiv.org/abs/2505.19985; scales as in the
released code, osiriszjq/structured_initialization). Head h has an offset of a 3 x 3 kernel, T_h is
the N x N matrix that is 1 where patch j lies at that offset from patch i, and

    W_q,h^T W_k,h  =  rank-d part of  P^+ (1000 T_h + noise) P^+T

with P the layer-normalised position table of the patches, P^+ its pseudo-inverse from its d largest
singular values, and noise of standard deviation 1.8 where T_h is 0. Both factors are scaled to a
norm of 7. So scores P W_q^T W_k P^T of positions alone are T_h as well as d channels can tell.
Heads take the offsets in the order centre, above, right, left, below, corners, again from the tenth
on. Values and projection start as in :mod:`vitascope.models.vit.mimetic`.

The released table is random: heads of 64 channels can tell its patches apart, heads of 8 or 16
cannot. Ours has the released size (a root mean square of 0.36) and as many waves as a head can
read: K = d / 4 sines and cosines along each axis of n patches,

    omega_k = 2 pi m_k / n,      m_k = 1 + k (n / 2 - 1) / K,      k = 0 .. K - 1

turned at random into the width, with a mean of 0, so that layer normalisation changes only their
size. It is trained like any table.

Shapes: N patches on a grid (h, w), D width, H heads of d channels.
"""

from typing import Any

import torch
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.models.vit.mimetic import factors, set_positions, start_values

OFFSETS = (
    (0, 0),
    (-1, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, -1),
    (-1, 1),
    (1, -1),
    (1, 1),
)  # down, right
TABLE_SIZE, QUERY_NORM, SCALE, NOISE = 18 * 0.02, 7.0, 1000.0, 3 * 0.6


def neighbour_matrix(grid: tuple[int, int], offset: tuple[int, int]) -> Tensor:
    """1 where patch j lies at ``offset`` from patch i. (N, N)

    >>> neighbour_matrix((1, 3), (0, 1)).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    down, right = (
        torch.diag(torch.ones(side - abs(step), dtype=torch.float64), step)
        for side, step in zip(grid, offset, strict=True)
    )
    return torch.kron(down, right)


def position_waves(grid: tuple[int, int], width: int) -> Tensor:
    """Sines and cosines that tell patches apart in ``width`` channels. (N, d)

    >>> waves = position_waves((4, 4), 8)
    >>> bool((waves @ waves.mT).argmax(-1).equal(torch.arange(16)))
    True
    """
    count = width // 4
    axes = []
    for side in grid:
        multiple = 1 + torch.arange(count, dtype=torch.float64) * (side / 2 - 1) / count
        angle = torch.arange(side)[:, None] * multiple * 2 * torch.pi / side
        axes.append(torch.cat([angle.sin(), angle.cos()], dim=-1))  # (n, d / 2)
    rows, columns = axes[0].repeat_interleave(grid[1], 0), axes[1].repeat(grid[0], 1)
    return torch.cat([rows, columns], dim=-1)


def impulse_factors(
    table: Tensor, grid: tuple[int, int], offset: tuple[int, int], width: int
) -> tuple[Tensor, Tensor]:
    """Query and key weights of one head. (N, D) -> 2 x (d, D)"""
    u, s, vt = torch.linalg.svd(F.layer_norm(table, table.shape[-1:]), full_matrices=False)
    rank = min(width, int((s > 1e-6 * s[0]).sum()))
    inverse = vt[:rank].mT / s[:rank] @ u[:, :rank].mT  # (D, N)
    target = neighbour_matrix(grid, offset)
    noise = NOISE * torch.randn_like(target) * (target == 0)
    left, right = factors(inverse @ (SCALE * target + noise) @ inverse.mT, width)
    return QUERY_NORM * left.mT / left.norm(), QUERY_NORM * right / right.norm()


@torch.no_grad()
def start_impulse(model: VisionTransformer) -> None:
    """Initialise every attention layer and the position table of a new model."""
    first: Any = model.blocks[0]
    grid, width = model.patch_embed.grid_size, first.attn.head_dim
    if width % 4:
        raise UserError(f"the impulse start needs heads of 4, 8, 12, ... channels, not {width}")
    turn = torch.randn(model.embed_dim, width, dtype=torch.float64)
    table = position_waves(grid, width) @ torch.linalg.qr(turn - turn.mean(0)).Q.mT  # (N, D)
    table *= TABLE_SIZE / table.square().mean().sqrt()
    set_positions(model, table)
    for layer in model.modules():
        if isinstance(layer, Attention):
            dim = model.embed_dim
            for head in range(layer.num_heads):
                rows = slice(head * width, (head + 1) * width)
                offset = OFFSETS[head % len(OFFSETS)]
                query, key = impulse_factors(table, grid, offset, width)
                layer.qkv.weight[:dim][rows].copy_(query)
                layer.qkv.weight[dim : 2 * dim][rows].copy_(key)
            start_values(layer)
    labelled: Any = model  # an attribute that says what the layers start with
    labelled.locality = "soft at the start: every head looks at one neighbour (impulse)"
