"""Image coordinates of a tensor's elements, as planes, and what operators do to them.

Six planes the size of the tensor hold two points in homogeneous pixel coordinates: ``(w, wy, wx)``
of the row (or of the element, if there is only one point), then of the column. ``w = 1`` is a
point, ``w = 0`` means no coordinates. Sums of planes are weighted means of points, so linear
operators act on planes as they act on the tensor.

All channels of a token and all heads have one point. Such a plane holds it once, expanded along
these axes (stride 0), and the functions here compute on what is held: a trace costs little more
than the forward pass.
:mod:`vitascope.capture.coordinates.tracer` decides which function here follows which operator.
"""

from typing import Any

import torch
from torch import Tensor

CoordinatePlanes = list[Tensor]  # w, wy, wx of the row, then of the column


def rows(planes: CoordinatePlanes | None) -> Tensor | None:
    """Coordinates of the tokens of ``(..., T, features)``; NaN where unknown. (..., T, 2)"""
    return None if planes is None else positions(contract(single(planes), -1))


def centres(planes: CoordinatePlanes) -> Tensor:
    """(y, x) in pixels of every element, NaN where it has no coordinates. (..., 2)"""
    return positions(single(planes))


def distinct(values: Tensor) -> int:
    """Number of different coordinates along one axis, to a sixteenth of a pixel."""
    values = values[~values.isnan()]
    return len((values * 16).round().unique())


def spacing(coordinates: Tensor) -> tuple[float, float]:
    """Smallest distance between points (..., 2) down and across, in pixels; 0 if all are equal."""
    return _smallest_step(coordinates[..., 0]), _smallest_step(coordinates[..., 1])


def _smallest_step(values: Tensor) -> float:
    values = values[~values.isnan()].double()
    levels = (values * 16).round().unique() / 16
    if len(levels) < 2:
        return 0.0
    steps = levels.diff()
    if steps.max() - steps.min() <= 1 / 8:  # even: not rounded to sixteenths
        return float(values.max() - values.min()) / (len(levels) - 1)
    return float(steps.min())


def fills_a_grid(coordinates: Tensor) -> bool:
    """Return whether points (..., 2) are all the crossings of their rows and columns."""
    points = coordinates[~coordinates[..., 0].isnan()]
    different = len((points * 16).round().unique(dim=0))
    return different == distinct(points[:, 0]) * distinct(points[:, 1]) > 0


def empty_plane(shape: torch.Size) -> Tensor:
    """A plane for elements without coordinates: one expanded zero."""
    return torch.zeros((), dtype=torch.float32).expand(shape)


def is_empty(plane: Tensor) -> bool:
    """Return whether a plane is one expanded zero: no element has coordinates."""
    one = plane.untyped_storage().nbytes() == plane.element_size()
    return one and not plane.as_strided((1,), (0,)).item()


def any_placed(planes: CoordinatePlanes | None) -> bool:
    """Return whether any element has coordinates."""
    return planes is not None and (_any(planes[0]) or _any(planes[3]))


def _any(plane: Tensor) -> bool:
    return bool(_held([plane])[0].any())


def _held(planes: CoordinatePlanes) -> CoordinatePlanes:
    """The planes with one element along each axis on which all of them are expanded."""
    for axis, size in enumerate(planes[0].shape):
        if size > 1 and all(plane.stride(axis) == 0 for plane in planes):
            planes = [plane.narrow(axis, 0, 1) for plane in planes]
    return planes


def held_once(plane: Tensor) -> Tensor:
    """Return the plane expanded along the axes on which it is constant, which operators wrote out.

    >>> held_once(torch.tensor([[1.0, 1.0], [2.0, 2.0]])).stride()
    (1, 0)
    """
    shape = plane.shape
    if any(stride == 0 and size > 1 for stride, size in zip(plane.stride(), shape, strict=True)):
        return plane
    for axis, size in enumerate(shape):
        first = plane.narrow(axis, 0, min(size, 1))
        if size > 1 and torch.equal(first, plane.narrow(axis, size - 1, 1)):  # soon told apart
            plane = first.clone() if bool((plane == first).all()) else plane
    return plane.expand(shape)


