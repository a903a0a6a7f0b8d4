"""The units of a vision model (attention, MLPs, convolutions, ...), found by running one image.

No model names are used: :mod:`vitascope.capture.structure.kinds` classifies modules by what they
do. Units inside a unit are not listed.

At the level ``"block"`` each shortcut has one unit: a residual block of convolutions is one, read
at its output, after the activation that follows the sum in a post-activation ResNet. Attention and
MLPs that have shortcuts of their own stay as they are. These are the units of the published code of
Park and Kim 2022 (https://arxiv.org/abs/2202.06709), for ResNets and transformers alike.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from torch import Tensor, nn

from vitascope.capture.coordinates.layout import Layout, layout_of
from vitascope.capture.coordinates.tokens import inherit_coordinates, one_image
from vitascope.capture.coordinates.tracer import CoordinateTracer
from vitascope.capture.repeated_calls import ModuleRuns, module_of
from vitascope.capture.structure.features import evaluating, tensor_in
from vitascope.capture.structure.kinds import kinds_of
from vitascope.capture.structure.residual_stream import follow_sums
from vitascope.capture.threads import only_this_thread
from vitascope.errors import UserError, unknown

__all__ = ["Level", "Unit", "units"]

Level = Literal["unit", "block"]  # of what is listed: every unit, or one for each shortcut


@dataclass(frozen=True)
class Unit:
    """A part of a model, described by the residual stream after it.

    Shape, layout and grid are those of the sum with the shortcut where there is one. A module that
    runs twice in one pass is two units, ``name`` and ``name@2``.
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
    chosen: bool = False  # which patches its tokens are depends on the image or on chance
    order: tuple[int, ...] | None = None  # of the patches in rows, where windows stand together

    def as_image(self, tensor: Tensor) -> Tensor:
        """The patches of a batch of this unit's tensors, without other tokens. (B, C, h, w)"""
        if self.grid is None or self.layout is None:
            raise UserError(f"{self.name} ({self.kind}) has no grid: its shape is {self.shape}")
        if tuple(tensor.shape[1:]) != self.shape[1:]:
            raise UserError(
                f"{self.name} put out {tuple(tensor.shape)}, and {self.shape} an image when its "
                "grid was found: all images must have one size"
            )
        return Layout(self.layout, self.grid, self.num_prefix_tokens, self.order).as_image(tensor)


def units(
    model: nn.Module,
    example_input: Tensor,
    *,
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
    level: Level = "unit",
) -> tuple[Unit, ...]:
    """The parts of ``model`` in order of execution, seen on the first image of a batch.

    Args:
        model: Any module.
        example_input: Images (B, C, height, width).
        grid: Patches down and across, for the units whose coordinates cannot be traced.
        num_prefix_tokens: Tokens before the patches there; by default all that are left over.
        level: ``"block"`` for one unit per residual block of convolutions.
    """
    image = one_image(example_input)
    kinds = kinds_of(model, image)
    if level == "block":
        kinds = _in_blocks(model, image, kinds)
    elif level != "unit":
        raise unknown("level", level, get_args(Level))
    described = _describe(model, image, kinds)
    if grid is not None:
        described = [_stated(unit, grid, num_prefix_tokens) for unit in described]
    return _staged(described)


def _in_blocks(model: nn.Module, image: Tensor, kinds: dict[str, str]) -> dict[str, str]:
    """The kinds with each residual block of convolutions in place of the units inside it.

    A block is the innermost module that adds the branch of a convolution (or of several units) to
    its shortcut, and any module of the same class: some blocks of a network have no shortcut.
    """
    running: list[str] = []
    holders: set[str] = set()
    separate: set[str] = set()  # units with a shortcut of their own, convolutions apart

    def entering(name: str) -> Any:
        return only_this_thread(lambda *_: running.append(name))

    @only_this_thread
    def leaving(*_: Any) -> None:
        running.pop()

    def on_sum(run: str, _sum: Tensor, alone: bool) -> None:
        name = module_of(run)
        if alone and kinds[name] not in ("convolution", "subsampling"):
            separate.add(name)
        elif running:
            holders.add(running[-1])

    names = [name for name, kind in kinds.items() if name and kind not in ("stem", "head")]
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(entering(name)).remove)
            stack.callback(module.register_forward_hook(leaving).remove)
        stack.enter_context(follow_sums(model, names, on_sum))
        model(image)

    def inside(block: str) -> list[str]:
        return [name for name in kinds if name.startswith(f"{block}.")]

    classes = {type(model.get_submodule(name)) for name in holders if name}
    blocks = [name for name, m in model.named_modules() if name and type(m) in classes]
    blocks = [name for name in blocks if inside(name) and not separate.intersection(inside(name))]
    blocks = [n for n in blocks if not any(other.startswith(f"{n}.") for other in blocks)]
    merged: dict[str, str] = {}
    for name, kind in kinds.items():
        block = next((block for block in blocks if name.startswith(f"{block}.")), None)
        if block is None:
            merged[name] = kind
        elif merged.get(block) != "subsampling":
            merged[block] = "subsampling" if kind == "subsampling" else "convolution"
    return merged


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


def _describe(model: nn.Module, image: Tensor, kinds: dict[str, str]) -> list[Unit]:
    """Run the model again, follow each unit to its residual sum and describe the sum."""
    described: dict[str, Unit] = {}
    tracer = CoordinateTracer(image)

    def describe(run: str, tensor: Tensor, residual: bool = False, branch: bool = False) -> None:
        if kinds[module_of(run)] == "stem" and len(tensor) != len(image):
            return  # angles of rotary positions and the like, which no image passes through
        layout = layout_of(tracer, tensor)
        described[run] = Unit(
            run,
            kinds[module_of(run)],
            0,
            layout.grid if layout else None,
            layout.num_prefix_tokens if layout else 0,
            tuple(tensor.shape),
            layout.name if layout else None,
            residual,
            branch,
            layout is None and tracer.is_chosen(tensor),
            layout.order if layout else None,
        )

    running: dict[str, str] = {}  # module -> its run
    order: list[str] = []

    def entering(name: str) -> Any:
        def hook(*_: Any) -> None:
            running[name] = runs.name(name)
            order.append(running[name])

        return only_this_thread(hook)

    def leaving(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            tensor = tensor_in(output)
            if tensor is not None:
                describe(running[name], tensor)

        return only_this_thread(hook)

    names = [name for name, kind in kinds.items() if name and kind not in ("stem", "head")]
    sums = follow_sums(
        model,
        names,
        lambda name, out, alone: describe(name, out, True, alone),
        is_learned=tracer.is_learned,
    )
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(inherit_coordinates(model, tracer))  # its hooks run first
        runs = ModuleRuns(model, stack)
        for name in filter(None, kinds):
            module = model.get_submodule(name)
            stack.callback(module.register_forward_pre_hook(entering(name)).remove)
            stack.callback(module.register_forward_hook(leaving(name)).remove)
        stack.enter_context(tracer)
        stack.enter_context(sums)
        model(image)
    return [described[run] for run in order if run in described]


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
