"""Loss landscape: the loss on a grid of points around the weights.

    f(a, b) = NLL(w + a d1 + b d2) + weight_decay / 2 * |w + a d1 + b d2|^2

on augmented training images, along random, filter-normalised directions (Li et al. 2018,
https://arxiv.org/abs/1712.09913; Park & Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 1a and
C.4: 21 x 21 points on [-1, 1]^2), or along directions that are handed in, such as eigenvectors of
the Hessian. One direction gives a curve, two a surface. In units of nats; an untrained network of K
classes has about log K at the centre.

A random direction has no scale by itself: scaling one layer up and the next one down leaves a
network's function alone and changes every distance. Filter normalisation (Li et al., section 4)
gives each filter of the direction the norm of the filter it moves:

    d[i] <- d[i] / |d[i]| * |w[i]|

A filter is what makes one output: a row of a linear map, a kernel over all input channels of a
convolution (``axis="output"``). The code released with Park & Kim 2022 takes the other axis
(``axis="input"``). Only linear maps and convolutions move: norms, biases, tokens, gates and
whatever is called after positions stay.

The batches are kept and the weights move functionally: the model is never written to. The mode is
that of :mod:`vitascope.measure.curvature.objective`, where BatchNorm can use the batch's own
statistics (``batch_norm="batch"``): running ones are those of the centre and wrong away from it.

Shapes: n x m points.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from vitascope.capture.input_check import require_weights
from vitascope.errors import UserError, unknown
from vitascope.measure.curvature.objective import (
    deterministic,
    fixed_batches,
    objective,
    slots,
    trainable_weights,
)
from vitascope.measure.curvature.resume import ResumeFile, fingerprint
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["Landscape", "landscape"]

AXES = ("output", "input")
POSITIONS = re.compile(r"(^|\.)((rel_)?pos_|[^.]*position)")  # a part of a weight's dotted name
Direction = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Landscape(InstrumentResult, kind="landscape"):
    """The loss on a grid of points around the weights."""

    axes: tuple[np.ndarray, ...]  # coordinates along each direction
    nll: np.ndarray  # (n,) or (n, m); inf where the loss is no number
    l2: np.ndarray  # the same shape
    along: str  # what the directions are
    weight_decay: float
    batch_norm: str
    num_images: int
    num_moved: int  # weights that move
    num_weights: int
    seed: int | None = None

    @property
    def loss(self) -> np.ndarray:
        """NLL + l2."""
        return np.asarray(self.nll + self.l2)

    def summary(self) -> dict[str, Any]:
        """Return the seed of the directions."""
        return {"seed": self.seed}

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return the surfaces and their axes."""
        axes = {f"axis_{number}": axis for number, axis in enumerate(self.axes)}
        return {**axes, **super().record_arrays()}


def movable(model: nn.Module) -> dict[str, int]:
    """The weights that a direction moves, tied ones once, each with the axis of its outputs.

    >>> movable(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)))
    {'0.weight': 0, '2.weight': 0}
    """
    axes: dict[str, int] = {}
    names = slots(model)
    for prefix, module in model.named_modules():
        maps = isinstance(module, (nn.Linear, _ConvNd, nn.MultiheadAttention))
        if not maps or POSITIONS.search(prefix):
            continue
        for name, weight in module.named_parameters(recurse=False):
            if name.endswith("weight") and weight.ndim >= 2 and weight.requires_grad:
                full = names[f"{prefix}.{name}" if prefix else name]
                axes.setdefault(full, 1 if isinstance(module, _ConvTransposeNd) else 0)
    if not axes:
        raise UserError(f"{type(model).__name__} has no linear map or convolution that trains")
    return axes


def filter_norms(weight: Tensor, axis: int) -> Tensor:
    """The norm of every slice of ``axis``, in a shape that broadcasts against ``weight``."""
    others = [dim for dim in range(weight.ndim) if dim != axis]
    return weight.square().sum(others, keepdim=True).sqrt()


def normalised(direction: Tensor, weight: Tensor, axis: int) -> Tensor:
    """``direction`` with the filter norms of ``weight``; a filter of zeros does not move."""
    own = filter_norms(direction, axis)
    scale = torch.where(own > 0, filter_norms(weight, axis) / own, torch.zeros_like(own))
    return direction * scale


def random_direction(
    model: nn.Module, generator: torch.Generator, *, axis: str = "output"
) -> dict[str, Tensor]:
    """A Gaussian direction, normalised filter by filter; drawn on the CPU: the same on any
    device."""
    if axis not in AXES:
        raise unknown("axis", axis, AXES)
    direction = {}
    weights = dict(model.named_parameters())
    for name, outputs in movable(model).items():
        weight = weights[name].detach()
        drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        along = outputs if axis == "output" else 1 - outputs
        step = normalised(drawn.to(weight.device), weight.double(), along)
        direction[name] = step.to(weight.dtype)
    return direction


def grid_axes(grid: int | Sequence[Sequence[float]], span: float, num: int) -> tuple[Any, ...]:
    """Coordinates along each direction: ``grid`` points on [-span, span], or those given.

    >>> grid_axes(3, 1.0, 1)[0].tolist()
    [-1.0, 0.0, 1.0]
    """
    if not isinstance(grid, int):
        axes = tuple(np.asarray(axis, dtype=np.float64) for axis in grid)
        if len(axes) != num or any(a.ndim != 1 or not np.isfinite(a).all() for a in axes):
            raise UserError(f"give {num} lists of finite coordinates, one a direction")
        return axes
    if grid < 2 or not span > 0:
        raise UserError(f"a landscape needs 2 points or more and a span above 0: {grid}, {span}")
    return (np.linspace(-span, span, grid),) * num


