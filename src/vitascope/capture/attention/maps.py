"""Attention maps of a model by module name, also from fused kernels."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.attention.events import Event
from vitascope.capture.attention.recorder import record_attention
from vitascope.capture.structure.features import matching
from vitascope.errors import UserError

__all__ = ["attention", "gated_layers", "watch_maps"]


def gated_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers that mix content and position attention with a learned gate per head."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(getattr(module, "gating_param", None), Tensor)
    }


@contextmanager
def attention(
    model: nn.Module,
    layers: str | Iterable[str] = "*",
    reduce: Callable[[str, Tensor], Any] | None = None,
    *,
    part: str = "mixed",
    grad: bool = False,
) -> Iterator[dict[str, Any]]:
    """Collect attention maps by module name, in order of execution.

    Args:
        model: Any module: timm, torchvision, Hugging Face or your own.
        layers: Wildcards for the modules to keep: ``"blocks.0.*"``.
        reduce: Called with each name and map at once; its result is kept instead of the map, so
            that memory stays bounded.
        part: ``"mixed"``, or ``"content"`` or ``"position"`` of gated layers alone.
        grad: Keep the graph. By default the block runs without gradients.

    Yields:
        ``{name: (B, H, T, S)}``. Windowed attention has its windows in the batch: (B * windows,
        H, T, S), image by image. A second computation of one module in one pass is ``name@2``.

    Raises:
        UserError: On leaving the block, when no map was seen or none matched ``layers``.

    >>> layer = nn.MultiheadAttention(4, 2, batch_first=True)
    >>> model = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    >>> with attention(model) as maps:
    ...     _ = model(torch.ones(1, 3, 4))
    >>> {name: tuple(weights.shape) for name, weights in maps.items()}
    {'self_attn': (1, 2, 3, 3)}
    """
    if part not in ("mixed", "content", "position"):
        raise UserError(f"unknown part {part!r}; there are: mixed, content, position")
    patterns = [layers] if isinstance(layers, str) else list(layers)
    names: dict[str, None] = {}
    maps: dict[str, Any] = {}

    def on_event(event: Event) -> None:
        if _getter(event, part) is None:
            return
        names[event.name] = None
        if any(fnmatchcase(event.name, pattern) for pattern in patterns):
            weights = _part(event, part)
            maps.pop(event.name, None)
            maps[event.name] = reduce(event.name, weights) if reduce else weights

    with (
        torch.set_grad_enabled(grad and torch.is_grad_enabled()),
        record_attention(model, on_event),
    ):
        yield maps
    if not names:
        noun = "gated attention" if part != "mixed" else "attention map"
        raise UserError(f"no {noun} was seen: nothing ran in the block, or {_kind(model)} has none")
    matching(patterns, names, "attention layer")


@contextmanager
def watch_maps(
    model: nn.Module,
    wanted: Mapping[str, Collection[str]],
    show: Callable[[str, str, Tensor], None],
    *,
    max_elements: int | None = None,
) -> Iterator[None]:
    """Call ``show(layer, part, map)`` in the block for each map wanted, ``{layer: parts}``.

    Each map is computed once, without gradients.

    Args:
        model: Any module.
        wanted: Names of layers, as in :func:`attention`, with the parts that are wanted.
        show: Called with the map as soon as it is there. (B * windows, H, T, S)
        max_elements: Show a larger map a few images at a time, from the first image to the last;
            one that is shown is valid until ``show`` returns. Memory then does not grow with the
            batch.
    """

    def on_event(event: Event) -> None:
        parts, name = wanted.get(event.name, ()), event.name
        for some in event.blocks(max_elements or event.numel) if parts else ():
            for part in parts:
                show(name, part, _part(some, part))

    with torch.no_grad(), record_attention(model, on_event):
        yield


def _getter(event: Event, part: str) -> Callable[[], Tensor] | None:
    return event.own_weights if part == "mixed" else getattr(event, part)


def _part(event: Event, part: str) -> Tensor:
    """The map, or one part of a gated layer's. (B * windows, H, T, S)"""
    get = _getter(event, part)
    if get is None:
        raise UserError(f"{event.name} does not show its {part}")
    return event.arrange(get())


def _kind(model: nn.Module) -> str:
    return type(model).__name__
