"""Record every attention computation of a model; the output stays bit-identical.

A ``TorchFunctionMode`` sees the calls a model makes: ``scaled_dot_product_attention`` (the map is
recomputed from its arguments) and a softmax over the last axis whose result multiplies values.
Hooks tell which module is running. Three kinds of layer are special: ``nn.MultiheadAttention`` and
``nn.TransformerEncoderLayer``, whose fast path runs only without hooks, and layers that never form
the map they use. :mod:`vitascope.capture.attention.events` turns each computation into an event.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _pop_mode_temporarily,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from vitascope.capture.attention.axes import Axes, Tokens, axes_of
from vitascope.capture.attention.events import (
    Event,
    Frame,
    is_fused_layer,
    is_opaque,
    of_fused_layer,
    of_kernel,
    of_opaque,
    of_product,
)
from vitascope.capture.attention.function_modes import disable_modes, enable_modes
from vitascope.capture.attention.tokens import tokens_of
from vitascope.capture.coordinates.operators import empty_plane
from vitascope.capture.coordinates.tracer import CoordinateTracer
from vitascope.capture.structure.features import evaluating
from vitascope.capture.threads import exclusive_access, only_this_thread

_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum}

_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError)


class _Recorder(TorchFunctionMode):
    """Call ``on_event`` for each attention computation while ``model`` runs."""

    def __init__(self, model: nn.Module, on_event: Callable[[Event], None]):
        super().__init__()
        self.on_event = on_event
        self.thread = threading.get_ident()
        self.stack: list[Frame] = []
        self.images = 1  # of the batch that is running
        self.counts: dict[str, int] = {}
        self.handles: list[Any] = []
        self.opaque_running: list[nn.Module] = []  # opaque layers that are running
        self.wrapped: list[tuple[nn.Module, Any]] = []  # with the instance's own forward, or None
        fused = [name for name, module in model.named_modules() if is_fused_layer(module)]
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
        for module, before in reversed(self.wrapped):
            del module.forward  # type: ignore[attr-defined]
            if before is not None:
                module.forward = before  # type: ignore[method-assign]
        while self.opaque_running:
            self._restore_modes()

    def _restore_modes(self) -> None:
        self.opaque_running.pop()
        enable_modes()

    def _wrap(self, name: str, module: nn.Module) -> None:
        """Run a fused layer without modes, then compute its map from the same arguments."""
        forward = module.forward

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self.thread:
                return forward(*args, **kwargs)
            if not self.stack:
                self.counts.clear()
            with torch._C.DisableTorchFunction():
                output = forward(*args, **kwargs)
                event = of_fused_layer(name, module, args, kwargs)
            self._report(event)
            return output

        self.wrapped.append((module, module.__dict__.get("forward")))
        module.forward = wrapper  # type: ignore[method-assign]

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not self.stack:
                self.counts.clear()
                self.images = _num_images(args, kwargs)
            self.stack.append(Frame(name, module, args, kwargs, self.images))
            if is_opaque(module):
                disable_modes()
                self.opaque_running.append(module)

        return only_this_thread(hook)

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            while self.opaque_running and self.opaque_running[-1] is module:
                self._restore_modes()
            frame = None
            while self.stack and (frame is None or frame.module is not module):
                frame = self.stack.pop()
            if output is None or frame is None:
                return  # the module raised
            if self.opaque_running:
                return  # inside an opaque layer, which reports its own map
            with torch._C.DisableTorchFunction():
                event = of_opaque(name, module, args, kwargs, output)
            if event is not None:
                self._report(event)

        return only_this_thread(hook)

    def _report(self, event: Event) -> None:
        event.images = self.images
        self.counts[event.name] = count = self.counts.get(event.name, 0) + 1
        if count > 1:
            event.name = f"{event.name}@{count}"
        if self.stack:
            self.stack[-1].number += 1
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
            self._report(of_kernel(frame.name, _axes(frame, out.shape[:-2]), args, kwargs, out))
        elif func in _SOFTMAX:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if out.ndim >= 3 and dim in (-1, out.ndim - 1):
                frame.softmaxes.append(out)
        elif frame.softmaxes and func in _MATMUL:
            axes = _axes(frame, frame.softmaxes[-1].shape[:-2])
            event = of_product(frame, axes, [a for a in args if isinstance(a, Tensor)])
            if event is not None:
                frame.softmaxes = []
                self._report(event)
        return out


def _num_images(args: Any, kwargs: Any) -> int:
    """Images of the batch that the model was given: the length of its first tensor."""
    tensors = (t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.ndim > 1)
    return max(1, next((len(t) for t in tensors), 1))


def _axes(frame: Frame, lead: Sequence[int]) -> Callable[[], Axes | None]:
    """The axes of the map that ``frame`` computes now, found when they are first needed."""
    number = frame.number
    trace = partial(_tokens_alone, frame, number)
    return cache(partial(axes_of, frame.module, tuple(lead), frame.images, trace, number))


@contextmanager
def _alone(module: nn.Module) -> Iterator[None]:
    """Run the block in eval mode, without modes and without hooks on ``module`` or below."""
    with ExitStack() as stack:
        for each in module.modules():
            for name in ("_forward_hooks", "_forward_pre_hooks"):
                before = getattr(each, name)
                if before:
                    stack.callback(setattr, each, name, before)
                    setattr(each, name, type(before)())
        stack.enter_context(torch._C._EnableTorchFunction())  # in a handler they are off
        while _get_current_function_mode() is not None:
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(evaluating(module))
        yield


def _tokens_alone(frame: Frame, number: int) -> Tokens | None:
    """Return where the tokens of a layer's attention stand in the layer's own input.

    The layer runs again alone; "coordinates" are the index on the first axis of its input and the
    index of the token. Whether its channels are the last axis or the second is not known: the one
    that tells more tokens apart is taken.
    """
    best, most = None, 0
    with _alone(frame.module):
        for channels_last in (True, False):
            args, kwargs = tree_map_only(
                Tensor, lambda t: t.detach().clone(), (frame.args, frame.kwargs)
            )
            inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            inputs = [t for t in inputs if t.ndim in (3, 4) and t.is_floating_point()]
            if not inputs:
                return None
            tracer = CoordinateTracer(torch.zeros(1, 1, 1, 1))
            for tensor in inputs:
                if tensor.ndim == inputs[0].ndim:
                    _number_tokens(tracer, tensor, tensor.ndim - 1 if channels_last else 1)
            seen: list[Tokens | None] = []

            def on_event(event: Event) -> None:
                with _disable_current_modes():
                    seen.append(tokens_of(event, tracer))  # noqa: B023

            try:
                with tracer, record_attention(frame.module, on_event):
                    frame.module(*args, **kwargs)
            except _REFUSALS:
                continue
            tokens = seen[number] if len(seen) > number else None
            distinct = 0 if tokens is None else sum(map(_num_distinct, tokens))
            if distinct > most:
                best, most = tokens, distinct
    return best


def _num_distinct(tokens: Tensor) -> int:
    flat = tokens.reshape(-1, tokens.shape[-1])
    return len(flat[~flat.isnan().any(1)].unique(dim=0))


def _number_tokens(tracer: CoordinateTracer, tensor: Tensor, channels: int) -> None:
    """Give each token of ``tensor`` its index on the first axis and its index in the sequence."""
    shape = [1 if axis == channels else size for axis, size in enumerate(tensor.shape)]
    first = torch.arange(shape[0]).view(-1, *[1] * (tensor.ndim - 1)).expand(shape)
    token = torch.arange(prod(shape[1:])).view(1, *shape[1:]).expand(shape)
    planes = [plane.float().expand(tensor.shape) for plane in (torch.ones(()), first, token)]
    tracer.put(tensor, [*planes, *[empty_plane(tensor.shape)] * 3])


@contextmanager
def record_attention(model: nn.Module, on_event: Callable[[Event], None]) -> Iterator[None]:
    """Call ``on_event`` for each attention computation of ``model`` in the block."""
    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        recorder = _Recorder(model, on_event)
        stack.callback(recorder.remove)
        stack.enter_context(recorder)
        yield
