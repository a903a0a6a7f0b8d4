"""Where in the image does each number inside a model come from?

Windows, shifts, class tokens, key reduction and patch merging are all bookkeeping on positions.
Instead of knowing each family's bookkeeping, one image is run with a shadow beside every tensor:
its *place*, in homogeneous pixel coordinates ``(w, w y, w x)``. ``w = 1`` is a place, ``w = 0`` is
none (parameters, class tokens, padding). The shadow goes through the operators the tensor goes
through:

* what moves numbers (view, permute, roll, pad, slice, cat, ...) moves their places;
* a convolution or a pooling puts its output at the centre of its window;
* a product ``a @ b`` keeps the places of a's rows and of b's columns. A sum over *different*
  places (token mixing, attention over channels) has no place: that is how attention over tokens
  is told from attention over channels;
* anything else that keeps a shape keeps the places; what is left is "unknown", never guessed.

A tensor of attention scores has two places, its query's and its key's: six planes in all.
"""

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = ["Shadows", "centres", "positions", "rows", "spacing"]

Planes = list[Tensor]  # w, wy, wx of the row (or only) place, then of the column place

_MOVES = frozenset(
    """view _unsafe_view _reshape_alias permute transpose t expand clone slice select split
    split_with_sizes unbind unsqueeze squeeze roll index index_select gather cat stack flip alias
    detach repeat unfold im2col pixel_shuffle pixel_unshuffle narrow lift_fresh mean sum
    _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    constant_pad_nd""".split()  # noqa: SIM905
)


_MIXES = frozenset(
    """mean sum _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d
    upsample_bicubic2d""".split()  # noqa: SIM905
)


