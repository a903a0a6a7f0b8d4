"""One attention computation as an event: its map, its queries and keys, the parts of a gated map.

An event comes from one of four sources: a fused kernel (the map is recomputed from its arguments);
a product with a softmax; an ``nn.MultiheadAttention`` or ``nn.TransformerEncoderLayer`` (run again
on the same input); or a layer with a method ``attention`` that never forms the map it uses: a gated
one (``gating_param``), or one that declares it (``maps_on_request = True``).

The map is what multiplies the values. Where its rows do not sum to 1 (dropout in training mode,
the talking heads of CaiT) it is the softmax itself.

Where the model runs with gradients, an event also knows how to find the gradient of its map, which
fused kernels never form: from the gradient at ``source``, a tensor of the model's own graph. With
``O = A V`` that is ``dA = dO V^T``; where an output projection follows, ``dO`` is the gradient
behind it times its weight.

The maps of a batch can need more memory than the model, so an event also gives them for a few
images at a time (:meth:`Event.blocks`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.attention.axes import Axes, stated_heads
from vitascope.errors import UserError

__all__ = [
    "Event",
    "Frame",
    "attention_weights",
    "has_fused_layers",
    "is_fused_layer",
    "is_opaque",
    "of_fused_layer",
    "of_kernel",
    "of_opaque",
    "of_product",
]


@dataclass
class Event:
    """One attention computation: module name, and functions that give its map and its tokens."""

    name: str
    own_weights: Callable[[], Tensor]  # the map in the layer's own axes, (..., T, S)
    axes: Callable[[], Axes | None] | None = None  # of those; None: (B * windows, H) already
    query: Tensor | None = None  # (..., T, features), to find their coordinates
    key: Tensor | None = None
    scores: Tensor | None = None  # (..., T, S), if queries and keys are unknown
    content: Callable[[], Tensor] | None = None  # the two parts of a gated layer
    position: Callable[[], Tensor] | None = None
    source: Tensor | None = None  # its gradient gives that of the map
    map_gradient: Callable[[Tensor], Tensor] | None = None  # from the gradient at the source
    images: int = 1  # of the batch
    numel: int = 0  # elements of the map
    length: int = 0  # of its first axis, image by image
    some: Callable[[slice], "Event"] | None = None  # the same for a part of that axis

    def weights(self) -> Tensor:
        """The map. (B * windows, H, T, S), image by image"""
        return self.arrange(self.own_weights())

    def arrange(self, tensor: Tensor) -> Tensor:
        """A tensor in the axes of the map, (..., T, S), as (B * windows, H, T, S).

        Raises:
            UserError: If the axes cannot be told.
        """
        if self.axes is None:
            return tensor if tensor.ndim == 4 else tensor.unsqueeze(0)
        axes = self.axes()
        if axes is None:
            shape = " x ".join(map(str, tensor.shape))
            raise UserError(f"which axes of its {shape} map are windows and heads cannot be told")
        return axes.arrange(tensor)

    def blocks(self, max_elements: int) -> Iterator["Event"]:
        """Yield the event for a few images at a time: a map of at most ``max_elements``, or one.

        Memory is used again: a map is valid until the next event is taken. An event that cannot be
        divided comes whole.
        """
        if self.some is None or self.length % self.images or self.numel <= max_elements:
            yield self
            return
        step = self.length // self.images * max(1, max_elements * self.images // self.numel)
        for first in range(0, self.length, step):
            yield self.some(slice(first, min(first + step, self.length)))


@dataclass
class Frame:
    """A module that is running, with its arguments and the softmaxes it has computed."""

    name: str
    module: nn.Module
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    images: int = 1  # of the batch
    softmaxes: list[Tensor] = field(default_factory=list)
    number: int = 0  # of its next attention computation


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The attention matrix of ``scaled_dot_product_attention``. (..., T, S)

    Rows whose keys are all masked are zero, as the kernel's output is. Without gradients it is
    computed in ``out``, where that is given.
    """
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    query = query * (1 / sqrt(query.shape[-1]) if scale is None else scale)
    scores = torch.matmul(query, key.mT, out=out)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = torch.softmax(scores, -1, out=None if scores.requires_grad else scores)
    return weights if attn_mask is None else weights.nan_to_num(0.0)


