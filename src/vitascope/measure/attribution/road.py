"""ROAD, remove and debias: hidden places are filled in from what surrounds them.

A grey square in an image gives its shape away, and a network may react to the square rather than
to what is missing. Rong et al. 2022 (https://arxiv.org/abs/2202.00449) put noisy linear imputation
in its place: every hidden pixel is the weighted mean of its eight neighbours (weight 1/6 for those
at its sides, 1/12 for those at its corners; hidden ones count too, so that it is one linear system
for each image), plus a little noise.

Deviation: the system is solved at no more than ``SIDE`` pixels a side and its solution, which is
smooth, enlarged. Places are cells of the map's own grid, not pixels.

Shapes: B images, h x w cells.
"""

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import spsolve
from torch import Tensor, nn

SIDE = 56  # pixels at which the linear system is solved
NOISE = 0.01  # standard deviation of the noise, as in the paper's code
_NEIGHBOURS = [
    (down, across, 1 / 12 if down and across else 1 / 6)
    for down in (-1, 0, 1)
    for across in (-1, 0, 1)
    if down or across
]


def filled(pixels: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Each hidden pixel as the weighted mean of its neighbours. (C, H, W)

    Args:
        pixels: What they are where they are not hidden. (C, H, W)
        hidden: (H, W), some of them False.

    >>> row = np.array([[[0.0, 9.0, 9.0, 3.0]]])
    >>> filled(row, np.array([[False, True, True, False]])).round(3).tolist()
    [[[0.0, 1.0, 2.0, 3.0]]]
    """
    unknown = np.flatnonzero(hidden)
    number = np.full(hidden.size, -1)
    number[unknown] = np.arange(len(unknown))
    height, width = hidden.shape
    rows, columns = np.divmod(unknown, width)
    flat = pixels.reshape(len(pixels), -1)
    known_part = np.zeros((len(unknown), len(pixels)))
    total = np.zeros(len(unknown))
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for down, across, weight in _NEIGHBOURS:
        at = (rows + down, columns + across)
        inside = (at[0] >= 0) & (at[0] < height) & (at[1] >= 0) & (at[1] < width)
        neighbour = at[0][inside] * width + at[1][inside]
        here = np.flatnonzero(inside)
        total[here] += weight
        open_ = number[neighbour] >= 0
        parts.append((here[open_], number[neighbour[open_]], np.full(open_.sum(), -weight)))
        known_part[here[~open_]] += weight * flat[:, neighbour[~open_]].T
    parts.append((np.arange(len(unknown)), np.arange(len(unknown)), total))
    at_row, at_column, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    system = sparse.csc_matrix((values, (at_row, at_column)), shape=(len(unknown), len(unknown)))
    solution = flat.astype(float)
    solution[:, unknown] = spsolve(system, known_part).reshape(len(unknown), -1).T
    return solution.reshape(pixels.shape)


def imputed(images: Tensor, hidden: Tensor, noise: Tensor) -> Tensor:
    """Images whose hidden cells are filled in. (B, C, H, W)

    Args:
        images: (B, C, H, W)
        hidden: (B, h, w), bool; some of each image False.
        noise: Standard normal numbers. (B, H, W)
    """
    size = images.shape[-2:]
    small = (min(SIDE, size[0]), min(SIDE, size[1]))
    cells = hidden[:, None].to(images)
    coarse = nn.functional.adaptive_avg_pool2d(images, small).double().cpu().numpy()
    holes = nn.functional.interpolate(cells, small, mode="nearest")[:, 0].bool().cpu().numpy()
    smooth = [
        filled(pixels, hole) if hole.any() and not hole.all() else pixels
        for pixels, hole in zip(coarse, holes, strict=True)
    ]
    filling = nn.functional.interpolate(
        torch.from_numpy(np.stack(smooth)).to(images), size, mode="bilinear"
    )
    where = nn.functional.interpolate(cells, size, mode="nearest").bool()
    return torch.where(where, filling + NOISE * noise[:, None].to(images), images)
