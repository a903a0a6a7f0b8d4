"""Whole networks by name: ours, or any of timm's.

Rooms: `vit`, `convit`, `resnet` (with AlterNet), `segmentation`. `registry` has the sizes and
enters them into timm's registry, `suffix` reads ``NAME+cb``, `weights` loads and saves checkpoints.
Imports `layers` and `record`; used by `studies` and `bench`.
"""

from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any

import timm
from torch import nn

from vitascope.errors import UserError, unknown
from vitascope.layers.context_broadcasting.broadcasting import broadcast
from vitascope.models.convit.convit import ConViT, GatePruning
from vitascope.models.convit.distilled import ConViTDistilled
from vitascope.models.convit.from_resnet import convit_from_resnet
from vitascope.models.hub_access import hub_download
from vitascope.models.registry import OURS, PREFIX
from vitascope.models.suffix import split_suffix
from vitascope.models.vit.cifar import CIFAR
from vitascope.models.weights import check_weights

__all__ = [
    "ConViT",
    "ConViTDistilled",
    "GatePruning",
    "convit_from_resnet",
    "create_model",
    "list_models",
]

KNOWN = {*OURS, *CIFAR}


def list_models(pattern: str | None = None) -> list[str]:
    """Names for :func:`create_model`: ours, then timm's where a pattern asks for them.

    >>> list_models("convit_*small")
    ['convit_small']
    >>> list_models("deit_base+cb")
    ['deit_base+cb']
    """
    if pattern is None:
        return sorted(KNOWN)
    base, _ = split_suffix(pattern)
    theirs = [name for name in timm.list_models() if not name.startswith(PREFIX)]
    names = [*sorted(KNOWN), *(name for name in theirs if name not in KNOWN)]
    return [name + pattern[len(base) :] for name in names if fnmatchcase(name, base)]


def create_model(name: str, **kwargs: Any) -> nn.Module:
    """Build a model: ours first, any of timm's otherwise.

    Args:
        name: One of :func:`list_models`; ``timm:NAME`` for timm's own where ours has the same name;
            ``hf-hub:...`` and ``local-dir:...`` as timm takes them. With ``+cb``, ``+cb_s:mid``,
            ``+cb_gate:msa``, …, context broadcasting is put in: see
            :mod:`vitascope.models.suffix`.
        kwargs: ``num_classes``, ``img_size``, ``in_chans``, ``pretrained``, and what the model has;
            with a suffix also ``scale_form`` and ``scale_init`` of :func:`vitascope.broadcast`.

    >>> create_model("convit_micro", num_classes=10).num_classes
    10
    """
    base, suffix = split_suffix(name)
    if suffix is not None:
        scale = {key: kwargs.pop(key) for key in ("scale_form", "scale_init") if key in kwargs}
        return broadcast(create_model(base, **kwargs), **suffix, **scale)
    source, _, rest = name.rpartition(":")
    if source in ("", "timm"):
        full = PREFIX + rest if not source and rest.split(".")[0] in KNOWN else rest
        if not timm.is_model(full):
            raise unknown("model", name, [*KNOWN, *timm.list_models()])
    else:
        full = name
    wanted = bool(kwargs.get("pretrained")) or source == "hf-hub"
    try:
        with hub_download(name) if wanted else nullcontext():
            model = timm.create_model(full, **kwargs)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise UserError(f"{name} takes no such argument: {error}") from None
        raise
    except RuntimeError as error:
        if "No pretrained weights exist" in str(error):
            raise UserError(
                f"there are no pretrained weights for {name}; leave pretrained out, or give a "
                "file of weights"
            ) from None
        raise
    if kwargs.get("pretrained"):
        check_weights(model, name)
    return model