def is_opaque(module: nn.Module) -> bool:
    """Return whether hooks would change how the layer runs, or it never forms its attention map."""
    return isinstance(module, nn.MultiheadAttention) or (
        (hasattr(module, "gating_param") or getattr(module, "maps_on_request", False) is True)
        and callable(getattr(module, "attention", None))
    )


def of_opaque(
    name: str, module: nn.Module, args: Any, kwargs: Any, output: Any = None
) -> Event | None:
    """The event of an opaque layer, from its arguments and its output."""
    if isinstance(module, nn.MultiheadAttention):
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return _multihead(name, module, given, output)
    if is_opaque(module):
        parts: Any = cache(partial(module.attention, *args, **kwargs))  # type: ignore[arg-type,misc]
        tokens = args[0] if args else next(iter(kwargs.values()))
        gated = hasattr(module, "gating_param")
        event = Event(name, (lambda: parts().mixed) if gated else parts, None, tokens, tokens)
        if args:
            event.numel = (stated_heads(module) or 1) * tokens[..., 0].numel() * tokens.shape[-2]
            event.length = len(tokens)
            event.some = lambda part: _required(
                of_opaque(name, module, (tokens[part], *args[1:]), kwargs)
            )
        if not gated:
            return event
        event.content = lambda: parts().content
        event.position = lambda: parts().position.expand_as(parts().mixed)
        if isinstance(output, Tensor) and output.requires_grad and hasattr(module, "values"):
            with torch.no_grad():
                value = module.values(tokens)
            event.source = output
            event.map_gradient = partial(_behind, module.proj.weight.detach(), value)
        return event
    return None


def _required(event: Event | None) -> Event:
    assert event is not None  # the module is opaque
    return event


