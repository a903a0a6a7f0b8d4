"""Which images, epochs and layers to keep where not all fit."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from vitascope.errors import UserError
from vitascope.explorer.compression import CompressedMaps

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
    """How many images and epochs to keep of these, where ``room`` pairs fit.

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
    kept = halves if len(halves) >= min(4, len(one)) else _fitting_layers(one, most)
    if not kept:
        least = min(made.num_bytes for made in one.values())
        raise UserError(f"the maps of one layer alone take {least:,} bytes of {most:,} there are")
    return kept, {name: "too large for a page" for name in one if name not in kept}


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
    return [f"{few} of {all_} {what}, to stay small" for what, all_, few in pairs if few < all_]
