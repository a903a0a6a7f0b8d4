"""The parts a vision model is made of, found by running it once on one image.

Nothing here knows a model's name. A module is an *attention* if it computed an attention map over
tokens; an *mlp* if it widens and returns to its width by dense layers alone; a *convolution* or a
*subsampling* by what it does to the grid of places; the *stem* takes the image and is less than
half of the model; a *head* puts out one vector an image. Token mixing of another kind (attention
over channels, factorised attention) is a *block*. Parts inside a part are not listed.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from vitascope.capture.events import Event
from vitascope.capture.features import evaluating, tensor_in
from vitascope.capture.places import Layout, inheriting, layout_of, one_image, places_of
from vitascope.capture.shadows import Shadows
from vitascope.capture.streams import following
from vitascope.capture.watch import watching
from vitascope.errors import UserError

__all__ = ["Unit", "units"]


@dataclass(frozen=True)
class Unit:
    """A part of a model, and what the network carries on after it.

    Shape, layout and grid are those of the sum with the shortcut where there is one.
    """

    name: str
    kind: str  # attention, mlp, convolution, subsampling, stem, head or block
    stage: int  # 0, 1, ...: a new one with each new grid
    grid: tuple[int, int] | None = None  # patches or pixels down and across
    num_prefix_tokens: int = 0  # class, distillation and register tokens
    shape: tuple[int, ...] = ()  # for one image
    layout: str | None = None  # NCHW, NHWC, NLC or NCL; None when it is not image-like
    residual: bool = False  # its output goes into a sum with a shortcut
    branch: bool = False  # and it is the only unit on that branch

    def as_image(self, tensor: Tensor) -> Tensor:
        """The patches of a batch of this unit's tensors, prefix tokens dropped. (B, C, h, w)"""
        if self.grid is None or self.layout is None:
            raise UserError(f"{self.name} ({self.kind}) has no grid: its shape is {self.shape}")
        if tuple(tensor.shape[1:]) != self.shape[1:]:
            raise UserError(
                f"{self.name} put out {tuple(tensor.shape)}, and {self.shape} an image when its "
                "grid was found: all images must have one size"
            )
        if self.layout == "NHWC":
            return tensor.permute(0, 3, 1, 2)
        if self.layout == "NLC":
            return tensor[:, self.num_prefix_tokens :].mT.unflatten(2, self.grid)
        if self.layout == "NCL":
            return tensor[:, :, self.num_prefix_tokens :].unflatten(2, self.grid)
        return tensor


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
    within: tuple[str, ...] = ()  # modules running around it, by whatever name they have


def units(
    model: nn.Module,
    example_input: Tensor,
    *,
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
) -> tuple[Unit, ...]:
    """The parts of ``model`` in order of execution, seen on the first image of a batch.

    Args:
        model: Any module.
        example_input: Images (B, C, height, width).
        grid: Patches down and across, for the parts whose places cannot be followed.
        num_prefix_tokens: Tokens before the patches there; by default all that are left over.
    """
    image = one_image(example_input)
    calls, attentions, mixings = _trace(model, image)
    kinds = _classify(model, calls, attentions, mixings)
    found = _describe(model, image, kinds)
    if grid is not None:
        found = [_stated(unit, grid, num_prefix_tokens) for unit in found]
    return _staged(found)


def _stated(unit: Unit, grid: tuple[int, int], num_prefix: int | None) -> Unit:
    """The unit with the stated grid, if its own is unknown and its shape fits."""
    if unit.grid is not None or unit.kind == "head":
        return unit
    count = grid[0] * grid[1]
    if len(unit.shape) == 3 and unit.shape[1] >= count:
        prefix = unit.shape[1] - count
        if num_prefix in (None, prefix):
            return replace(unit, grid=grid, layout="NLC", num_prefix_tokens=prefix)
    if len(unit.shape) == 4 and unit.shape[2:] == grid:
        return replace(unit, grid=grid, layout="NCHW")
    if len(unit.shape) == 4 and unit.shape[1:3] == grid:
        return replace(unit, grid=grid, layout="NHWC")
    return unit


