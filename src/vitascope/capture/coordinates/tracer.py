"""Trace image coordinates through every tensor of a model, for one image.

Windows, shifts, class tokens, key reduction and patch merging all rearrange positions. Instead of
one rule per model family, each tensor gets the coordinates of its elements, in homogeneous pixel
coordinates ``(w, w y, w x)``: ``w = 1`` is a point, ``w = 0`` means none (parameters, class tokens,
padding). Coordinates go through the same operators as the tensor:

* operators that move elements (view, permute, roll, pad, slice, cat, ...) move their coordinates;
* a convolution or pooling puts its output at the centre of its window;
* a product ``a @ b`` keeps the coordinates of a's rows and of b's columns. A sum over *different*
  points (token mixing, attention over channels) has none: this tells attention over tokens from
  attention over channels;
* any other operator that keeps the shape keeps the coordinates; the rest is "unknown", not guessed.

Attention scores have two points per element, the query's and the key's: six planes in all.
"""

import threading
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from vitascope.capture.coordinates.operators import (
    CoordinatePlanes,
    any_placed,
    attended,
    carry,
    empty_plane,
    enlarged,
    held_once,
    is_empty,
    product,
    unit,
    window,
)

_MOVES = frozenset(
    """view _unsafe_view _reshape_alias permute transpose t expand slice select split
    split_with_sizes unbind unsqueeze squeeze roll index index_select gather cat stack flip alias
    detach repeat unfold im2col pixel_shuffle pixel_unshuffle narrow lift_fresh mean sum
    _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    constant_pad_nd""".split()  # noqa: SIM905
)


_MIXES = frozenset(
    """mean sum _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d
    upsample_bicubic2d""".split()  # noqa: SIM905
)

_CHANCE = ("rand", "bernoulli", "multinomial", "normal", "uniform")
_PICKS = frozenset(("gather", "index", "index_select", "take"))
_MAXIMA = frozenset(("amax", "amin", "max", "min"))

_one_at_a_time = threading.RLock()


