"""Compression of attention maps, with the error it makes.

A row of attention is a softmax, and the scores of a head are an outer product of its queries and
keys: up to a constant per row, ``log A`` has the rank of one head's width (8 in a micro model).

    A_ij  ~  softmax_j  sum_c  scale_c  query_ic  key_jc        query, key: one byte each

Components are found one after the other, each the largest of the remainder. The remainder contains
the rounding error of earlier ones, so later ones correct it, until every row is within
``TOLERANCE``. 64 patches take about 800 bytes instead of 16,384. Maps without this
low rank (windows: most of a row is zero) are stored entry by entry, one byte on a log scale:

    A_ij = FLOOR^((255 - level) / 254), level 1 to 255; 0 below FLOOR; rows made to sum to one again

Errors are total variation: the share of a row's attention that lies elsewhere after reading back.

Shapes: M maps, Q queries, K keys, R components.
"""

from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

FLOOR = 1e-5  # the least weight a level stands for
TOLERANCE = 0.02  # the share of any row that may lie elsewhere; levels stay at half of it
_STEPS = 5  # of the power iteration for one component


@dataclass(frozen=True)
class CompressedMaps:
    """Compressed maps of one layer: either components or levels."""

    arrays: dict[str, np.ndarray]  # query (M, Q, R), key (M, K, R), scale (M, R); or levels
    mean_error: float
    max_error: float

    @property
    def num_bytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def expanded(self) -> Tensor:
        """The maps, decompressed. (M, Q, K)"""
        parts = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        if "levels" in parts:
            return _from_levels(parts["levels"])
        query = parts["query"].float() * parts["scale"][:, None]
        return (query @ parts["key"].float().mT).softmax(-1)


def compress(maps: Tensor, tolerance: float = TOLERANCE) -> CompressedMaps:
    """The smaller of the two forms that keeps to the tolerance; levels where neither does.

    Args:
        maps: Rows sum to one. (M, Q, K)
        tolerance: Largest total variation between a row and what is read back.

    >>> made = compress(torch.full((1, 4, 4), 0.25))
    >>> sorted(made.arrays), made.arrays["query"].shape
    (['key', 'query', 'scale'], (1, 4, 1))
    """
    maps = maps.float()
    level = _levels(maps)
    levels = CompressedMaps({"levels": level.numpy()}, *_error(_from_levels(level), maps))
    if bool((maps > 0).all()):
        made = _components(maps, tolerance)
        if made is not None and made.num_bytes < levels.num_bytes:
            return made
    return levels


def _components(maps: Tensor, tolerance: float) -> CompressedMaps | None:
    queries, keys = maps.shape[1:]
    most = max(1, queries * keys // (queries + keys))  # beyond, levels are smaller
    left = maps.log()
    left -= left.mean(-1, keepdim=True)
    whole = torch.zeros_like(left)
    found: dict[str, list[Tensor]] = {"query": [], "key": [], "scale": []}
    for _ in range(most):
        query, key, scale = _largest(left)
        share = (scale[:, None] * query)[..., None] * key[:, None]
        left -= share
        whole += share
        for name, value in (("query", query), ("key", key), ("scale", scale)):
            found[name].append(value)
        mean, worst = _error(whole.softmax(-1), maps)
        if worst <= tolerance:
            arrays = {
                "query": torch.stack(found["query"], -1).to(torch.int8).numpy(),
                "key": torch.stack(found["key"], -1).to(torch.int8).numpy(),
                "scale": torch.stack(found["scale"], -1).numpy(),
            }
            return CompressedMaps(arrays, mean, worst)
    return None


def _largest(left: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest component of each matrix, in whole numbers, and its scale. (M, Q), (M, K), (M)"""
    start = left.abs().sum(-1).argmax(-1)  # the row with most in it
    key = left[torch.arange(len(left)), start]
    for _ in range(_STEPS):
        query = _unit(torch.einsum("mqk,mk->mq", left, key))
        key = _unit(torch.einsum("mqk,mq->mk", left, query))
    query = _whole(query)[0]
    fitting = torch.einsum("mqk,mq->mk", left, query) / query.square().sum(-1, True).clamp(min=1)
    key, scale = _whole(fitting)
    return query, key, scale


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-20)


def _whole(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers from -127 to 127, and what one of them stands for."""
    scale = vector.abs().amax(-1).clamp(min=1e-20) / 127
    return (vector / scale[..., None]).round(), scale


def _levels(maps: Tensor) -> Tensor:
    level = (255 - 254 * maps.clamp(min=FLOOR).log() / log(FLOOR)).round().clamp(1, 255)
    return torch.where(maps < FLOOR, 0.0, level).to(torch.uint8)


def _from_levels(levels: Tensor) -> Tensor:
    weights = torch.exp((255 - levels.float()) / 254 * log(FLOOR)) * (levels > 0)
    return weights / weights.sum(-1, keepdim=True).clamp(min=FLOOR)


def _error(found: Tensor, maps: Tensor) -> tuple[float, float]:
    """Mean and largest total variation over rows."""
    rows = (found - maps).abs().sum(-1) / 2
    return rows.mean().item(), rows.max().item()