def positions(planes: CoordinatePlanes) -> Tensor:
    """(y, x) in pixels from three planes, NaN where w = 0. (..., 2)"""
    shape = planes[0].shape
    w, y, x = _held(planes)
    placed = w > 1e-6
    safe = torch.where(placed, w, torch.ones_like(w))
    nan = torch.full_like(safe, float("nan"))
    point = torch.stack(
        [torch.where(placed, y / safe, nan), torch.where(placed, x / safe, nan)], -1
    )
    return point.expand(*shape, 2)


def unit(planes: CoordinatePlanes) -> CoordinatePlanes:
    """Scale to w = 1 wherever w is not 0."""
    scaled: CoordinatePlanes = []
    shape = planes[0].shape
    for w, y, x in (_held(planes[:3]), _held(planes[3:])):
        if is_empty(w) or w.numel() == 0 or bool(((w - 1).abs() < 1e-6).logical_or(w == 0).all()):
            scaled += [w, y, x]
            continue
        placed = w > 1e-6
        safe = torch.where(placed, w, torch.ones_like(w))
        zero = torch.zeros_like(w)
        scaled += [
            placed.float(),
            torch.where(placed, y / safe, zero),
            torch.where(placed, x / safe, zero),
        ]
    return [plane.expand(shape) for plane in scaled]


def single(planes: CoordinatePlanes) -> CoordinatePlanes:
    """One point per element: its row's, or its column's if no row has one."""
    return planes[:3] if _any(planes[0]) or not _any(planes[3]) else planes[3:]


def contract(planes: CoordinatePlanes, dim: int) -> CoordinatePlanes:
    """Mean over ``dim``, -1 or -2: the coordinates of the other axis's elements.

    Merged neighbours (Swin's patch merging) get their midpoint. When every element sums over the
    same set of different points (token mixing, attention over channels) it gets none.
    """
    shape = planes[0].select(dim, 0).shape
    planes = _held(planes)
    position = positions(planes)
    low = position.nan_to_num(float("inf")).amin(dim - 1)  # behind it, the axis of y and x
    high = position.nan_to_num(float("-inf")).amax(dim - 1)
    spread = ((high - low) > 0.5).any(-1)  # (..., elements)
    middle = [plane.mean(dim) for plane in planes]
    if bool(spread.any()):
        at = positions(middle)
        apart = (at.nan_to_num(float("-inf")).amax(-2) - at.nan_to_num(float("inf")).amin(-2)) > 0.5
        mixed = spread & ~apart.any(-1, keepdim=True)
        middle = [plane * ~mixed for plane in middle]
    return [plane.expand(shape) for plane in middle]


def product(
    a: CoordinatePlanes | None, b: CoordinatePlanes | None, shape: torch.Size
) -> CoordinatePlanes:
    """``a @ b``: row coordinates of a, column coordinates of b."""
    if a is not None and b is not None:
        left, right = (contract(single(a), -1), -1), (contract(single(b), -2), -2)
    elif a is not None:
        left, right = ((contract(triple, -1), -1) for triple in (a[:3], a[3:]))
    elif b is not None:
        left, right = ((contract(triple, -2), -2) for triple in (b[:3], b[3:]))
    else:
        return [empty_plane(shape)] * 6
    return unit([p.unsqueeze(dim).expand(shape) for planes, dim in (left, right) for p in planes])


def attended(
    q: CoordinatePlanes | None, v: CoordinatePlanes | None, shape: torch.Size
) -> CoordinatePlanes:
    """Fused attention: coordinates of the query or, over channels, of the value's columns."""
    heads = [p.expand(*shape[:-2], *p.shape[-2:]) for p in q] if q is not None else None
    return product(heads, v, shape)