class CoordinateTracer(TorchDispatchMode):
    """While active, every tensor computed from ``image`` has coordinates; see :meth:`of`."""

    def __init__(self, image: Tensor):
        super().__init__()
        self._lost: dict[tuple[Any, ...], StorageWeakRef] = {}  # see lost_in_a_sum
        # without coordinates, of the image or of chance; and what was picked by such values
        self._unknown: dict[tuple[Any, ...], StorageWeakRef] = {}
        self._chosen: dict[tuple[Any, ...], StorageWeakRef] = {}
        self._of_parameters: dict[tuple[Any, ...], StorageWeakRef] = {}  # computed from them alone
        # a weak reference keeps a storage's address from being used again, not its memory
        self._planes: dict[tuple[Any, ...], tuple[CoordinatePlanes, StorageWeakRef]] = {}
        self._next_sweep = 64
        self.layouts: dict[Any, Any] = {}  # cache of layout.layout_of, by planes
        height, width = image.shape[-2:]
        y = torch.arange(height, dtype=torch.float32).view(-1, 1).expand(image.shape)
        x = torch.arange(width, dtype=torch.float32).expand(image.shape)
        here = torch.ones((), dtype=torch.float32).expand(image.shape)
        self.put(image, [here, y, x, *[empty_plane(image.shape)] * 3])

    def __enter__(self) -> Any:
        _one_at_a_time.acquire()  # torch keeps flags of active modes that all threads share
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            _one_at_a_time.release()

    def of(self, tensor: Tensor) -> CoordinatePlanes | None:
        """The coordinates of a tensor's elements, or None if unknown."""
        entry = self._planes.get(_key(tensor))
        return entry[0] if entry else None

    def lost_in_a_sum(self, tensor: Tensor) -> bool:
        """Return whether ``tensor`` lost its coordinates in a sum over different tokens.

        True of attention over channels and of token mixing; not where coordinates are unknown.
        """
        return _key(tensor) in self._lost

    def is_learned(self, tensor: Tensor) -> bool:
        """Return whether ``tensor`` was computed from parameters; False where it is unknown."""
        return isinstance(tensor, Parameter) or _key(tensor) in self._of_parameters

    def is_chosen(self, tensor: Tensor) -> bool:
        """Return whether the choice of tokens depends on the image or on chance (masking)."""
        return _key(tensor) in self._chosen

    def _note_origin(self, out: Any, depends: bool, chosen: bool, of_parameters: bool) -> None:
        """Remember results of parameters, and those of the image or chance without coordinates."""
        for tensor in _tensors(out):
            key = _key(tensor)
            unplaced = depends and key not in self._planes
            for marks, holds in (
                (self._unknown, depends and unplaced),
                (self._chosen, chosen and unplaced),
                (self._of_parameters, of_parameters),
            ):
                if holds:
                    marks[key] = StorageWeakRef(tensor.untyped_storage())
                elif marks:
                    marks.pop(key, None)

    def _note_lost(self, tensor: Tensor, sources: list[Tensor], summed: bool) -> None:
        """Remember that a product lost the coordinates, or that its result is handed on."""
        handed_on = bool(self._lost) and any(map(self.lost_in_a_sum, sources))
        if self._lost:
            self._lost.pop(_key(tensor), None)
        if not summed and not handed_on:
            return
        planes = self.of(tensor)
        if planes is not None and not any_placed(planes):
            self._lost[_key(tensor)] = StorageWeakRef(tensor.untyped_storage())

    def put(self, tensor: Tensor, planes: CoordinatePlanes | None) -> None:
        """Set the coordinates of ``tensor``."""
        if planes is None:
            self._planes.pop(_key(tensor), None)
            return
        self._planes[_key(tensor)] = planes, StorageWeakRef(tensor.untyped_storage())
        if len(self._planes) > self._next_sweep:
            self._planes = {k: v for k, v in self._planes.items() if not v[1].expired()}
            for references in (self._lost, self._unknown, self._chosen, self._of_parameters):
                for key in [k for k, v in references.items() if v.expired()]:
                    del references[key]
            self._next_sweep = 2 * len(self._planes) + 64

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        sources = [a for a in args[:3] if isinstance(a, Tensor)]
        before = [self.of(a) for a in sources]  # in-place ops overwrite
        if args and isinstance(args[0], (list, tuple)):
            sources += [a for a in args[0] if isinstance(a, Tensor)]
        name = func.overloadpacket.__name__
        depends = (
            any(planes is not None for planes in before)
            or name.startswith(_CHANCE)
            or any(self.of(a) is not None or _key(a) in self._unknown for a in sources)
        )
        chosen = bool(self._chosen) and any(map(self.is_chosen, sources))
        of_parameters = bool(sources) and not depends and all(map(self.is_learned, sources))
        out = func(*args, **kwargs)
        try:
            if name in _PICKS and any(map(self._unpredictable, tree_leaves(args[1:]))):
                chosen = True
                self.put(out, None)
            else:
                self._follow(func, args, kwargs, out, before)
            if isinstance(out, Tensor):
                summed = "mm" in func.overloadpacket.__name__ and any(map(any_placed, before))
                self._note_lost(out, sources, summed)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            for tensor in _tensors(out):  # unsupported arguments of a known operator
                self.put(tensor, None)
        self._note_origin(out, depends, chosen, of_parameters)
        return out

    def _follow(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        out: Any,
        before: list[CoordinatePlanes | None],
    ) -> None:
        name = func.overloadpacket.__name__.rstrip("_")
        traced = any(planes is not None for planes in before) or (
            bool(args) and isinstance(args[0], (list, tuple)) and any(map(self._known, args[0]))
        )
        if not traced:
            for tensor in _tensors(out):
                self.put(tensor, None)
        elif name == "clone":
            self.put(out, self.of(args[0]))
        elif name == "upsample_nearest2d" and out.numel() > args[0].numel():
            self.put(out, enlarged(self.of(args[0]), out.shape))
        elif name in _MOVES or (name in _MAXIMA and len(args) > 1):
            self._move(func, args, kwargs, out)
        elif name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = args[-2:] if name in ("mm", "bmm") else args[1:3]
            self.put(out, product(self.of(a), self.of(b), out.shape))
        elif "scaled_dot_product" in name:
            tensor = _tensors(out)[0]
            self.put(tensor, attended(self.of(args[0]), self.of(args[2]), tensor.shape))
        elif name == "convolution":
            stride, padding, dilation, transposed = args[3:7]
            kernel = args[1].shape[2:]
            planes = (
                None
                if transposed
                else window(self.of(args[0]), kernel, stride, padding, dilation, out.shape)
            )
            self.put(out, planes)
        elif name in ("max_pool2d_with_indices", "avg_pool2d"):
            kernel, stride, padding = (*args[1:4], *([], 0)[len(args) - 2 :])[:3]
            tensor = _tensors(out)[0]
            self.put(
                tensor, window(self.of(args[0]), kernel, stride or kernel, padding, 1, tensor.shape)
            )
        else:
            for index, tensor in enumerate(_tensors(out)):
                self.put(tensor, carry(before, tensor.shape) if index == 0 else None)

    def _unpredictable(self, index: Any) -> bool:
        """Return whether an index depends on the image or on chance."""
        return isinstance(index, Tensor) and (
            self.of(index) is not None or _key(index) in self._unknown
        )

    def _known(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and self.of(tensor) is not None

    def _move(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Apply the operator to each plane instead of the tensor."""
        name = func.overloadpacket.__name__
        if name == "constant_pad_nd":
            args = args[:2]  # padding has no coordinates
        if name in _MAXIMA:  # in the middle of what it is taken of
            func = torch.ops.aten.mean.dim
            args = (args[0], [args[1]] if isinstance(args[1], int) else args[1], *args[2:])
            out = _tensors(out)[0]
        kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
        moved: list[list[Tensor]] = []
        single = all(is_empty(p[3]) for p in map(self.of, _tensors(args[0])) if p is not None)
        for index in range(3 if single else 6):

            def plane(tensor: Tensor, index: int = index) -> Tensor:
                planes = self.of(tensor)
                if planes is not None:
                    return planes[index]
                return empty_plane(tensor.shape) if tensor.is_floating_point() else tensor

            first, *rest = args
            replaced = tree_map_only(Tensor, plane, first)
            if name in ("view", "_unsafe_view", "_reshape_alias"):  # strides differ
                moved.append([replaced.reshape(out.shape)])
            else:
                moved.append(_tensors(func(replaced, *rest, **kwargs)))
        for tensor, moved_planes in zip(_tensors(out), zip(*moved, strict=True), strict=True):
            planes = [
                *map(held_once, moved_planes),
                *[empty_plane(tensor.shape)] * (6 - len(moved_planes)),
            ]
            self.put(tensor, unit(planes) if name in _MIXES or name in _MAXIMA else planes)


def _key(tensor: Tensor) -> tuple[Any, ...]:
    """Identify a tensor by its memory layout: Python wraps views in new objects."""
    storage = tensor.untyped_storage()
    return storage._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _tensors(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    return [t for t in out if isinstance(t, Tensor)] if isinstance(out, (list, tuple)) else []
