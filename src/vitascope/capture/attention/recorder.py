"""Record every attention computation of a model; the output stays bit-identical.

A ``TorchFunctionMode`` sees the calls a model makes: ``scaled_dot_product_attention`` (the map is
recomputed from its arguments) and a softmax over the last axis whose result multiplies values.
Hooks tell which module is running. Three kinds of layer are special: ``nn.MultiheadAttention`` and
``nn.TransformerEncoderLayer``, whose fast path runs only without hooks, and layers that never form
the map they use. :mod:`vitascope.capture.attention.events` turns each computation into an event.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

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
from vitascope.capture.threads import exclusive_access, only_this_thread

_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum}


class _Recorder(TorchFunctionMode):
    """Call ``on_event`` for each attention computation while ``model`` runs."""

    def __init__(self, model: nn.Module, on_event: Callable[[Event], None]):
        super().__init__()
        self.on_event = on_event
        self.thread = threading.get_ident()
        self.stack: list[Frame] = []
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
            self.stack.append(Frame(name, module))
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
            self._report(of_kernel(frame.name, args, kwargs, out))
        elif func in _SOFTMAX:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if out.ndim >= 3 and dim in (-1, out.ndim - 1):
                frame.softmaxes.append(out)
        elif frame.softmaxes and func in _MATMUL:
            event = of_product(frame, [a for a in args if isinstance(a, Tensor)])
            if event is not None:
                frame.softmaxes = []
                self._report(event)
        return out


@contextmanager
def record_attention(model: nn.Module, on_event: Callable[[Event], None]) -> Iterator[None]:
    """Call ``on_event`` for each attention computation of ``model`` in the block."""
    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        recorder = _Recorder(model, on_event)
        stack.callback(recorder.remove)
        stack.enter_context(recorder)
        yield
