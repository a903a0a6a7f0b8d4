"""Check that a model takes some images, by passing one of them through it."""

from inspect import Parameter, signature
from typing import Any

from torch import Tensor, nn

from vitascope.capture.structure.features import evaluating
from vitascope.errors import UserError, reason

__all__ = ["try_image"]


def try_image(model: nn.Module, images: Tensor, name: str, advice: str) -> Any:
    """The model's output for the first of ``images``; its mode and weights are left as they are.

    Args:
        model: Any model.
        images: (B, C, H, W)
        name: What the model is called in the error message.
        advice: What to do if the image does not go through; the end of the message. Left out for a
            model that images alone do not suffice for.

    Raises:
        UserError: If the image does not go through, with the reason in one line.
    """
    try:
        with evaluating(model):
            return model(images[:1])
    except (RuntimeError, AssertionError, ValueError, TypeError, IndexError) as error:
        more = _needed_beyond_images(model)
        if more:
            raise UserError(f"{name} needs more than images: {', '.join(more)}") from None
        size = " x ".join(map(str, images.shape[1:]))
        raise UserError(f"{name} cannot take images of {size}: {reason(error)}; {advice}") from None


def _needed_beyond_images(model: nn.Module) -> list[str]:
    """Arguments that ``forward`` needs next to the images."""
    needed = [
        name
        for name, parameter in signature(model.forward).parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    return needed[1:]
