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

Where not all fit into a page, some images, epochs and layers are chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vitascope.errors import UserError

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
        """Size of all arrays in bytes."""
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
    parts: dict[str, list[Tensor]] = {"query": [], "key": [], "scale": []}
    for _ in range(most):
        query, key, scale = _largest(left)
        share = (scale[:, None] * query)[..., None] * key[:, None]
        left -= share
        whole += share
        for name, value in (("query", query), ("key", key), ("scale", scale)):
            parts[name].append(value)
        mean, worst = _error(whole.softmax(-1), maps)
        if worst <= tolerance:
            arrays = {
                "query": torch.stack(parts["query"], -1).to(torch.int8).numpy(),
                "key": torch.stack(parts["key"], -1).to(torch.int8).numpy(),
                "scale": torch.stack(parts["scale"], -1).numpy(),
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


def _error(rebuilt: Tensor, maps: Tensor) -> tuple[float, float]:
    """Mean and largest total variation over rows."""
    rows = (rebuilt - maps).abs().sum(-1) / 2
    return rows.mean().item(), rows.max().item()


T = TypeVar("T")


def choose_images(labels: np.ndarray, number: int, seed: int = 0) -> np.ndarray:
    """Positions of some images, of different classes as far as there are, in the classes' order.

    >>> choose_images(np.array([1, 0, 1, 0, 2]), 3).shape
    (3,)
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    turn = np.zeros(len(labels), dtype=int)  # first of its class, second, ...
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        turn[mine] = np.arange(len(mine))
    picked = order[np.argsort(turn[order], kind="stable")][:number]
    return picked[np.argsort(labels[picked], kind="stable")]


def evenly_spaced(items: Sequence[T], number: int) -> list[T]:
    """``number`` of them, evenly, the last among them and the first if there are two.

    >>> evenly_spaced([0, 1, 2, 5, 13, 30], 3)
    [0, 2, 30]
    """
    if number >= len(items):
        return list(items)
    places = np.linspace(0, len(items) - 1, number).round().astype(int)
    return [items[i] for i in places] if number > 1 else [items[-1]]


def counts_that_fit(images: int, epochs: int, room: int) -> tuple[int, int]:
    """Return how many images and epochs to keep of these, where ``room`` pairs fit.

    >>> counts_that_fit(6, 6, 36), counts_that_fit(6, 6, 10), counts_that_fit(6, 1, 2)
    ((6, 6), (3, 3), (2, 1))
    """
    while images * epochs > max(1, room):
        if epochs >= images:
            epochs -= 1
        else:
            images -= 1
    return images, epochs


def layers_that_fit(
    one: Mapping[str, CompressedMaps], most: int, images: int
) -> tuple[list[str], dict[str, str]]:
    """Layers to keep, evenly over the depth, and the others with the reason.

    Two images are wanted, unless that leaves fewer than four layers.

    Args:
        one: Each layer's maps of one image.
        most: Bytes there are.
        images: How many there are.
    """
    halves = _fitting_layers(one, most // min(2, images))
    fitting = halves if len(halves) >= min(4, len(one)) else _fitting_layers(one, most)
    if not fitting:
        least = min(made.num_bytes for made in one.values())
        raise UserError(f"the maps of one layer alone take {least:,} bytes of {most:,} there are")
    return fitting, {name: "too large for a page" for name in one if name not in fitting}


def _fitting_layers(one: Mapping[str, CompressedMaps], room: int) -> list[str]:
    names = [name for name, made in one.items() if made.num_bytes <= room]
    for number in range(len(names), 0, -1):
        some = evenly_spaced(names, number)
        if sum(one[name].num_bytes for name in some) <= room:
            return some
    return []


def left_out_notes(images: int, few_images: int, epochs: int, few_epochs: int) -> list[str]:
    """Sentences about the images and epochs that were left out."""
    pairs = (("images", images, few_images), ("kept epochs", epochs, few_epochs))
    return [f"{few} of {all_} {noun}, to stay small" for noun, all_, few in pairs if few < all_]
