"""Notice every attention computation of a model, without changing a bit of its output.

A ``TorchFunctionMode`` watches the calls a model makes: ``scaled_dot_product_attention`` (the map
is recomputed from its arguments) and a softmax over the last axis whose result multiplies values.
Hooks tell which module is running. Three layers need their own case: ``nn.MultiheadAttention`` and
``nn.TransformerEncoderLayer``, whose fast path runs only while nobody watches, and layers with a
method ``attention`` that never form the map they use: gated ones (``gating_param``), and those that
say so (``maps_on_request = True``; ``attention`` then gives the map itself).

The map is what multiplies the values. Where its rows do not sum to 1 (dropout in training mode,
the talking heads of CaiT) it is the softmax itself.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vitascope.capture.hush import hush, unhush

__all__ = ["Event", "attention_weights", "has_fused_layers", "watching", "with_heads"]

_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum}


@dataclass
class Event:
    """One attention computation: who, and how to get its map and its tokens."""

    name: str
    weights: Callable[[], Tensor]
    query: Tensor | None = None  # (..., T, features), for their places
    key: Tensor | None = None
    scores: Tensor | None = None  # (..., T, S), where queries and keys are not at hand
    content: Callable[[], Tensor] | None = None  # the two parts of a gated layer
    position: Callable[[], Tensor] | None = None


@dataclass
class _Frame:
    """A module that is running."""

    name: str
    module: nn.Module
    softmaxes: list[Tensor] = field(default_factory=list)


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The matrix that ``scaled_dot_product_attention`` multiplies the values with. (..., T, S)

    Rows that may look nowhere are zero, as the kernel's output is.
    """
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scores = query @ key.mT * (1 / sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).nan_to_num(0.0)


class _Watch(TorchFunctionMode):
    """Tell ``on_event`` of each attention computation while ``model`` runs."""

    def __init__(self, model: nn.Module, on_event: Callable[[Event], None]):
        super().__init__()
        self.on_event = on_event
        self.stack: list[_Frame] = []
        self.counts: dict[str, int] = {}
        self.handles: list[Any] = []
        self.hushed: list[nn.Module] = []  # opaque layers that are running
        self.wrapped: list[nn.Module] = []
        fused = [name for name, module in model.named_modules() if _fused_layer(module)]
        for name in fused:
            self._wrap(name, model.get_submodule(name))
        for name, module in model.named_modules():
            if any(name == f or name.startswith(f"{f}." if f else "") for f in fused):
                continue  # any hook inside turns its fast path off
            if next(module.parameters(), None) is None and not any(module.children()):
                continue  # nn.Softmax and the like are not layers
            self.handles += [
                module.register_forward_pre_hook(self._entering(name), with_kwargs=True),
                module.register_forward_hook(
                    self._leaving(name), with_kwargs=True, always_call=True
                ),
            ]

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        for module in self.wrapped:
            del module.forward  # type: ignore[attr-defined]
        while self.hushed:
            self._unhush()

    def _unhush(self) -> None:
        self.hushed.pop()
        unhush()

    def _wrap(self, name: str, module: nn.Module) -> None:
        """Run a fused layer unwatched, then ask it."""
        forward = module.forward

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self.stack:
                self.counts.clear()
            with torch._C.DisableTorchFunction():
                output = forward(*args, **kwargs)
                event = _fused_event(name, module, args, kwargs)
            self._tell(event)
            return output

        module.forward = wrapper  # type: ignore[method-assign]
        self.wrapped.append(module)

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not self.stack:
                self.counts.clear()
            self.stack.append(_Frame(name, module))
            if _opaque(module):
                hush()
                self.hushed.append(module)

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            while self.hushed and self.hushed[-1] is module:
                self._unhush()
            frame = None
            while self.stack and (frame is None or frame.module is not module):
                frame = self.stack.pop()
            if output is None or frame is None:
                return  # it failed
            if self.hushed:
                return  # inside a layer that answers for itself
            with torch._C.DisableTorchFunction():
                event = _answer(name, module, args, kwargs)
            if event is not None:
                self._tell(event)

        return hook

    def _tell(self, event: Event) -> None:
        self.counts[event.name] = count = self.counts.get(event.name, 0) + 1
        if count > 1:
            event.name = f"{event.name}@{count}"
        with torch._C.DisableTorchFunction():
            self.on_event(event)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self.stack:
            return out
        frame = self.stack[-1]
        if func is F.scaled_dot_product_attention:
            self._tell(_fused(frame.name, args, kwargs))
        elif func in _SOFTMAX:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if out.ndim >= 3 and dim in (-1, out.ndim - 1):
                frame.softmaxes.append(out)
        elif frame.softmaxes and func in _MATMUL:
            event = _multiplied(frame, [a for a in args if isinstance(a, Tensor)])
            if event is not None:
                frame.softmaxes = []
                self._tell(event)
        return out


def _opaque(module: nn.Module) -> bool:
    """Layers that run differently when watched, or do not form the map they use."""
    return isinstance(module, nn.MultiheadAttention) or (
        (hasattr(module, "gating_param") or getattr(module, "maps_on_request", False) is True)
        and callable(getattr(module, "attention", None))
    )