def squares(weights: Direction, directions: Sequence[Direction]) -> np.ndarray:
    """Inner products of w, d1, d2, ...: |w + a d1 + b d2|^2 is (1, a, b) G (1, a, b)^T."""
    vectors = [weights, *directions]
    products = np.zeros((len(vectors), len(vectors)))
    for i, a in enumerate(vectors):
        for j, b in enumerate(vectors):
            shared = [name for name in a if name in b]
            products[i, j] = sum(float((a[n].double() * b[n].double()).sum()) for n in shared)
    return products


@checked
def landscape(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    directions: int | Sequence[Direction] = 2,
    axis: str = "output",
    grid: int | Sequence[Sequence[float]] = 21,
    span: float = 1.0,
    weight_decay: float = 0.0,
    batch_norm: str = "running",
    dtype: torch.dtype | None = None,
    seed: int = 0,
    resume: str | Path | None = None,
    on_point: Callable[[int, int], None] = lambda done, total: None,
) -> Landscape:
    """Measure the loss of ``model`` on a grid of points around its weights.

    Args:
        model: Any classifier; it is left unchanged.
        batches: Of (images, targets), augmented already; they are kept in memory.
        directions: How many random ones (1 or 2), or the directions: name of a weight to tensor.
        axis: Which axis of a weight counts its filters: output, or input (the released code).
        grid: Points along each direction, or the coordinates themselves.
        span: The points run from -span to span.
        weight_decay: Of the l2 term, over all weights that train.
        batch_norm: ``"running"`` or ``"batch"``; see
            :func:`vitascope.measure.curvature.objective.deterministic`.
        dtype: Precision to compute in; the model's when left out.
        seed: Of the random directions.
        resume: A file that keeps finished points; a call with the same settings, weights and
            batches continues from it.
        on_point: Called with the number of points done and of all points.
    """
    require_weights(model)
    along, chosen = _directions(model, directions, axis, seed)
    axes = grid_axes(grid, span, len(chosen))
    fixed = list(fixed_batches(batches, model))
    weights = {name: w.detach() for name, w in trainable_weights(model, dtype).items()}
    foreign = [name for step in chosen for name in step if name not in weights]
    if foreign:
        raise UserError(f"a direction moves {foreign[0]!r}, which is no weight that trains")
    images = sum(len(batch) for batch, _ in fixed)
    question = {
        "along": along,
        "axes": [a.tolist() for a in axes],
        "batch_norm": batch_norm,
        "dtype": str(dtype),
        "weights": fingerprint(weights.values()),
        "directions": fingerprint(d for step in chosen for d in step.values()),
        "batches": fingerprint(tensor for batch in fixed for tensor in batch),
    }
    finished = ResumeFile(resume, question)
    points = list(product(*axes))
    with deterministic(model, batch_norm=batch_norm), torch.no_grad():
        for done, point in enumerate(points, start=1):
            if done > len(finished.rows):
                moved = _moved(weights, chosen, point)
                total = sum(float(objective(model, moved, *b)) * len(b[0]) for b in fixed)
                mean = total / images if np.isfinite(total) else np.inf
                finished.add({"point": point, "nll": mean})
            on_point(done, len(points))
    shape = tuple(len(a) for a in axes)
    nll = finished.columns()["nll"].reshape(shape)
    gram = squares(weights, chosen)
    ones = [np.ones(shape), *np.meshgrid(*axes, indexing="ij")]
    length = sum(gram[i, j] * ones[i] * ones[j] for i in range(len(ones)) for j in range(len(ones)))
    return Landscape(
        axes=axes,
        nll=nll,
        l2=weight_decay / 2 * np.asarray(length),
        along=along,
        weight_decay=weight_decay,
        batch_norm=batch_norm,
        num_images=images,
        num_moved=sum(d.numel() for d in chosen[0].values()),
        num_weights=sum(w.numel() for w in weights.values()),
        seed=seed if isinstance(directions, int) else None,
    )


def _directions(
    model: nn.Module, directions: int | Sequence[Direction], axis: str, seed: int
) -> tuple[str, Sequence[Direction]]:
    if not isinstance(directions, int):
        if len(directions) not in (1, 2):
            raise UserError(f"give one direction or two, not {len(directions)}")
        return "given directions", directions
    if directions not in (1, 2):
        raise UserError(f"a landscape has 1 direction or 2, not {directions}")
    generator = torch.Generator().manual_seed(seed)
    drawn = [random_direction(model, generator, axis=axis) for _ in range(directions)]
    return f"random directions, one scale an {axis} filter", drawn


def _moved(weights: Direction, chosen: Sequence[Direction], point: Sequence[float]) -> Direction:
    """w + a d1 + b d2"""
    moved = dict(weights)
    for step, vector in zip(point, chosen, strict=True):
        for name, along in vector.items():
            moved[name] = torch.add(moved[name], along.to(moved[name]), alpha=float(step))
    return moved
