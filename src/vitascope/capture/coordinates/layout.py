"""Layout of an image-like tensor: which axes are height and width, which tokens are no patches."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from vitascope.capture.coordinates.operators import centres, distinct
from vitascope.capture.coordinates.tracer import CoordinateTracer


@dataclass(frozen=True)
class Layout:
    """Layout of an image-like tensor."""

    name: str  # NCHW, NHWC, NLC or NCL
    grid: tuple[int, int]
    num_prefix_tokens: int = 0
    order: tuple[int, ...] | None = None  # of the tokens in rows, where windows stand together

    @property
    def patches(self) -> slice:
        """The patches among the tokens; behind them may stand queries for objects."""
        down, across = self.grid
        return slice(self.num_prefix_tokens, self.num_prefix_tokens + down * across)

    def as_image(self, tensor: Tensor) -> Tensor:
        """The patches of a batch of such tensors, without tokens before and after. (B, C, h, w)"""
        if self.order is not None:
            tokens = tensor.mT if self.name == "NCL" else tensor.flatten(1, -2)
            return tokens[:, self.patches][:, self.order].mT.unflatten(2, self.grid)
        if self.name == "NHWC":
            return tensor.permute(0, 3, 1, 2)
        if self.name == "NLC":
            return tensor[:, self.patches].mT.unflatten(2, self.grid)
        if self.name == "NCL":
            return tensor[:, :, self.patches].unflatten(2, self.grid)
        return tensor

    def as_tokens(self, tensor: Tensor) -> Tensor:
        """All tokens of a batch, in their order. (B, T, C)"""
        if self.name == "NLC":
            return tensor
        return tensor.mT if self.name == "NCL" else self.as_image(tensor).flatten(2).mT


@contextmanager
def without_modes() -> Iterator[None]:
    """Disable all torch function and dispatch modes inside the block."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def layout_of(tracer: CoordinateTracer, tensor: Tensor) -> Layout | None:
    """The layout of ``tensor`` (one image) from its coordinates; None if it is not image-like."""
    planes = tracer.of(tensor)
    if planes is None or tensor.ndim not in (3, 4) or len(tensor) != 1:
        return None
    key = tuple((plane.data_ptr(), plane.shape, plane.stride()) for plane in planes)
    if key not in tracer.layouts:  # most layers keep the coordinates
        with without_modes():
            tracer.layouts[key] = _layout(centres(planes), tensor.ndim), planes
        if len(tracer.layouts) > 16:
            tracer.layouts.pop(next(iter(tracer.layouts)))
    return tracer.layouts[key][0]


def coordinates_of_tokens(tracer: CoordinateTracer, tensor: Tensor, layout: Layout) -> Tensor:
    """Coordinates (y, x) in pixels of the tokens of ``tensor``, NaN for prefix tokens. (T, 2)"""
    planes = tracer.of(tensor)
    assert planes is not None  # it has a layout
    with without_modes():
        at = centres(planes)  # (1, ..., 2)
        both = [layout.as_tokens(at[..., axis])[0, :, 0] for axis in (0, 1)]
        return torch.stack(both, -1)


def _layout(position: Tensor, ndim: int) -> Layout | None:
    """The layout of coordinates (1, ..., 2)."""
    for name, channels in {3: (("NLC", 2), ("NCL", 1)), 4: (("NCHW", 1), ("NHWC", 3))}[ndim]:
        if position.narrow(channels, 0, 1).isnan().all():
            continue
        along = position if position.stride(channels) == 0 else position.nan_to_num(-1)
        if along is position or bool((along == along.narrow(channels, 0, 1)).all()):
            at = position.select(channels, 0)[0]  # (L, 2) or (h, w, 2)
            layout = _grid(at) if ndim == 3 else _image(at, name)
            if layout is not None:
                return Layout(name, *layout)
    return None


_Grid = tuple[tuple[int, int], int, tuple[int, ...] | None]


def _image(at: Tensor, name: str) -> _Grid | None:
    down, across = distinct(at[..., 0]), distinct(at[..., 1])
    if (down, across) == tuple(at.shape[:2]):
        return (down, across), 0, None
    return _grid(at.flatten(0, 1)) if name == "NHWC" else None  # windows, their tokens


def _grid(at: Tensor) -> _Grid | None:
    """Grid, number of tokens before it and their order, for patches in one piece."""
    placed = ~at[:, 0].isnan()
    patches = at[placed]
    down, across = distinct(patches[:, 0]), distinct(patches[:, 1])
    if down * across != len(patches) or not len(patches):
        return None
    prefix = int(placed.nonzero()[0])
    if not bool(placed[prefix : prefix + len(patches)].all()):
        return None
    lines = patches.view(down, across, 2)
    uneven = lines[..., 0].diff(dim=1).abs().sum() + lines[..., 1].diff(dim=0).abs().sum()
    if float(uneven) < 0.1:  # in rows
        return (down, across), prefix, None
    rows, columns = (
        (patches[:, axis] * 16).round().unique(return_inverse=True)[1] for axis in (0, 1)
    )
    index = rows * across + columns
    if len(index.unique()) < len(index):
        return None
    order = tuple(index.argsort().tolist())
    return (down, across), prefix, None if order == tuple(range(len(order))) else order
