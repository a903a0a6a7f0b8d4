"""RandAugment on whole batches, by timm's configuration string.

Cubuk et al. 2020, https://arxiv.org/abs/1909.13719, in timm's form: per image and layer one
operation out of fifteen, applied with probability 0.5, its magnitude drawn around ``m``.

Images are grouped by what their
operation needs - a table look-up, an affine map, a blend with grey or with the smoothed image - so
a layer costs four batched calls however many operations are drawn.

The operations give pillow's pixels exactly, but for bicubic affine maps, whose kernel is torch's
(see :func:`vitascope.data.augment.operations.affine`).
"""

from dataclasses import dataclass
from functools import cache
from math import pi

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment.operations import (
    VALUES,
    affine,
    autocontrast_table,
    blend_table,
    equalize_table,
    gray_mean,
    histograms,
    look_up,
    saturate,
    sharpen,
)
from vitascope.errors import UserError

AFFINE = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXRel"}


AFFINE |= {"TranslateYRel"}

BLEND = {"Color", "Contrast", "Brightness", "Sharpness"}

TABLE = {"AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "SolarizeAdd"}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A parsed RandAugment string."""

    operations: tuple[str, ...]  # those of one group side by side
    weights: tuple[float, ...] | None  # None: all alike, with replacement
    layers: int
    probability: float
    magnitude: float
    spread: float  # standard deviation of the magnitude; inf: uniform from 0 to magnitude
    largest: float


def policy(config: str) -> Policy:
    """Read timm's string, for instance ``"rand-m9-mstd0.5-inc1"``.

    Raises:
        UserError: If timm does not understand it, or it asks for an operation that has no
            batched form.
    """
    from timm.data.auto_augment import rand_augment_transform

    try:
        parsed = rand_augment_transform(config, {})
    except (AssertionError, ValueError) as error:
        raise UserError(
            f"unknown RandAugment string {config!r:.80}; it looks like 'rand-m9-mstd0.5-inc1', "
            "with m magnitude, n layers, p probability, mstd spread, mmax limit, inc 0 or 1"
        ) from error
    names = tuple(op.name for op in parsed.ops)
    batched = AFFINE | BLEND | TABLE
    missing = [name for name in names if kind(name) not in batched]
    if missing:
        raise UserError(
            f"{config!r:.80} uses {', '.join(missing)}, which images in memory do not support; "
            "leave out the 't...' part"
        )
    first = parsed.ops[0]
    order = sorted(range(len(names)), key=lambda i: group(names[i]))
    weights = parsed.choice_weights
    return Policy(
        operations=tuple(names[i] for i in order),
        weights=None if weights is None else tuple(float(weights[i]) for i in order),
        layers=parsed.num_layers,
        probability=first.prob,
        magnitude=first.magnitude,
        spread=first.magnitude_std,
        largest=first.magnitude_max or 10.0,
    )


@cache
def kind(name: str) -> str:
    """The operation behind a name: timm's "Increasing" and "Original" only scale its argument."""
    return name.removesuffix("Increasing").removesuffix("Original")


def group(name: str) -> int:
    """Operations of one group are done together: affine maps, blends by pixel, look-ups."""
    return 0 if name in AFFINE else 1 if kind(name) in ("Sharpness", "Color") else 2


def arguments(name: str, level: np.ndarray, sign: np.ndarray, side: int) -> np.ndarray:
    """The argument that a magnitude of 0 ... 10 stands for, as timm has it. (b,)

    ``sign`` is +-1 where an operation has two directions; ``side`` scales absolute translations.
    """
    share = level / 10
    if name == "Rotate":
        return sign * share * 30  # degrees
    if name in ("ShearX", "ShearY"):
        return sign * share * 0.3
    if name in ("TranslateXRel", "TranslateYRel"):
        return sign * share * 0.45
    if name in ("TranslateX", "TranslateY"):
        return sign * share * int(side * 0.45)  # timm's create_transform
    if kind(name) == "Posterize":  # bits kept
        bits = np.floor(share * 4)
        offset = {"PosterizeIncreasing": 4 - bits, "PosterizeOriginal": 4 + bits}
        return offset.get(name, bits)
    if kind(name) == "Solarize":
        threshold = np.minimum(256, np.floor(share * 256))
        return 256 - threshold if name.endswith("Increasing") else threshold
    if name == "SolarizeAdd":
        return np.minimum(128, np.floor(share * 110))
    if kind(name) in BLEND:
        if name.endswith("Increasing"):
            return np.maximum(0.1, 1 + sign * share * 0.9)
        return share * 1.8 + 0.1
    return np.zeros_like(level)


def draw(
    rng: np.random.Generator, policy: Policy, count: int, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Operation (-1: none) and argument of every layer and image. Both (layers, count)"""
    shape = (policy.layers, count)
    if policy.weights is None:
        chosen = rng.integers(len(policy.operations), size=shape)
    else:  # without replacement, as timm: the largest of exponential races
        race = rng.exponential(size=(count, len(policy.operations))) / np.array(policy.weights)
        chosen = race.argsort(axis=1)[:, : policy.layers].T
    applied = rng.random(shape) < policy.probability
    sign = np.where(rng.random(shape) > 0.5, -1.0, 1.0)
    level = np.full(shape, policy.magnitude, dtype=float)
    if np.isinf(policy.spread):
        level = rng.uniform(0, policy.magnitude, shape)
    elif policy.spread > 0:
        level = rng.normal(policy.magnitude, policy.spread, shape)
    level = level.clip(0, policy.largest)
    argument = np.zeros(shape)
    for i, name in enumerate(policy.operations):
        here = chosen == i
        argument[here] = arguments(name, level[here], sign[here], side)
    return np.where(applied, chosen, -1), argument


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
    values = VALUES
    whole = argument[:, None, None].long()
    match kind(name):
        case "AutoContrast":
            return autocontrast_table(histograms(pixels))
        case "Equalize":
            return equalize_table(histograms(pixels))
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
            table = blend_table(torch.zeros(len(pixels)), argument)[:, None]
        case _:  # Contrast
            table = blend_table(gray_mean(pixels), argument)[:, None]
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
    for drawn, values in zip(chosen, argument, strict=True):
        layer(pixels, policy, drawn, values, fill, interpolation)
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
            work[begin:end] = sharpen(part, value)
        elif kind(name) == "Color":
            work[begin:end] = saturate(part, value) if channels > 1 else part
        else:
            looked_up.append((begin, end, tables(part, name, value).expand(-1, channels, -1)))
    if looked_up:
        run = slice(looked_up[0][0], looked_up[-1][1])
        work[run] = look_up(work[run], torch.cat([table for *_, table in looked_up]))
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
