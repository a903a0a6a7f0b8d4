"""Classify the modules of a model by what they do with one image.

*attention* computes a map over tokens; *mlp* widens and returns to its width with dense layers
only; *convolution* and *subsampling* are seen in the grid of coordinates; the *stem* takes the
image and is less than half of the model; a *head* outputs one vector per image; any other mixing of
tokens is a *block*.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitascope.capture.attention.events import Event
from vitascope.capture.attention.recorder import record_attention
from vitascope.capture.coordinates.layout import Layout, layout_of
from vitascope.capture.coordinates.tokens import coordinates_of, inherit_coordinates
from vitascope.capture.coordinates.tracer import CoordinateTracer
from vitascope.capture.structure.features import evaluating, tensor_in
from vitascope.capture.threads import only_this_thread


@dataclass
class _Call:
    """One run of one module."""

    name: str
    module: nn.Module
    inputs: tuple[int, ...]
    output: tuple[int, ...] = ()
    before: Layout | None = None
    after: Layout | None = None
    takes_image: bool = False
    within: tuple[str, ...] = ()  # names of the modules it runs in


def kinds_of(model: nn.Module, image: Tensor) -> dict[str, str]:
    """{name: kind} of the outermost parts, in order of execution."""
    calls, attentions, mixings = _trace(model, image)
    return _classify(calls, attentions, mixings)


def _trace(model: nn.Module, image: Tensor) -> tuple[dict[str, _Call], set[str], set[str]]:
    """First call of every module, in order; modules that attend over tokens; other attention."""
    calls: dict[str, _Call] = {}
    attentions: set[str] = set()
    mixings: set[str] = set()
    tracer = CoordinateTracer(image)
    running: list[str] = []

    def on_event(event: Event) -> None:
        tokens = coordinates_of(event, tracer)
        name = event.name.split("@")[0]
        (mixings if tokens is not None and not tokens.over_tokens else attentions).add(name)

    def entering(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            x = tensor_in(args) if args else tensor_in(kwargs)
            if x is not None and name not in calls:
                calls[name] = _Call(
                    name,
                    module,
                    tuple(x.shape),
                    before=layout_of(tracer, x),
                    takes_image=x is image,
                    within=tuple(running),
                )
            running.append(name)

        return only_this_thread(hook)

    def leaving(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            out = tensor_in(output)
            running.pop()
            if out is not None and name in calls and not calls[name].output:
                calls[name].output = tuple(out.shape)
                calls[name].after = layout_of(tracer, out)

        return only_this_thread(hook)

    handles: list[Any] = []
    try:
        with evaluating(model), inherit_coordinates(model, tracer), tracer:
            for name, module in model.named_modules():
                handles.append(module.register_forward_pre_hook(entering(name), with_kwargs=True))
                handles.append(module.register_forward_hook(leaving(name)))
            with record_attention(model, on_event):
                model(image)
    finally:
        for handle in handles:
            handle.remove()
    return {name: call for name, call in calls.items() if call.output}, attentions, mixings


def _classify(calls: dict[str, _Call], attentions: set[str], mixings: set[str]) -> dict[str, str]:
    """{name: kind} of the outermost parts."""
    order = list(calls)
    kinds: dict[str, str] = {}
    whole = dict.fromkeys(attentions, "attention") | dict.fromkeys(mixings, "block")
    whole |= {n: "mlp" for n, c in calls.items() if n not in whole and _is_mlp(c, whole)}
    whole |= {n: "block" for n, c in calls.items() if n not in whole and _is_mixer(c, whole)}

    layers = {n for n, c in calls.items() if c.module._parameters}

    def inside(name: str) -> list[str]:
        return [n for n in order if n != name and (n.startswith(f"{name}.") or not name)]

    def visit(name: str) -> None:
        call = calls[name]
        within = inside(name)
        if name in whole:
            kinds[name] = whole[name]
            return
        contains = any(other in whole for other in within)
        small = 2 * len(layers.intersection([name, *within])) < len(layers)
        if call.takes_image and name and not contains and small:
            kinds[name] = "stem"
            return
        if _reduces(call) and not any(_reduces(calls[other]) for other in within):
            kinds[name] = "subsampling"
            return
        if not within:
            if isinstance(call.module, nn.Conv2d) and max(call.module.kernel_size) > 1:  # type: ignore[type-var]
                kinds[name] = "convolution"
            return
        done: list[str] = []
        for other in within:  # children, whether or not the containers between them run
            if not any(other.startswith(f"{outer}.") for outer in done):
                done.append(other)
                visit(other)

    visit("")
    last = max((order.index(n) for n in kinds), default=-1)
    for name in order[last + 1 :]:
        if any(name.startswith(f"{outer}.") for outer in kinds):
            continue
        module, shape = calls[name].module, calls[name].output
        if isinstance(module, (nn.Linear, nn.Conv2d)) and len([s for s in shape if s > 1]) <= 2:
            kinds[name] = "head"
    return {n: kinds[n] for n in order if n in kinds and not whole.keys() & set(calls[n].within)}


def _dense(module: nn.Module) -> list[tuple[int, int]]:
    """Widths (in, out) of the dense layers below, in the order they are declared."""
    sizes = []
    for child in module.modules():
        if isinstance(child, nn.Linear):
            sizes.append((child.in_features, child.out_features))
        elif isinstance(child, nn.Conv2d) and set(child.kernel_size) == {1}:
            sizes.append((child.in_channels, child.out_channels))
    return sizes


def _is_mlp(call: _Call, whole: dict[str, str]) -> bool:
    """Dense layers that widen and return to the input width, on the same grid."""
    dense = _dense(call.module)
    if len(dense) < 2 or call.inputs != call.output:
        return False
    if any(n == call.name or n.startswith(f"{call.name}.") or not call.name for n in whole):
        return False
    linear = any(isinstance(m, nn.Linear) for m in call.module.modules())
    if not linear and any(
        isinstance(m, nn.Conv2d) and max(m.kernel_size) > 1  # type: ignore[type-var]
        for m in call.module.modules()
    ):
        return False
    (width, hidden), (back, out) = dense[0], dense[-1]
    return width == out and width in call.inputs and hidden >= width and back * 2 >= hidden >= back


def _is_mixer(call: _Call, whole: dict[str, str]) -> bool:
    """Dense layers of its own around something that is neither an MLP nor attention."""
    own = [m for m in call.module.children() if isinstance(m, nn.Linear)]
    inner = any(n.startswith(f"{call.name}.") or not call.name for n in whole)
    return len(own) >= 2 and call.inputs == call.output and not inner


def _reduces(call: _Call) -> bool:
    """Return whether the output grid is smaller than the input grid, and not a single point."""
    if call.before is None or call.after is None:
        return False
    (h, w), (down, across) = call.before.grid, call.after.grid
    return 1 < down * across < h * w
