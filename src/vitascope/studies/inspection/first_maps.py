"""Positional attention of ConViT's heads at initialisation (Fig. 3 of the paper).

d'Ascoli et al. 2021, Fig. 3: the positional attention of one query patch at initialisation, for
increasing locality strength. Nine heads attend to the nine offsets of a 3 x 3 kernel.
"""

from dataclasses import dataclass

import numpy as np
import torch

from vitascope.layers import GPSA
from vitascope.record import Record

__all__ = ["InitialMaps", "initial_maps"]


@dataclass(frozen=True)
class InitialMaps:
    """Positional attention of the middle patch."""

    maps: np.ndarray  # (strengths, heads, h, w)
    strengths: tuple[float, ...]
    grid: tuple[int, int]

    def to_record(self) -> Record:
        """For the disk and for a figure."""
        values = {"strengths": self.strengths, "grid": self.grid}
        return Record(kind="first-look", values=values, arrays={"maps": self.maps}, seed=None)


def initial_maps(
    strengths: tuple[float, ...] = (0.1, 1.0, 10.0), num_heads: int = 9, side: int = 15
) -> InitialMaps:
    """Maps of new layers; nothing in them is random."""
    middle = side * side // 2
    maps = []
    for strength in strengths:
        layer = GPSA(num_heads, num_heads, locality_strength=strength)
        with torch.no_grad():
            position = layer.attention(
                torch.zeros(1, side * side, num_heads), (side, side)
            ).position
        maps.append(position[0, :, middle].reshape(num_heads, side, side).numpy())
    return InitialMaps(np.stack(maps), strengths, (side, side))
