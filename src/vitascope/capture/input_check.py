"""Check what instruments are given: a model, and images that it takes."""

from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.errors import UserError, reason

__all__ = ["require_hooks", "require_module", "require_weights", "try_image"]


def require_module(model: Any) -> None:
    """Refuse what is no ``nn.Module``, a model's name for instance.

    Raises:
        UserError: With what to give instead.
    """
    if not isinstance(model, nn.Module):
        raise UserError(
            f"the model must be a torch.nn.Module, not {model!r:.80}; build one of a name with "
            "vitascope.create_model(name), or open a run with vitascope.load(path).model"
        )


def require_weights(model: Any) -> None:
    """Refuse what is no ``nn.Module``, or one on the meta device, which has shapes alone.

    Raises:
        UserError: With what to give instead.
    """
    require_module(model)
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UserError(
            f"this {type(model).__name__} is on the meta device and has no weights; build it on "
            "the CPU, or move it with to_empty() and load its weights"
        )


def require_hooks(model: Any) -> None:
    """Refuse what is no ``nn.Module``, or one inside which nothing can be observed.

    Raises:
        UserError: With what to give instead.
    """
    require_module(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError(
            "TorchScript hides what happens inside a model; give the nn.Module it was made from"
        )


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
    from vitascope.capture.structure.features import evaluating

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