def carry(before: list[CoordinatePlanes | None], shape: torch.Size) -> CoordinatePlanes | None:
    """Element-wise operators: coordinates of the first operand that has some.

    Operands that are broadcast over the others (a mean token, a channel's gate) do not count.
    """
    result: CoordinatePlanes | None = None
    carried = [planes for planes in before if planes is not None]
    for planes in [planes for planes in carried if planes[0].shape == shape] or carried:
        try:
            planes = [p.expand(shape) for p in planes]
        except RuntimeError:
            continue
        if result is None:
            result = planes
        elif not all(bool(_held([plane])[0].all()) for plane in (result[0], result[3])):
            ours, other = _held([*result[:3], *planes[:3]]), _held([*result[3:], *planes[3:]])
            result = [
                torch.where(three[0] > 0, three[i], three[i + 3]).expand(shape)
                for three in (ours, other)
                for i in range(3)
            ]
    return result


def window(
    planes: CoordinatePlanes | None,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    shape: torch.Size,
) -> CoordinatePlanes | None:
    """The centre of each output's window; beyond the border the grid is continued."""
    if planes is None:
        return None
    spatial = len(shape) - 2
    settings = [[_at(v, i) for v in (kernel, stride, padding)] for i in range(spatial)]
    if all(each == [1, 1, 0] for each in settings):  # mixes channels (or heads) alone
        return unit([plane.mean(1, keepdim=True).expand(shape) for plane in planes])
    moved: CoordinatePlanes = []
    for plane in planes[:3]:
        plane = _held([plane])[0].expand(*plane.shape[:1], -1, *plane.shape[2:])
        plane = plane.mean(1, keepdim=True)
        for axis in range(spatial):
            k, s, p, d = (_at(value, axis) for value in (kernel, stride, padding, dilation))
            mix = _window_sums(plane.shape[2 + axis], shape[2 + axis], k, s, p, d)
            plane = torch.tensordot(plane, mix, dims=([2 + axis], [1])).movedim(-1, 2 + axis) / k
        moved.append(plane.expand(shape))
    return [*unit([*moved, *moved])[:3], *[empty_plane(shape)] * 3]


def enlarged(planes: CoordinatePlanes | None, shape: torch.Size) -> CoordinatePlanes | None:
    """Copies of a pixel (B, C, h, w) lie evenly around it; at the border the grid is continued."""
    if planes is None:
        return None
    for axis in (2, 3):
        size, ratio = planes[0].shape[axis], planes[0].shape[axis] / shape[axis]
        mix = _interpolation(size, shape[axis], ratio, ratio / 2 - 0.5)
        planes = [
            torch.tensordot(plane, mix, dims=([axis], [1])).movedim(-1, axis)
            for plane in planes[:3]
        ]
    return [*unit([*planes, *planes])[:3], *[empty_plane(shape)] * 3]


def _at(value: Any, axis: int) -> int:
    value = value if isinstance(value, (list, tuple, torch.Size)) else [value]
    return value[axis] if len(value) > axis else value[0]


def _window_sums(size_in: int, size_out: int, k: int, stride: int, pad: int, step: int) -> Tensor:
    """Matrix that sums a line of ``size_in`` over windows of ``k``; beyond its ends it continues.

    A line that is not straight (tokens in raster order) has its windows' means too.
    """
    return sum(
        (_interpolation(size_in, size_out, stride, step * j - pad) for j in range(k)),
        torch.zeros(size_out, size_in, dtype=torch.float32),
    )


def _interpolation(size_in: int, size_out: int, stride: float, offset: float) -> Tensor:
    """Matrix that reads a line of ``size_in`` at ``stride * i + offset``, extrapolating."""
    at = torch.arange(size_out, dtype=torch.float32) * stride + offset
    matrix = torch.zeros(size_out, size_in, dtype=torch.float32)
    if size_in == 1:
        return matrix + 1
    low = at.floor().clamp(0, size_in - 2).long()
    fraction = at - low
    index = torch.arange(size_out)
    matrix[index, low] = 1 - fraction
    matrix[index, low + 1] += fraction
    return matrix
