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

    @property
    def patches(self) -> slice:
        """The patches among the tokens; behind them may stand queries for objects."""
        down, across = self.grid
        return slice(self.num_prefix_tokens, self.num_prefix_tokens + down * across)

    def as_image(self, tensor: Tensor) -> Tensor:
        """The patches of a batch of such tensors, without tokens before and after. (B, C, h, w)"""
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
        along = position.nan_to_num(-1)
        if bool((along == along.narrow(channels, 0, 1)).all()):
            at = position.select(channels, 0)[0]  # (L, 2) or (h, w, 2)
            found = _grid(at) if ndim == 3 else _image(at)
            if found is not None:
                return Layout(name, *found)
    return None


def _image(at: Tensor) -> tuple[tuple[int, int], int] | None:
    down, across = distinct(at[..., 0]), distinct(at[..., 1])
    return ((down, across), 0) if (down, across) == tuple(at.shape[:2]) else None


def _grid(at: Tensor) -> tuple[tuple[int, int], int] | None:
    """Grid and number of tokens before it, for row-major patches in one piece."""
    placed = ~at[:, 0].isnan()
    patches = at[placed]
    down, across = distinct(patches[:, 0]), distinct(patches[:, 1])
    if down * across != len(patches) or not len(patches):
        return None
    prefix = int(placed.nonzero()[0])
    if not bool(placed[prefix : prefix + len(patches)].all()):
        return None
    order = patches.view(down, across, 2)
    if (order[..., 0].diff(dim=1).abs() > 0.1).any() or (
        order[..., 1].diff(dim=0).abs() > 0.1
    ).any():
        return None
    return (down, across), prefix
