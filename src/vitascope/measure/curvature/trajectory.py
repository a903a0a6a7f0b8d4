"""Trajectory of the weights during training, in polar coordinates.

In polar coordinates around the weights at the end (Park & Kim 2022,
https://arxiv.org/abs/2202.06709, Fig. 1b and C.4b):

    dw_t = w_t - w_end,   r_t = |dw_t| / |dw_0|,   theta_t = arccos(dw_t . dw_0 / (|dw_t| |dw_0|))

Training starts at r = 1, theta = 0 and ends at r = 0; on a straight line theta stays 0. In many
dimensions a path that loses its initial direction has theta near pi/2. At the end itself the angle
has no meaning, and is written as 0.

Only weights count, not running statistics; everything is summed in float64, one state at a time, so
a path may be longer than memory.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["Trajectory", "polar", "trajectory"]

State = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Trajectory(InstrumentResult, kind="trajectory"):
    """The path of the weights, in order of time."""

    epochs: tuple[int, ...]
    radius: tuple[float, ...]  # 1 at the start, 0 at the end
    angle: tuple[float, ...]  # radians
    distance: float  # |w_0 - w_end|
    num_weights: int


def polar(square: float, inner: float, start: float) -> tuple[float, float]:
    """Radius and angle from |dw_t|^2, dw_t . dw_0 and |dw_0|^2.

    >>> polar(0.25, 0.5, 1.0)
    (0.5, 0.0)
    """
    radius = float(np.sqrt(square / start))
    if square == 0:
        return 0.0, 0.0
    return radius, float(np.arccos(np.clip(inner / np.sqrt(square * start), -1.0, 1.0)))


@checked
def trajectory(
    states: Mapping[int, Callable[[], State]] | Mapping[int, State],
    *,
    end: State | None = None,
    weights: Iterable[str] | nn.Module | None = None,
) -> Trajectory:
    """Measure the path through ``states``.

    Args:
        states: Epoch to the weights then, or to a function that reads them; the first is the start.
        end: The optimum; the last of the states when left out.
        weights: Names that count, or a model whose parameters they are; all tensors of the states
            when left out.
    """
    order = sorted(states)
    if len(order) < (2 if end is None else 1):
        raise UserError(
            f"a path needs a start and an end; there are weights of {len(order)} epochs"
        )

    def read(epoch: int) -> State:
        state = states[epoch]
        return state() if callable(state) else state

    last = read(order[-1]) if end is None else end
    if isinstance(weights, nn.Module):
        weights = [name for name, _ in weights.named_parameters()]
    names = list(last if weights is None else weights)
    first = read(order[0])
    _check(first, last, names)
    begin = {n: first[n].double() - last[n].double() for n in names}
    start = sum(float(v.square().sum()) for v in begin.values())
    if not np.isfinite(start) or start == 0:
        raise UserError("the path does not lead anywhere: its two ends are the same weights")
    radius, angle = [], []
    for epoch in order:
        state = read(epoch)
        _check(state, last, names)
        square = inner = 0.0
        for name in names:
            away = state[name].double() - last[name].double()
            square += float(away.square().sum())
            inner += float((away * begin[name]).sum())
        r, theta = polar(square, inner, start)
        radius.append(r)
        angle.append(theta)
    return Trajectory(
        epochs=tuple(order),
        radius=tuple(radius),
        angle=tuple(angle),
        distance=float(np.sqrt(start)),
        num_weights=sum(v.numel() for v in begin.values()),
    )


def _check(state: State, last: State, names: Iterable[str]) -> None:
    for name in names:
        if name not in state or name not in last or state[name].shape != last[name].shape:
            raise UserError(
                f"the states do not belong to one model: {name!r} differs or is missing"
            )
