"""Attention maps of a layer, laid out on the grid: from every patch or token to every other.

Tokens without coordinates (class, distillation, registers) come after the patches as queries; as
keys they have a share of each query's attention, and the rows among patches are made to sum to one
again, as :mod:`vitascope.measure.attention.nonlocality` does. Padding of windows is dropped.
Windows become whole maps that are zero outside the query's window; pooled keys lie at the middle of
what they pool.

Shapes: B images, W windows per image, H heads, T queries, S keys; Q queries: those on the grid,
then those without coordinates; K keys on the grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitascope.capture import TokenCoordinates
from vitascope.errors import UserError

MOST_QUERIES = 1024  # patches of a layer; more cannot be pointed at


@dataclass(frozen=True)
class GridLayout:
    """Where a layer's queries and keys go: on their grids, then tokens without coordinates.

    -1 for padding.
    """

    query: Tensor  # (W, T)
    key: Tensor  # (W, S)
    query_axes: tuple[list[float], list[float]]  # places down and across, in patches
    key_axes: tuple[list[float], list[float]]
    query_tokens: tuple[str, ...] = ()  # names of those without coordinates
    key_tokens: tuple[str, ...] = ()

    @property
    def grid(self) -> tuple[int, int]:
        """Queries down and across."""
        return len(self.query_axes[0]), len(self.query_axes[1])

    @property
    def keys(self) -> tuple[int, int]:
        """Keys down and across."""
        return len(self.key_axes[0]), len(self.key_axes[1])

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """From (B * W, H, T, S) to maps among patches, rows summing to one, and tokens' shares.

        Returns:
            (B, H, Q, K) on the grid of keys, and the share of each query's attention to
            keys without coordinates. (B, H, Q, tokens)
        """
        weights = weights.float().cpu().unflatten(0, (-1, len(self.query)))
        (h, w), (kh, kw) = self.grid, self.keys
        size = (h * w + len(self.query_tokens), kh * kw + len(self.key_tokens))
        out = weights.new_zeros(len(weights), weights.shape[2], *size)
        for window, (query, key) in enumerate(zip(self.query, self.key, strict=True)):
            rows, columns = (query >= 0).nonzero()[:, 0], (key >= 0).nonzero()[:, 0]
            part = weights[:, window][:, :, rows[:, None], columns]
            out[:, :, query[rows][:, None], key[columns]] += part
        patches, tokens = out[..., : kh * kw], out[..., kh * kw :]
        shares = tokens / out.sum(-1, keepdim=True).clamp(min=1e-12)
        return patches / patches.sum(-1, keepdim=True).clamp(min=1e-12), shares


def grid_layout(
    places: TokenCoordinates, query_tokens: Sequence[str] = (), key_tokens: Sequence[str] = ()
) -> GridLayout:
    """The layout of a layer's maps on the grid of patches.

    Args:
        places: Of its queries and keys.
        query_tokens: Names of the queries without coordinates; without names they are dropped.
        key_tokens: Of the keys.

    Raises:
        UserError: If its patches do not fill a grid, or are too many, with the reason.
    """
    step = places.step
    query, query_axes = _cells(places.query, step)
    key, key_axes = _cells(places.key, step)
    h, w = map(len, query_axes)
    if len(query[query >= 0].unique()) != h * w:
        raise UserError("its patches do not fill a grid")
    if h * w > MOST_QUERIES:
        raise UserError(f"it has {h * w} patches; the explorer shows at most {MOST_QUERIES}")
    _append(query, h * w, len(query_tokens))
    _append(key, len(key_axes[0]) * len(key_axes[1]), len(key_tokens))
    return GridLayout(query, key, query_axes, key_axes, tuple(query_tokens), tuple(key_tokens))


def _append(cells: Tensor, first: int, count: int) -> None:
    """Number the tokens without coordinates of the only window from ``first`` on."""
    if count:
        cells[0, (cells[0] < 0).nonzero()[:, 0]] = torch.arange(first, first + count)


def separable(
    position: Tensor, grid: tuple[int, int], keys: tuple[int, int]
) -> list[Tensor] | None:
    """One matrix down and one across whose product is the map; None where there are none.

    Args:
        position: Rows sum to one. (H, Q, K)
        grid: Queries down and across, h x w.
        keys: Keys down and across.

    Returns:
        Rows that sum to one. (H, h, kh), (H, w, kw)
    """
    whole = position.unflatten(2, keys).unflatten(1, grid)  # (H, h, w, kh, kw)
    down, across = whole.sum(-1).mean(2), whole.sum(-2).mean(1)
    product = down[:, :, None, :, None] * across[:, None, :, None, :]
    return [down, across] if (product - whole).abs().max() < 1e-4 else None


def _cells(
    places: Tensor, step: tuple[float, float]
) -> tuple[Tensor, tuple[list[float], list[float]]]:
    """The number of each token's cell in row-major order, and where rows and columns lie."""
    there = ~places[..., 0].isnan()
    index, axes = [], []
    for axis in (0, 1):
        fine = (places[..., axis] * 16).round()  # places that differ by rounding are one
        levels, inverse = fine[there].unique(return_inverse=True)
        index.append(torch.full(there.shape, -1).masked_scatter(there, inverse))
        axes.append((levels / 16 / step[axis]).tolist())
    cell = torch.where(there, index[0] * len(axes[1]) + index[1], -1)
    return cell, (axes[0], axes[1])
