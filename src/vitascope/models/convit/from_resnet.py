"""A trained ResNet whose last convolutions have become gated positional attention.

The ConViT paper (https://arxiv.org/abs/2103.10697, section 5) names the start from a pre-trained
convolution as future work. Here the convolutions of the last stages, where maps are small and
attention is cheap, become :mod:`vitascope.layers.from_convolution`. Before any training the logits
are the ResNet's, borders included; then gates, queries and keys learn.

Converted are all k x k convolutions of stride 1. Those of 1 x 1 mix no patches, and the one with
stride 2 that opens a stage has fewer outputs than patches: both stay. Of the 3 x 3 convolutions of
the last stage, ResNet-18 so gives 3 of 4 and ResNet-50 gives 2 of 3. Stages are those that the
model declares in timm's ``feature_info``, so other networks of convolutions will do as well.
"""

from copy import deepcopy
from typing import Any

from torch import nn

from vitascope.errors import UserError
from vitascope.layers.from_convolution import attention_from_convolution
from vitascope.layers.kernel import reason_not_convertible

__all__ = ["convit_from_resnet", "convolutions_of"]


def stage_names(model: nn.Module, num_stages: int) -> list[str]:
    """The modules of the last stages, as the model declares them."""
    declared = [stage["module"] for stage in getattr(model, "feature_info", [])]
    inside = dict(model.named_modules())
    stages = [name for name in dict.fromkeys(declared) if any(inside[name].children())]
    if not stages:
        raise UserError(
            f"{type(model).__name__} declares no stages in feature_info; give a ResNet of timm's "
            "or of ours (resnet18, resnet_micro)"
        )
    if not 1 <= num_stages <= len(stages):
        raise UserError(f"num_stages={num_stages}; the model has {', '.join(stages)}")
    return stages[-num_stages:]


def convolutions_of(model: nn.Module, num_stages: int = 1) -> dict[str, str | None]:
    """The k x k convolutions of the last stages, each with the reason why it stays, if it does."""
    return {
        f"{stage}.{name}": reason_not_convertible(layer)
        for stage in stage_names(model, num_stages)
        for name, layer in model.get_submodule(stage).named_modules()
        if isinstance(layer, nn.Conv2d) and tuple(layer.kernel_size) != (1, 1)
    }


def convit_from_resnet(model: nn.Module, *, num_stages: int = 1, **kwargs: Any) -> nn.Module:
    """A copy of ``model`` with attention in place of the convolutions of its last stages.

    Args:
        model: A ResNet of timm's or of ours, trained or not; it is left unchanged.
        num_stages: How many stages, from the last on.
        kwargs: As for :func:`vitascope.attention_from_convolution`.

    >>> import torch, vitascope
    >>> resnet = vitascope.create_model("resnet_micro", num_classes=10).eval()
    >>> images = torch.randn(1, 3, 32, 32)
    >>> bool(torch.allclose(convit_from_resnet(resnet)(images), resnet(images), atol=1e-4))
    True
    """
    convolutions = convolutions_of(model, num_stages)
    chosen = [name for name, reason in convolutions.items() if reason is None]
    if not chosen:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in convolutions.items())
        raise UserError(
            f"no convolution of the last {num_stages} stages can become attention: "
            + (reasons or "there is none larger than 1 x 1")
        )
    converted = deepcopy(model)
    for name in chosen:
        parent, _, last = name.rpartition(".")
        conv: Any = converted.get_submodule(name)
        attention = attention_from_convolution(conv, **kwargs)
        setattr(converted.get_submodule(parent), last, attention)
    return converted
