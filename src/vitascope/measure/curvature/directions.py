"""Filter-normalised directions in the space of weights.

A random direction has no scale by itself: scaling one layer up and the next one down leaves a
network's function alone and changes every distance. Filter normalisation (Li et al. 2018,
https://arxiv.org/abs/1712.09913, section 4) gives each filter of the direction the norm of the
filter it moves:

    d[i] <- d[i] / |d[i]| * |w[i]|

A filter is what makes one output: a row of a linear map, a kernel over all input channels of a
convolution (``axis="output"``). The code released with Park & Kim 2022 takes the other axis
(``axis="input"``). Only linear maps and convolutions move: norms, biases, tokens, gates and
whatever is called after positions stay.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from vitascope.errors import UserError, unknown
from vitascope.measure.curvature.objective import slots

AXES = ("output", "input")
POSITIONS = re.compile(r"(^|\.)((rel_)?pos_|[^.]*position)")  # a part of a weight's dotted name
Direction = Mapping[str, Tensor]


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
