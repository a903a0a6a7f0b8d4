"""Positional attention at initialisation (Fig. 3 of the ConViT paper).

d'Ascoli et al. 2021, Fig. 3c and d: where one query patch looks at first, for locality strengths of
0.5 and 2. The paper's four heads have their centres at (-1, 1), (-1, -1), (1, 1) and (1, -1), in
that order; the four heads of a ConViT-Ti start at (+-0.5, +-0.5), the corners of a 2 x 2 kernel.
"""

from dataclasses import dataclass

import numpy as np
import torch

from vitascope.layers.positions import dense_score, window_weight
from vitascope.record import Record

CENTRES = ((-1.0, 1.0), (-1.0, -1.0), (1.0, 1.0), (1.0, -1.0))  # section 2, of Fig. 3(c)
STRENGTHS = (0.5, 2.0)


@dataclass(frozen=True)
class InitialMaps:
    """Positional attention of one query patch."""

    maps: np.ndarray  # (strengths, heads, h, w)
    strengths: tuple[float, ...]
    query: tuple[int, int]

    def to_record(self) -> Record:
        """For the disk and for a figure."""
        values = {"strengths": self.strengths, "query": self.query}
        return Record(kind="first-look", values=values, arrays={"maps": self.maps}, seed=None)


def initial_maps(
    strengths: tuple[float, ...] = STRENGTHS, side: int = 14, query: tuple[int, int] | None = None
) -> InitialMaps:
    """Maps of heads at ``CENTRES`` (equation 5), on a square grid; nothing in them is random.

    >>> result = initial_maps(strengths=(20.0,), side=5)
    >>> np.argwhere(result.maps[0, 0] > 0.99).tolist(), result.query  # down, across
    ([[1, 3]], (2, 2))
    """
    query = query or (side // 2, side // 2)
    offsets = torch.tensor(CENTRES, dtype=torch.float64)
    maps = []
    for strength in strengths:
        score = dense_score(window_weight(offsets, strength), (side, side))
        position = score.softmax(dim=-1)[:, query[0] * side + query[1]]  # (H, N)
        maps.append(position.reshape(len(CENTRES), side, side).numpy())
    return InitialMaps(np.stack(maps), strengths, query)
