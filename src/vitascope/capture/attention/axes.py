"""Which axes of an attention map are images, windows and heads.

Layers lay out their maps as they like: (B, H, T, S), (B * windows, H, T, S), (B, H, windows, T, S),
(B * H, windows, T, S), (B * H, T, S), ... Three things decide: the number of images, with which the
first axis begins; the number of heads, where the layer states it; and, where these leave a choice,
one traced run of the layer alone. All heads of a window see the same tokens, so an axis along which
the tokens differ is not the heads'. An order that none of them decides is refused, not guessed.

Shapes: B images, W windows, H heads, T queries, S keys.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

__all__ = ["Axes", "Tokens", "axes_of", "stated_heads"]

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "heads", "num_head", "n_head", "nhead")

Tokens = tuple[Tensor, Tensor]  # coordinates of queries (*lead, T, 2) and keys (*lead, S, 2)


@dataclass(frozen=True)
class Axes:
    """Split of the axes before (T, S), and which part is the heads."""

    parts: tuple[int, ...]  # sizes, in memory order; the first begins with the images
    head: int | None  # index of the heads among them; None for a single head

    def arrange(self, tensor: Tensor) -> Tensor:
        """(..., T, S) in the layer's own axes as (B * W, H, T, S), image by image.

        A tensor of some of the images has a shorter first axis.

        >>> Axes((2, 3, 4), 1).arrange(torch.zeros(2, 3, 4, 5, 5)).shape
        torch.Size([8, 3, 5, 5])
        """
        tensor = tensor.reshape(-1, *self.parts[1:], *tensor.shape[-2:])
        if self.head is None:
            return tensor.flatten(0, -3).unsqueeze(1)
        return tensor.movedim(self.head, -3).flatten(0, -4)


def stated_heads(module: nn.Module) -> int | None:
    """The number of heads that a layer states as an attribute."""
    for name in _HEADS:
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _candidates(lead: Sequence[int], images: int, heads: int) -> list[Axes]:
    """All the axes that ``heads`` heads may have in a map of shape (*lead, T, S)."""
    if heads == 1:
        return [Axes(tuple(lead), None)]
    candidates = [Axes(tuple(lead), i) for i, size in enumerate(lead) if i and size == heads]
    for i, size in enumerate(lead):
        each = size // images if i == 0 else size
        if each % heads or (i and each == heads):
            continue
        outer = (images,) if i == 0 else ()
        before, after, rest = tuple(lead[:i]), tuple(lead[i + 1 :]), each // heads
        candidates.append(Axes((*before, *outer, rest, heads, *after), i + len(outer) + 1))
        if rest > 1:
            candidates.append(Axes((*before, *outer, heads, rest, *after), i + len(outer)))
    return candidates


_TRACED: WeakKeyDictionary[nn.Module, dict[Any, Axes | None]] = WeakKeyDictionary()


def axes_of(
    module: nn.Module,
    lead: Sequence[int],
    images: int,
    trace: Callable[[], Tokens | None],
    key: Any = None,
) -> Axes | None:
    """The axes of a map of shape (*lead, T, S); None where they cannot be told.

    Args:
        module: The layer that computed it.
        lead: Sizes of the axes before (T, S).
        images: Number of images of the batch.
        trace: Gives the tokens as the layer alone sees them; called only where shapes leave a
            choice, and once for each ``key`` of a module.
        key: Of the computation within the module.

    >>> axes_of(nn.Identity(), (2,), 2, lambda: None)
    Axes(parts=(2,), head=None)
    """
    images = images if lead and lead[0] % images == 0 else 1
    heads = stated_heads(module)
    if not lead or tuple(lead) == (images,) or all(size == 1 for size in lead):
        return Axes(tuple(lead) or (1,), None)
    if tuple(lead) == (images, heads):
        return Axes(tuple(lead), 1)
    if heads is not None and heads in lead[1:]:
        fitting = _candidates(lead, images, heads)
        if len(fitting) == 1:
            return fitting[0]
    cached = _TRACED.setdefault(module, {})
    key = (key, tuple(lead), images)
    if key not in cached:
        tokens = trace()
        cached[key] = None if tokens is None else _fitting(tokens, lead, images, heads)
    return cached[key]


def _fitting(tokens: Tokens, lead: Sequence[int], images: int, heads: int | None) -> Axes | None:
    """The only axes along whose heads all tokens are the same.

    With the stated number of heads if it fits (a layer may compute one head at a time), else with
    as many as possible.
    """
    if all(bool(side.isnan().all()) for side in tokens):
        return None
    total = prod(lead)
    stated = () if heads is None else (heads,)
    for count in (*stated, *range(total // images, 0, -1)):
        if total % (images * count) == 0:
            fitting = [
                axes
                for axes in _candidates(lead, images, count)
                if all(_same_for_heads(side, lead, axes) for side in tokens)
            ]
            if fitting:
                return fitting[0] if len(fitting) == 1 else None
    return None


def _same_for_heads(side: Tensor, lead: Sequence[int], axes: Axes) -> bool:
    arranged = axes.arrange(side.expand(*lead, *side.shape[-2:]))
    return bool(((arranged == arranged[:, :1]) | arranged.isnan()).all())


def aligned(query: Tensor, key: Tensor) -> Tokens:
    """Tokens with the axes of their map before the last two; shared key heads are repeated."""
    if query.ndim == key.ndim > 3 and key.shape[-3] not in (1, query.shape[-3]):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return query.expand(*lead, *query.shape[-2:]), key.expand(*lead, *key.shape[-2:])
