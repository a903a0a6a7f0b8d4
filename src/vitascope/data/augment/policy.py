"""RandAugment policies: timm's configuration string, and the operations drawn from it.

Cubuk et al. 2020, https://arxiv.org/abs/1909.13719, in timm's form: per image and layer one
operation out of fifteen, applied with probability 0.5, its magnitude drawn around ``m``.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

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