def _answer(name: str, module: nn.Module, args: Any, kwargs: Any) -> Event | None:
    """The event of a layer that was not watched from inside."""
    if isinstance(module, nn.MultiheadAttention):
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return _multihead(name, module, given)
    if _opaque(module):
        parts: Any = cache(partial(module.attention, *args, **kwargs))  # type: ignore[arg-type,misc]
        tokens = args[0] if args else next(iter(kwargs.values()))
        if not hasattr(module, "gating_param"):
            return Event(name, parts, tokens, tokens)
        return Event(name, lambda: parts().mixed, tokens, tokens, content=lambda: parts().content,
                     position=lambda: parts().position.expand_as(parts().mixed))  # fmt: skip
    return None


def _fused_layer(module: nn.Module) -> bool:
    return type(module).forward is nn.TransformerEncoderLayer.forward


def has_fused_layers(model: nn.Module) -> bool:
    """Whether layers inside answer for themselves, so that their parts cannot be seen as well."""
    return any(_fused_layer(module) for module in model.modules())


def _fused_event(name: str, module: nn.Module, args: Any, kwargs: Any) -> Event:
    """What the attention inside an ``nn.TransformerEncoderLayer`` did, on either of its paths."""
    names = ("src", "attn_mask", "key_padding_mask")
    given = dict(zip(names, args, strict=False))
    x = given.get("src", kwargs.get("src"))
    x = module.norm1(x) if module.norm_first else x
    mask = given.get("attn_mask", kwargs.get("src_mask"))
    padding = given.get("key_padding_mask", kwargs.get("src_key_padding_mask"))
    given = {"query": x, "key": x, "value": x, "attn_mask": mask, "key_padding_mask": padding}
    attention = module.get_submodule("self_attn")
    assert isinstance(attention, nn.MultiheadAttention)
    return _multihead(f"{name}.self_attn" if name else "self_attn", attention, given)


def _multihead(name: str, module: nn.MultiheadAttention, given: dict[str, Any]) -> Event:
    query, key = given["query"], given["key"]

    def weights() -> Tensor:
        rest = {k: v for k, v in given.items() if k in ("key_padding_mask", "attn_mask")}
        dropout, module.dropout = module.dropout, 0.0
        try:
            _, maps = nn.MultiheadAttention.forward(
                module, query, key, given["value"], need_weights=True,
                average_attn_weights=False, **rest)  # fmt: skip
        finally:
            module.dropout = dropout
        assert maps is not None  # asked for
        return maps

    if query.ndim == 3 and not module.batch_first:
        query_tokens, key_tokens = query.transpose(0, 1), key.transpose(0, 1)
    else:
        query_tokens, key_tokens = query, key
    return Event(name, weights, query_tokens, key_tokens)


def _fused(name: str, args: Any, kwargs: dict[str, Any]) -> Event:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    query, key = given["query"], given["key"]
    rest = {k: v for k, v in given.items() if k not in ("query", "key", "value", "dropout_p")}
    return Event(name, lambda: attention_weights(query, key, **rest), query, key)


def _multiplied(frame: _Frame, operands: list[Tensor]) -> Event | None:
    """A product whose operand is the softmax, or what became of it."""
    soft = frame.softmaxes[-1]
    for operand in operands:
        for candidate in (operand, operand.mT) if operand.ndim >= 2 else ():
            if candidate.shape[-2:] == soft.shape[-2:] and candidate.numel() == soft.numel():
                break
        else:
            continue
        with torch._C.DisableTorchFunction():
            used = candidate.reshape(soft.shape)
            tolerance = 1e-3 if used.dtype in (torch.float32, torch.float64) else 3e-2
            whole = bool(((used.sum(-1) - 1).abs() < tolerance).all())
            chosen = with_heads(used if whole else soft, frame.module)
            event = Event(frame.name, partial(_same, chosen), scores=soft)
            _split(event, frame, used)
        return event
    return None


def _split(event: Event, frame: _Frame, mixed: Tensor) -> None:
    """Content and position of a gated layer that forms both: the two must mix into ``mixed``."""
    gating = getattr(frame.module, "gating_param", None)
    if not isinstance(gating, Tensor) or len(frame.softmaxes) != 2:
        return
    gate = gating.sigmoid().view(-1, 1, 1)
    first, second = frame.softmaxes
    for content, position in ((first, second), (second, first)):
        if torch.allclose((1 - gate) * content + gate * position, mixed, atol=1e-4):
            event.content, event.position = partial(_same, content), partial(_same, position)
            event.scores = content
            return


def _same(tensor: Tensor) -> Tensor:
    return tensor


def with_heads(weights: Tensor, module: nn.Module) -> Tensor:
    """(B * windows, H, T, S), whatever the layer's own arrangement."""
    if weights.ndim == 3:  # (B * H, T, S), or one head
        heads = getattr(module, "num_heads", None) or getattr(module, "num_attention_heads", 1)
        heads = heads if isinstance(heads, int) and len(weights) % heads == 0 else 1
        return weights.unflatten(0, (-1, heads))
    return weights.flatten(0, -4)


@contextmanager
def watching(model: nn.Module, on_event: Callable[[Event], None]) -> Iterator[None]:
    """Call ``on_event`` for each attention computation of ``model`` in the block."""
    watch = _Watch(model, on_event)
    with ExitStack() as stack:
        stack.callback(watch.remove)
        stack.enter_context(watch)
        yield