def _trace(model: nn.Module, image: Tensor) -> tuple[dict[str, _Call], set[str], set[str]]:
    """First call of every module, in order, and who attends over tokens or otherwise."""
    calls: dict[str, _Call] = {}
    attentions: set[str] = set()
    mixings: set[str] = set()
    shadows = Shadows(image)
    running: list[str] = []

    def on_event(event: Event) -> None:
        place = places_of(event, shadows)
        name = event.name.split("@")[0]
        (mixings if place is not None and not place.over_tokens else attentions).add(name)

    def entering(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            x = tensor_in(args) if args else tensor_in(kwargs)
            if x is not None and name not in calls:
                calls[name] = _Call(name, module, tuple(x.shape), before=layout_of(shadows, x),
                                    takes_image=x is image, within=tuple(running))  # fmt: skip
            running.append(name)

        return hook

    def leaving(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            out = tensor_in(output)
            running.pop()
            if out is not None and name in calls and not calls[name].output:
                calls[name].output = tuple(out.shape)
                calls[name].after = layout_of(shadows, out)

        return hook

    handles: list[Any] = []
    try:
        with evaluating(model), inheriting(model, shadows), shadows:
            for name, module in model.named_modules():
                handles.append(module.register_forward_pre_hook(entering(name), with_kwargs=True))
                handles.append(module.register_forward_hook(leaving(name)))
            with watching(model, on_event):
                model(image)
    finally:
        for handle in handles:
            handle.remove()
    return {name: call for name, call in calls.items() if call.output}, attentions, mixings


def _classify(
    model: nn.Module, calls: dict[str, _Call], attentions: set[str], mixings: set[str]
) -> dict[str, str]:
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
    found = []
    for child in module.modules():
        if isinstance(child, nn.Linear):
            found.append((child.in_features, child.out_features))
        elif isinstance(child, nn.Conv2d) and set(child.kernel_size) == {1}:
            found.append((child.in_channels, child.out_channels))
    return found


def _is_mlp(call: _Call, whole: dict[str, str]) -> bool:
    """Dense layers that widen and come back, over the same places."""
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
    """Fewer places go out than came in, and still more than one."""
    if call.before is None or call.after is None:
        return False
    (h, w), (down, across) = call.before.grid, call.after.grid
    return 1 < down * across < h * w


def _describe(model: nn.Module, image: Tensor, kinds: dict[str, str]) -> list[Unit]:
    """A second run follows each part to its sum and sees what is there."""
    found: dict[str, Unit] = {}
    shadows = Shadows(image)

    def see(name: str, tensor: Tensor, residual: bool = False, branch: bool = False) -> None:
        layout = layout_of(shadows, tensor)
        found[name] = Unit(
            name, kinds[name], 0, layout.grid if layout else None,
            layout.num_prefix_tokens if layout else 0, tuple(tensor.shape),
            layout.name if layout else None, residual, branch)  # fmt: skip

    def hook_for(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            tensor = tensor_in(output)
            if tensor is not None:
                see(name, tensor)

        return hook

    names = [name for name, kind in kinds.items() if name and kind not in ("stem", "head")]
    sums = following(model, names, lambda name, out, alone: see(name, out, True, alone))
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(inheriting(model, shadows))  # its hooks run first
        for name in filter(None, kinds):
            hook = model.get_submodule(name).register_forward_hook(hook_for(name))
            stack.callback(hook.remove)
        stack.enter_context(shadows)
        stack.enter_context(sums)
        model(image)
    return [found[name] for name in kinds if name in found]


def _staged(parts: list[Unit]) -> tuple[Unit, ...]:
    """Number the stages by the grids met after the stem."""
    grids: dict[tuple[int, int], int] = {}
    staged = []
    for part in parts:
        if part.kind not in ("stem", "head") and part.grid is not None:
            grids.setdefault(part.grid, len(grids))
        stage = grids.get(part.grid, max(len(grids) - 1, 0)) if part.grid else len(grids) - 1
        staged.append(replace(part, stage=max(stage, 0)))
    return tuple(staged)