def _behind(projection: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """``dA = dO V^T`` from the gradient behind the output projection. (B, H, T, S)

    Args:
        projection: Weight of the projection. (D, D)
        value: (B, H, S, d)
        gradient: At the projection's output. (B, T, D)
    """
    heads = (gradient @ projection).unflatten(-1, (value.shape[1], -1)).transpose(1, 2)
    return heads @ value.mT


def is_fused_layer(module: nn.Module) -> bool:
    """Return whether it is torch's ``TransformerEncoderLayer``, which has a fused fast path."""
    return type(module).forward is nn.TransformerEncoderLayer.forward


def has_fused_layers(model: nn.Module) -> bool:
    """Return whether the model has fused layers, inside which hooks cannot run."""
    return any(is_fused_layer(module) for module in model.modules())


def of_fused_layer(name: str, module: nn.Module, args: Any, kwargs: Any) -> Event:
    """The attention inside an ``nn.TransformerEncoderLayer``, on its fast or slow path."""
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


def _multihead(
    name: str, module: nn.MultiheadAttention, given: dict[str, Any], output: Any = None
) -> Event:
    query, key = given["query"], given["key"]

    def weights() -> Tensor:
        rest = {k: v for k, v in given.items() if k in ("key_padding_mask", "attn_mask")}
        dropout, module.dropout = module.dropout, 0.0
        try:
            _, maps = nn.MultiheadAttention.forward(
                module,
                query,
                key,
                given["value"],
                need_weights=True,
                average_attn_weights=False,
                **rest,
            )
        finally:
            module.dropout = dropout
        assert maps is not None  # asked for
        return maps

    if query.ndim == 3 and not module.batch_first:
        query_tokens, key_tokens = query.transpose(0, 1), key.transpose(0, 1)
    else:
        query_tokens, key_tokens = query, key
    event = Event(name, weights, None, query_tokens, key_tokens)
    mask = given.get("attn_mask")
    if query.ndim == 3 and (mask is None or mask.ndim == 2):  # of every image
        event.numel = module.num_heads * query_tokens[..., 0].numel() * key_tokens.shape[1]
        event.length = len(query_tokens)
        event.some = lambda part: _multihead(name, module, _part_of_given(part, module, given))
    out = output[0] if isinstance(output, tuple) else None
    if isinstance(out, Tensor) and out.requires_grad and out.ndim == 3:
        _with_gradient(event, module, given["value"], out)
    return event


def _part_of_given(
    part: slice, module: nn.MultiheadAttention, given: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of an ``nn.MultiheadAttention`` for a part of the batch."""
    some = dict(given)
    for side in ("query", "key", "value"):
        some[side] = given[side][part] if module.batch_first else given[side][:, part]
    if given.get("key_padding_mask") is not None:
        some["key_padding_mask"] = given["key_padding_mask"][part]
    return some


def _with_gradient(event: Event, module: nn.MultiheadAttention, value: Tensor, out: Tensor) -> None:
    """Let the event of an ``nn.MultiheadAttention`` find the gradient of its map."""
    weight, bias = module.v_proj_weight, module.in_proj_bias
    weight = module.in_proj_weight.chunk(3)[2] if weight is None else weight
    with torch.no_grad():
        values = nn.functional.linear(value, weight, None if bias is None else bias.chunk(3)[2])
        values = values if module.batch_first else values.transpose(0, 1)
        values = values.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
    projection, batch_first = module.out_proj.weight.detach(), module.batch_first

    def map_gradient(gradient: Tensor) -> Tensor:
        return _behind(projection, values, gradient if batch_first else gradient.transpose(0, 1))

    event.source, event.map_gradient = out, map_gradient


def of_kernel(
    name: str,
    axes: Callable[[], Axes | None],
    args: Any,
    kwargs: dict[str, Any],
    output: Tensor,
) -> Event:
    """The event of a call of ``scaled_dot_product_attention``."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    query, key = given["query"], given["key"]
    rest = {k: v for k, v in given.items() if k not in ("query", "key", "value", "dropout_p")}
    event = Event(name, lambda: attention_weights(query, key, **rest), axes, query, key)
    if query.ndim > 2 and len(query) == len(key):
        event.numel, event.length = query[..., 0].numel() * key.shape[-2], len(query)
        event.some = _part_of_kernel(name, axes, query, key, rest)
    if output.requires_grad:
        value = given["value"].detach()
        if given.get("enable_gqa"):
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
        event.source, event.map_gradient = output, lambda gradient: gradient @ value.mT
    return event


def _part_of_kernel(
    name: str,
    axes: Callable[[], Axes | None],
    query: Tensor,
    key: Tensor,
    rest: dict[str, Any],
) -> Callable[[slice], Event]:
    """Make the event of a kernel for a part of its first axis.

    It must not hold the event of the whole: memory would be freed by the garbage collector alone.
    """
    mask = rest.get("attn_mask")
    each = mask is not None and mask.ndim == query.ndim and len(mask) == len(query)  # of its own
    memory: list[Tensor] = []

    def some(part: slice) -> Event:
        own = {**rest, "attn_mask": mask[part]} if each and mask is not None else rest

        def weights() -> Tensor:
            shape = (*query[part].shape[:-1], key.shape[-2])
            if torch.is_grad_enabled() or query.dtype not in (torch.float32, torch.float64):
                return attention_weights(query[part], key[part], **own)
            if not memory:
                memory.append(query.new_empty(shape))
            return attention_weights(query[part], key[part], **own, out=memory[0][: shape[0]])

        return Event(name, weights, axes, query[part], key[part])

    return some


def of_product(
    frame: Frame, axes: Callable[[], Axes | None], operands: list[Tensor]
) -> Event | None:
    """The event of a matrix product with a softmax, possibly after dropout or talking heads."""
    soft = frame.softmaxes[-1]
    for operand in operands:
        with torch._C.DisableTorchFunction():
            used = _as_used(operand, soft)
            if used is None:
                continue
            weights, transposed = used
            event = Event(frame.name, partial(_same, weights), axes, scores=soft)
            _split(event, frame, weights)
            event.numel, event.length = weights.numel(), len(weights)
            maps = (event.own_weights, event.content, event.position)
            event.some = partial(_part_of_product, frame.name, axes, maps)
            if operand.requires_grad:
                event.source = soft if weights is soft else operand
                event.map_gradient = partial(_as_map, soft.shape, transposed)
        return event
    return None


def _as_used(operand: Tensor, soft: Tensor) -> tuple[Tensor, bool] | None:
    """The map by which a product weights its values, and whether it stands there transposed.

    None where the operand has the softmax's shape alone: a softmax times something else is no map.
    """
    if operand.ndim < 2 or operand.numel() != soft.numel():
        return None
    tolerance = 1e-3 if soft.dtype in (torch.float32, torch.float64) else 3e-2
    fitting = [
        (candidate.reshape(soft.shape), candidate is not operand)
        for candidate in (operand, operand.mT)
        if candidate.shape[-2:] == soft.shape[-2:]
    ]
    for used, transposed in fitting:  # a map with even columns has a transpose of even rows
        if torch.equal(used, soft):
            return used, transposed
    off = [float((used.detach().sum(-1) - 1).abs().max()) for used, _ in fitting]
    if off and min(off) < tolerance:
        return fitting[off.index(min(off))]
    for used, _ in fitting:
        if _dropped_or_mixed(used, soft, tolerance):
            return soft, False
    return None


def _dropped_or_mixed(used: Tensor, soft: Tensor, tolerance: float) -> bool:
    """Return whether ``used`` is the softmax after dropout, or with its heads mixed linearly."""
    used, soft = used.detach().float(), soft.detach().float()
    some = used.flatten()[:4096], soft.flatten()[:4096]
    alive = (some[0] != 0) & (some[1] > 1e-12)
    ratio = some[0][alive] / some[1][alive]
    if len(ratio) and bool((ratio - ratio[0]).abs().max() < tolerance * ratio[0].abs()):
        return True
    if soft.ndim < 4:
        return False
    heads = soft.shape[-3]
    before, after = (each.movedim(-3, -1).reshape(-1, heads) for each in (soft, used))
    picked = torch.linspace(0, len(before) - 1, 16 * heads + 64, device=soft.device).long()
    before = torch.nn.functional.pad(before[picked], (0, 1), value=1.0)
    after = after[picked]
    mixing = torch.linalg.pinv(before.double().cpu()) @ after.double().cpu()
    off = (before.double().cpu() @ mixing - after.cpu()).abs().max()
    return len(picked.unique()) > heads + 1 and bool(off < tolerance * after.abs().max().cpu())


def _split(event: Event, frame: Frame, mixed: Tensor) -> None:
    """Find content and position maps of a gated layer: two softmaxes that mix into ``mixed``."""
    gating = getattr(frame.module, "gating_param", None)
    if not isinstance(gating, Tensor) or len(frame.softmaxes) != 2:
        return
    gate = gating.sigmoid().view(-1, 1, 1)
    first, second = frame.softmaxes
    for content, position in ((first, second), (second, first)):
        if torch.allclose((1 - gate) * content + gate * position, mixed, atol=1e-4):
            event.content = partial(_same, content)
            event.position = partial(_same, position.expand_as(mixed))
            event.scores = content
            return


def _part_of_product(
    name: str,
    axes: Callable[[], Axes | None],
    maps: tuple[Callable[[], Tensor] | None, ...],
    part: slice,
) -> Event:
    """The event of a product for a part of its first axis, from its maps as of an event."""
    own, content, position = (get and partial(_same, get()[part]) for get in maps)
    assert own is not None
    return Event(name, own, axes, content=content, position=position)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _as_map(shape: torch.Size, transposed: bool, gradient: Tensor) -> Tensor:
    """The gradient of a product's operand, in the shape of the map."""
    return (gradient.mT if transposed else gradient).reshape(shape)
