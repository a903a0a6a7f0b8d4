"""Check that the first token of a layer is a class token.

Equations with x_0, the class token, would be silently wrong where a model has none, or where it
joins the patches late (ConViT, CaiT). A parameter named after it must exist; and where the model
can be run on an image, each layer's first tokens must have no image coordinates.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture import units
from vitascope.errors import UserError

_NAMES = ("cls_token", "class_token", "class_embedding")


def require_class_token(
    model: nn.Module, what: str, layers: Sequence[str], example_input: Tensor | None = None
) -> None:
    """Raise an error if one of ``layers`` is found to have no class token in front.

    Args:
        model: Any module.
        what: What needs it, for the message.
        layers: Names of modules.
        example_input: Images (B, C, height, width); by default of the size the model states.
    """
    names = [name.rpartition(".")[2] for name, _ in model.named_parameters()]
    if not any(name.startswith(_NAMES) for name in names):
        raise UserError(f"{what} needs a class token, and {type(model).__name__} has none")
    image = image_for(model) if example_input is None else example_input
    if image is None:
        return
    try:
        by_name = {unit.name: unit for unit in units(model, image)}
    except (RuntimeError, ValueError, TypeError, AssertionError):
        if example_input is not None:
            raise
        return  # it takes more than an image
    bare = [
        n for n in layers if n in by_name and by_name[n].grid and not by_name[n].num_prefix_tokens
    ]
    if bare:
        more = ", …" if len(bare) > 3 else ""
        raise UserError(
            f"{what} needs a class token, and there is none in {', '.join(bare[:3])}"
            f"{more} of {type(model).__name__}"
        )


def image_for(model: nn.Module) -> Tensor | None:
    """An empty image of the size that a timm or Hugging Face model states; None if it does not."""
    parameter = next(model.parameters())
    stem = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    size: Any = getattr(getattr(model, "patch_embed", None), "img_size", None)
    size = size or (getattr(model, "pretrained_cfg", None) or {}).get("input_size", (0, 0, 0))[1:]
    size = size if any(size) else getattr(getattr(model, "config", None), "image_size", None)
    if stem is None or not size or parameter.is_meta:
        return None
    size = (size, size) if isinstance(size, int) else tuple(size)
    return torch.zeros(1, stem.in_channels, *size, device=parameter.device, dtype=parameter.dtype)
