"""Whole networks by name: ours, or any of timm's.

Subpackages: `vit`, `convit`, `resnet` (with AlterNet), `segmentation`. `registry` has the sizes and
enters them into timm's registry, `suffix` reads ``NAME+lsa+cb``, `weights` loads and saves
checkpoints.
Imports `layers` and `record`; used by `loading`.
"""

from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any, cast

import timm
import torch
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitascope.errors import UserError, reason, unknown
from vitascope.hub_access import hub_download
from vitascope.layers.context_broadcasting.broadcasting import broadcast
from vitascope.models.convit.convit import ConViT, ConViTDistilled, GatePruning
from vitascope.models.convit.from_resnet import convit_from_resnet
from vitascope.models.registry import OURS, PREFIX
from vitascope.models.suffix import read_name
from vitascope.models.vit.cifar import CIFAR
from vitascope.models.vit.dial import DIAL
from vitascope.models.weights import check_weights
from vitascope.settings import checked

__all__ = [
    "ConViT",
    "ConViTDistilled",
    "GatePruning",
    "UnknownArgument",
    "convit_from_resnet",
    "create_model",
    "list_models",
    "takes_patches",
]

KNOWN = {*OURS, *CIFAR}


@checked
def list_models(pattern: str | None = None) -> list[str]:
    """Names for :func:`create_model`: ours, then timm's where a pattern asks for them.

    >>> list_models("convit_*small")
    ['convit_small']
    >>> list_models("deit_base+cb")
    ['deit_base+cb']
    """
    if pattern is None:
        return sorted(KNOWN)
    base, changes, _, patch = read_name(_text(pattern))
    theirs = [name for name in timm.list_models() if not name.startswith(PREFIX)]
    names = [*sorted(KNOWN), *(name for name in theirs if name not in KNOWN)]
    matching = [name for name in names if fnmatchcase(name, base)]
    if matching == [base]:  # a name, not a pattern
        _check_suffixes(base, changes, patch)
    if changes:
        matching = [name for name in matching if _is_plain_vit(name)]
    if patch:
        matching = [name for name in matching if takes_patches(name)]
    return [name + pattern[len(base) :] for name in matching]


class UnknownArgument(UserError):
    """The model has no such argument."""


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise UserError(f"a model's name is a text, not {name!r:.80}; list_models() has them")
    return name


@checked
def create_model(name: str, **kwargs: Any) -> nn.Module:
    """Build a model: ours first, any of timm's otherwise.

    Args:
        name: One of :func:`list_models`; ``timm:NAME`` for timm's own where ours has the same name;
            ``hf-hub:...`` and ``local-dir:...`` as timm takes them. With ``+cb``, ``+cb_s:mid``, …
            context broadcasting is put in, with ``+lsa``, ``+impulse``, … locality into a ViT of
            ours: see :mod:`vitascope.models.suffix`.
        kwargs: ``num_classes``, ``img_size``, ``in_chans``, ``pretrained``, and what the model has;
            with context broadcasting also ``scale_form`` and ``scale_init`` of
            :func:`vitascope.broadcast`.

    >>> create_model("convit_micro", num_classes=10).num_classes
    10
    """
    base, changes, suffix, patch = read_name(_text(name))
    _check_suffixes(base, changes, patch)
    for argument, least in (("num_classes", 0), ("in_chans", 1)):
        value = kwargs.get(argument, least)
        if not isinstance(value, int) or value < least:
            raise UserError(f"{argument} must be a whole number of at least {least}, not {value!r}")
    if patch is not None:
        kwargs["patch_size"] = patch
    if suffix is not None:
        scale = {key: kwargs.pop(key) for key in ("scale_form", "scale_init") if key in kwargs}
        local = base + "".join(f"+{change}" for change in changes)
        return broadcast(create_model(local, **kwargs), **suffix, **scale)
    if changes:
        return _changed(base, changes, kwargs)
    name = base
    source, _, rest = name.rpartition(":")
    if source in ("", "timm"):
        full = PREFIX + rest if not source and rest.split(".")[0] in KNOWN else rest
        if not timm.is_model(full):
            if "/" in name and not source:
                raise UserError(f"there is no folder {name!r}, and no model has a / in its name")
            raise unknown("model", name, [*KNOWN, *timm.list_models()])
    else:
        full = name
    wanted = bool(kwargs.get("pretrained")) or source == "hf-hub"
    try:
        with hub_download(name) if wanted else nullcontext():
            model = timm.create_model(full, **kwargs)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise UnknownArgument(f"{name} takes no such argument: {error}") from None
        raise UserError(f"cannot build {name}: {reason(error)}") from None
    except UserError:
        raise
    except (ValueError, ArithmeticError, AssertionError) as error:
        raise UserError(f"cannot build {name}: {reason(error)}") from None
    except RuntimeError as error:
        if "No pretrained weights exist" in str(error):
            raise UserError(
                f"there are no pretrained weights for {name}; leave pretrained out, or give a "
                "file of weights"
            ) from None
        if any(isinstance(value, int) and value < 0 for value in kwargs.values()):
            raise UserError(f"cannot build {name}: {reason(error)}") from None
        raise
    if kwargs.get("pretrained"):
        check_weights(model, name)
    return model


def takes_patches(name: str) -> bool:
    """Return whether the name is of one of our transformers, whose patches may have any size.

    >>> takes_patches("convit_mini+cb"), takes_patches("resnet_mini")
    (True, False)
    """
    made, _ = OURS.get(read_name(name).base, (nn.Module, {}))
    return issubclass(made, VisionTransformer)


def _is_plain_vit(name: str) -> bool:
    """Return whether it is a ViT of ours with plain attention, the kind that takes changes."""
    return name in OURS and OURS[name][0] in (VisionTransformer, VisionTransformerDistilled)


def _check_suffixes(base: str, changes: tuple[str, ...], patch: int | None) -> None:
    """Refuse suffixes that are for other models."""
    if patch is not None and not takes_patches(base):
        raise UserError(f"+patch{patch} is for a transformer of ours on a grid, not {base}")
    if changes and not _is_plain_vit(base):
        suffixes = "".join(f"+{change}" for change in changes)
        able = ", ".join(name for name in OURS if _is_plain_vit(name))
        raise UserError(f"{suffixes} changes a ViT of ours, not {base}; there are: {able}")


def _changed(base: str, changes: tuple[str, ...], kwargs: dict[str, Any]) -> nn.Module:
    """A ViT of ours with locality put in."""
    if kwargs.get("pretrained"):
        suffixes = "".join(f"+{change}" for change in changes)
        raise UserError(
            f"there are no pretrained weights for {base}{suffixes}; leave pretrained out"
        )
    made_with: dict[str, Any] = {}
    for change in changes:
        made_with |= DIAL[change].arguments
    blocks = sum(DIAL[change].blocks for change in changes)
    if blocks:
        made_with["depth"] = (kwargs.pop("depth", None) or OURS[base][1].get("depth", 12)) + blocks
    model = cast(VisionTransformer, create_model(base, **made_with, **kwargs))
    for change in changes:
        finish = DIAL[change].finish
        if finish is not None:
            with torch.device("cpu"):  # the start is computed, even for a model without memory
                finish(model)
    return model
