"""RandAugment (Cubuk et al. 2020, https://arxiv.org/abs/1909.13719) on whole batches.

Operations are drawn by :mod:`vitascope.data.augment.policy`. Images are grouped by what their
operation needs - a table look-up, an affine map, a blend with grey or with the smoothed image - so
a layer costs four batched calls however many operations are drawn.

The operations give pillow's pixels exactly, but for bicubic affine maps, whose kernel is torch's
(see :func:`vitascope.data.augment.geometry.affine`).
"""

from math import pi

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment import color
from vitascope.data.augment.geometry import affine
from vitascope.data.augment.policy import AFFINE, Policy, kind


def matrices(name: str, argument: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pillow's affine matrices: from output to input coordinates. (b, 2, 3)"""
    matrix = np.zeros((len(argument), 2, 3))
    matrix[:, 0, 0] = matrix[:, 1, 1] = 1
    if name == "Rotate":
        cos, sin = np.cos(-argument * pi / 180), np.sin(-argument * pi / 180)
        matrix[:, 0, 0], matrix[:, 0, 1], matrix[:, 1, 0], matrix[:, 1, 1] = cos, sin, -sin, cos
        centre = np.array([width / 2, height / 2])
        matrix[:, :, 2] = centre - matrix[:, :, :2] @ centre
    elif name.startswith("Shear"):
        row, column = (0, 1) if name == "ShearX" else (1, 0)
        matrix[:, row, column] = argument
    else:
        axis = 0 if "X" in name else 1
        relative = (width, height)[axis] if name.endswith("Rel") else 1
        matrix[:, axis, 2] = argument * relative
    return matrix


def tables(pixels: Tensor, name: str, argument: Tensor) -> Tensor:
    """Look-up tables of a point operation. (b, C or 1, 256) uint8"""
    values = color.VALUES
    whole = argument[:, None, None].long()
    match kind(name):
        case "AutoContrast":
            return color.autocontrast_table(color.histograms(pixels))
        case "Equalize":
            return color.equalize_table(color.histograms(pixels))
        case "Invert":
            table = (255 - values).expand(len(pixels), 1, 256)
        case "Posterize":
            keep = 256 - (1 << (8 - whole))
            table = torch.where(whole >= 8, values, values & keep)
        case "Solarize":
            table = torch.where(values < whole, values, 255 - values)
        case "SolarizeAdd":
            table = torch.where(values < 128, (values + whole).clamp(max=255), values)
        case "Brightness":
            table = color.blend_table(torch.zeros(len(pixels)), argument)[:, None]
        case _:  # Contrast
            table = color.blend_table(color.gray_mean(pixels), argument)[:, None]
    return table.to(torch.uint8)


def augment(
    pixels: Tensor,
    policy: Policy,
    chosen: np.ndarray,
    argument: np.ndarray,
    fill: Tensor,
    interpolation: str,
) -> Tensor:
    """Apply what was drawn, layer by layer.

    Args:
        pixels: (b, C, H, W) uint8, changed in place.
        policy: What ``chosen`` indexes.
        chosen: (layers, b), -1 for nothing.
        argument: (layers, b).
        fill: (C,) uint8, for what an affine map brings in from outside.
        interpolation: Of the affine maps.
    """
    for operations, values in zip(chosen, argument, strict=True):
        layer(pixels, policy, operations, values, fill, interpolation)
    return pixels


def layer(
    pixels: Tensor,
    policy: Policy,
    operations: np.ndarray,
    values: np.ndarray,
    fill: Tensor,
    interpolation: str,
) -> None:
    """One operation for each image, in place.

    The images are sorted by operation, so that each has a run of them, and all table look-ups and
    all affine maps are one run as well.
    """
    order, runs = sorted_runs(policy, operations)
    if not len(order):
        return
    rows, values = torch.from_numpy(order), values[order]
    work = pixels.index_select(0, rows)
    channels, height, width = pixels.shape[1:]
    looked_up, moved = [], []
    for name, begin, end in runs:
        part, value = work[begin:end], torch.from_numpy(values[begin:end]).float()
        if name in AFFINE:
            moved.append((begin, end, matrices(name, values[begin:end], height, width)))
        elif kind(name) == "Sharpness":
            work[begin:end] = color.sharpen(part, value)
        elif kind(name) == "Color":
            work[begin:end] = color.saturate(part, value) if channels > 1 else part
        else:
            looked_up.append((begin, end, tables(part, name, value).expand(-1, channels, -1)))
    if looked_up:
        run = slice(looked_up[0][0], looked_up[-1][1])
        work[run] = color.look_up(work[run], torch.cat([table for *_, table in looked_up]))
    if moved:
        run = slice(moved[0][0], moved[-1][1])
        matrix = torch.from_numpy(np.concatenate([m for *_, m in moved]))
        work[run] = affine(work[run], matrix, fill, interpolation)
    pixels.index_copy_(0, rows, work)


def sorted_runs(
    policy: Policy, operations: np.ndarray
) -> tuple[np.ndarray, list[tuple[str, int, int]]]:
    """The images that have an operation, sorted by it, and each one's run: name, begin, end."""
    counts = np.bincount(operations + 1, minlength=len(policy.operations) + 1)
    ends = np.cumsum(counts).tolist()
    runs = [
        (name, begin - ends[0], end - ends[0])
        for name, begin, end in zip(policy.operations, ends, ends[1:], strict=False)
        if end > begin
    ]
    return np.argsort(operations, kind="stable")[ends[0] :], runs
