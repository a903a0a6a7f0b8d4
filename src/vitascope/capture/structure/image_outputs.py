"""Outputs that lie on a grid of the image: those of the units, and of the modules around them.

A unit's own output may be one branch of a sum; the outputs of the block and the stage around it are
what the rest of the network uses. Their layouts are found by tracing one image, so no layer must be
named and no reshaping function written (NCHW, NHWC and tokens alike).
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitascope.capture.coordinates.layout import Layout, coordinates_of_tokens, layout_of
from vitascope.capture.coordinates.tokens import inherit_coordinates, one_image
from vitascope.capture.coordinates.tracer import CoordinateTracer
from vitascope.capture.repeated_calls import ModuleRuns
from vitascope.capture.structure.features import evaluating, tensor_in
from vitascope.capture.structure.kinds import kinds_of
from vitascope.capture.threads import only_this_thread

__all__ = ["ImageOutput", "image_outputs"]


@dataclass(frozen=True)
class ImageOutput:
    """The output of one run of a module, on a grid of the image."""

    name: str
    layout: Layout
    coordinates: Tensor  # (y, x) in pixels of its tokens, NaN for prefix tokens. (T, 2)


def image_outputs(model: nn.Module, example_input: Tensor) -> tuple[ImageOutput, ...]:
    """The outputs on a grid, in the order in which they are ready.

    Args:
        model: Any module.
        example_input: Images (B, C, height, width); the first is run.
    """
    image = one_image(example_input)
    inner = [name for name, kind in kinds_of(model, image).items() if name and kind != "head"]
    parts = [name.split(".") for name in inner]
    around = {".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)}
    tracer = CoordinateTracer(image)
    outputs: dict[str, ImageOutput] = {}

    def leaving(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            run, tensor = runs.name(name), tensor_in(output)
            layout = None if tensor is None else layout_of(tracer, tensor)
            if tensor is not None and layout is not None:
                outputs[run] = ImageOutput(
                    run, layout, coordinates_of_tokens(tracer, tensor, layout)
                )

        return only_this_thread(hook)

    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(inherit_coordinates(model, tracer))  # its hooks run first
        runs = ModuleRuns(model, stack)
        for name, module in model.named_modules():
            if name in around:
                stack.callback(module.register_forward_hook(leaving(name)).remove)
        stack.enter_context(tracer)
        model(image)
    return tuple(outputs.values())