class Shadows(TorchDispatchMode):
    """While active, every tensor computed from ``image`` has a place; see :meth:`of`."""

    def __init__(self, image: Tensor):
        super().__init__()
        # a weak reference keeps a storage's address from being used again, not its memory
        self._planes: dict[tuple[Any, ...], tuple[Planes, StorageWeakRef]] = {}
        self._next_sweep = 64
        self.layouts: dict[Any, Any] = {}  # by planes, which it keeps: see places.layout_of
        height, width = image.shape[-2:]
        y = torch.arange(height, dtype=torch.float32).view(-1, 1).expand(image.shape)
        x = torch.arange(width, dtype=torch.float32).expand(image.shape)
        nowhere = torch.zeros(()).expand(image.shape)
        self.put(image, [torch.ones(()).expand(image.shape), y, x, *[nowhere] * 3])

    def of(self, tensor: Tensor) -> Planes | None:
        """The place of every element, or None where it is unknown."""
        found = self._planes.get(_key(tensor))
        return found[0] if found else None

    def put(self, tensor: Tensor, planes: Planes | None) -> None:
        """State the places of ``tensor``."""
        if planes is None:
            self._planes.pop(_key(tensor), None)
            return
        self._planes[_key(tensor)] = planes, StorageWeakRef(tensor.untyped_storage())
        if len(self._planes) > self._next_sweep:
            self._planes = {k: v for k, v in self._planes.items() if not v[1].expired()}
            self._next_sweep = 2 * len(self._planes) + 64

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [self.of(a) for a in args[:3] if isinstance(a, Tensor)]  # in-place ops overwrite
        out = func(*args, **kwargs)
        try:
            self._follow(func, args, kwargs, out, before)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            for tensor in _tensors(out):  # an operator used in a way we do not know
                self.put(tensor, None)
        return out

    def _follow(
        self, func: Any, args: Any, kwargs: dict[str, Any], out: Any, before: list[Planes | None]
    ) -> None:
        name = func.overloadpacket.__name__.rstrip("_")
        known = any(planes is not None for planes in before) or (
            bool(args) and isinstance(args[0], (list, tuple)) and any(map(self._known, args[0]))
        )
        if not known:
            for tensor in _tensors(out):
                self.put(tensor, None)
        elif name in _MOVES:
            self._move(func, args, kwargs, out)
        elif name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = args[-2:] if name in ("mm", "bmm") else args[1:3]
            self.put(out, _product(self.of(a), self.of(b), out.shape))
        elif "scaled_dot_product" in name:
            tensor = _tensors(out)[0]
            self.put(tensor, _attended(self.of(args[0]), self.of(args[2]), tensor.shape))
        elif name == "convolution":
            stride, padding, dilation, transposed = args[3:7]
            kernel = args[1].shape[2:]
            planes = None if transposed else _window(self.of(args[0]), kernel, stride, padding,
                                                     dilation, out.shape)  # fmt: skip
            self.put(out, planes)
        elif name in ("max_pool2d_with_indices", "avg_pool2d"):
            kernel, stride, padding = (*args[1:4], *([], 0)[len(args) - 2 :])[:3]
            tensor = _tensors(out)[0]
            self.put(tensor, _window(self.of(args[0]), kernel, stride or kernel, padding, 1,
                                     tensor.shape))  # fmt: skip
        else:
            for index, tensor in enumerate(_tensors(out)):
                self.put(tensor, _carry(before, tensor.shape) if index == 0 else None)

    def _known(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and self.of(tensor) is not None

    def _move(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Apply the operator to each plane in place of the tensor."""
        name = func.overloadpacket.__name__
        if name == "constant_pad_nd":
            args = args[:2]  # padding has no place
        kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
        moved: list[list[Tensor]] = []
        single = all(_nowhere(p[3]) for p in map(self.of, _tensors(args[0])) if p is not None)
        for index in range(3 if single else 6):

            def plane(tensor: Tensor, index: int = index) -> Tensor:
                planes = self.of(tensor)
                if planes is not None:
                    return planes[index]
                return (
                    tensor if not tensor.is_floating_point() else torch.zeros_like(tensor).float()
                )

            first, *rest = args
            replaced = tree_map_only(Tensor, plane, first)
            if name in ("view", "_unsafe_view", "_reshape_alias"):  # strides differ
                moved.append([replaced.reshape(out.shape)])
            else:
                moved.append(_tensors(func(replaced, *rest, **kwargs)))
        for tensor, found in zip(_tensors(out), zip(*moved, strict=True), strict=True):
            planes = [*found, *[torch.zeros(()).expand(tensor.shape)] * (6 - len(found))]
            self.put(tensor, _unit(planes) if name in _MIXES else planes)


def rows(planes: Planes | None) -> Tensor | None:
    """Places of the tokens of ``(..., T, features)``; NaN where there is none. (..., T, 2)"""
    return None if planes is None else positions(_contract(_single(planes), -1))


def centres(planes: Planes) -> Tensor:
    """(y, x) in pixels of every element, NaN where it has no place. (..., 2)"""
    return positions(_single(planes))


def spacing(places: Tensor) -> tuple[float, float]:
    """Smallest step between two places (..., 2) down and across, in pixels; 0 along a line."""
    steps = []
    for axis in (0, 1):
        values = places[..., axis].flatten()
        values = (values[~values.isnan()] * 16).round().unique() / 16
        steps.append(values.diff().min().item() if len(values) > 1 else 0.0)
    return steps[0], steps[1]


def _key(tensor: Tensor) -> tuple[Any, ...]:
    """Views are wrapped anew on their way up to Python; their memory layout stays."""
    storage = tensor.untyped_storage()
    return storage._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _tensors(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    return [t for t in out if isinstance(t, Tensor)] if isinstance(out, (list, tuple)) else []


def _nowhere(plane: Tensor) -> bool:
    """Whether a plane is one zero, expanded: no element has a place of this kind."""
    one = plane.untyped_storage().nbytes() == plane.element_size()
    return one and not plane.as_strided((1,), (0,)).item()


def positions(planes: Planes) -> Tensor:
    """(y, x) in pixels of three planes, NaN where there is no place. (..., 2)"""
    w, y, x = planes
    placed = w > 1e-6
    safe = torch.where(placed, w, torch.ones_like(w))
    nan = torch.full_like(safe, float("nan"))
    return torch.stack([torch.where(placed, y / safe, nan), torch.where(placed, x / safe, nan)], -1)


def _unit(planes: Planes) -> Planes:
    """Scale to w = 1 where there is a place."""
    scaled: Planes = []
    for w, y, x in (planes[:3], planes[3:]):
        if _nowhere(w) or w.numel() == 0 or bool(((w - 1).abs() < 1e-6).logical_or(w == 0).all()):
            scaled += [w, y, x]
            continue
        placed = w > 1e-6
        safe = torch.where(placed, w, torch.ones_like(w))
        zero = torch.zeros_like(w)
        scaled += [placed.float(), torch.where(placed, y / safe, zero),
                   torch.where(placed, x / safe, zero)]  # fmt: skip
    return scaled


def _single(planes: Planes) -> Planes:
    """The one place of each element: its row's, or its column's where no row has any."""
    return planes[:3] if bool(planes[0].any()) or not bool(planes[3].any()) else planes[3:]


def _contract(planes: Planes, dim: int) -> Planes:
    """Mean over ``dim``, -1 or -2: the place of the other axis's elements.

    Merging neighbours (Swin's patch merging) has their middle for a place. When every element
    sums over the same different places (token mixing, attention over channels) it has none.
    """
    position = positions(planes)
    low = position.nan_to_num(float("inf")).amin(dim - 1)  # behind it, the axis of y and x
    high = position.nan_to_num(float("-inf")).amax(dim - 1)
    spread = ((high - low) > 0.5).any(-1)  # (..., elements)
    middle = [plane.mean(dim) for plane in planes]
    if bool(spread.any()):
        at = positions(middle)
        apart = (at.nan_to_num(float("-inf")).amax(-2) - at.nan_to_num(float("inf")).amin(-2)) > 0.5
        lost = spread & ~apart.any(-1, keepdim=True)
        middle = [plane * ~lost for plane in middle]
    return middle


def _product(a: Planes | None, b: Planes | None, shape: torch.Size) -> Planes:
    """Rows of a and columns of b; with weights, both places of what they weigh."""
    if a is not None and b is not None:
        left, right = (_contract(_single(a), -1), -1), (_contract(_single(b), -2), -2)
    elif a is not None:
        left, right = ((_contract(triple, -1), -1) for triple in (a[:3], a[3:]))
    elif b is not None:
        left, right = ((_contract(triple, -2), -2) for triple in (b[:3], b[3:]))
    else:
        return [torch.zeros(()).expand(shape)] * 6
    return _unit([p.unsqueeze(dim).expand(shape) for planes, dim in (left, right) for p in planes])


def _attended(q: Planes | None, v: Planes | None, shape: torch.Size) -> Planes:
    """Fused attention: the query's place, or (attention over channels) the value columns'."""
    heads = [p.expand(*shape[:-2], *p.shape[-2:]) for p in q] if q is not None else None
    return _product(heads, v, shape)


def _carry(before: list[Planes | None], shape: torch.Size) -> Planes | None:
    """Element-wise: each operand's place where the ones before it have none.

    What is spread over whole operands (a mean token, a channel's gate) gives its place to nothing.
    """
    result: Planes | None = None
    known = [planes for planes in before if planes is not None]
    for planes in [planes for planes in known if planes[0].shape == shape] or known:
        try:
            planes = [p.expand(shape) for p in planes]
        except RuntimeError:
            continue
        if result is None:
            result = planes
        elif not bool(result[0].all()) or not bool(result[3].all()):
            row, column = result[0] > 0, result[3] > 0
            result = [torch.where(row if i < 3 else column, result[i], planes[i]) for i in range(6)]
    return result


def _window(
    planes: Planes | None, kernel: Any, stride: Any, padding: Any, dilation: Any, shape: torch.Size
) -> Planes | None:
    """The centre of each output's window; beyond the border the grid is continued."""
    if planes is None:
        return None
    spatial = len(shape) - 2
    moved: Planes = []
    for plane in planes[:3]:
        plane = plane.mean(1, keepdim=True)
        for axis in range(spatial):
            k, s, p, d = (_at(value, axis) for value in (kernel, stride, padding, dilation))
            mix = _interpolation(plane.shape[2 + axis], shape[2 + axis], s, d * (k - 1) / 2 - p)
            plane = torch.tensordot(plane, mix, dims=([2 + axis], [1])).movedim(-1, 2 + axis)
        moved.append(plane.expand(shape))
    return [*_unit([*moved, *moved])[:3], *[torch.zeros(()).expand(shape)] * 3]


def _at(value: Any, axis: int) -> int:
    value = value if isinstance(value, (list, tuple, torch.Size)) else [value]
    return value[axis] if len(value) > axis else value[0]


def _interpolation(size_in: int, size_out: int, stride: int, offset: float) -> Tensor:
    """Matrix that reads a line of ``size_in`` at ``stride * i + offset``, extrapolating."""
    at = torch.arange(size_out, dtype=torch.float32) * stride + offset
    matrix = torch.zeros(size_out, size_in)
    if size_in == 1:
        return matrix + 1
    low = at.floor().clamp(0, size_in - 2).long()
    fraction = at - low
    index = torch.arange(size_out)
    matrix[index, low] = 1 - fraction
    matrix[index, low + 1] += fraction
    return matrix
