"""Hugging Face image models: opened from the hub or a folder, classifiers built again for a run.

A run's config keeps the network's own config under ``architecture``, so that the run opens without
the hub and without the folder.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from vitascope.errors import UserError, reason
from vitascope.hub_access import hub_download
from vitascope.loading.model import OpenedModel, Preprocessing
from vitascope.models.weights import check_weights

__all__ = ["PREFIX", "hub_config", "new_head", "open_classifier", "rebuilt_classifier"]

PREFIX = "hf:"
HEAD = "classifier"  # what transformers calls the head of every image classifier


def open_classifier(name: str) -> OpenedModel:
    """A Hugging Face image classifier, from the hub or a local folder; safetensors only.

    A network that has no classifier (DINOv3, a masked autoencoder) is opened as it is, and of one
    for images and text the part for images.
    """
    try:
        from transformers import AutoImageProcessor
    except ImportError:
        raise UserError("hf: models need transformers: pip install 'vitascope[hub]'") from None
    if not Path(name).is_dir() and (name[:1] in "./~" or name.count("/") > 1):
        raise UserError(f"no Hugging Face image model {name!r}: there is no such folder")
    try:
        with (
            nullcontext() if Path(name).is_dir() else hub_download(f"{PREFIX}{name}"),
            _without_messages(),
        ):
            model = _image_model(name)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"no Hugging Face image model {name!r}: {reason(error)}") from None
    check_weights(model, f"{PREFIX}{name}")
    config = model.config
    config = getattr(config, "vision_config", config)
    side = getattr(config, "image_size", 224)
    side = (side, side) if isinstance(side, int) else tuple(side)
    size = (getattr(config, "num_channels", 3), *side)
    try:
        preprocessing = _preprocessing(AutoImageProcessor.from_pretrained(name), size)
    except (OSError, ValueError, AttributeError, TypeError, ImportError):
        preprocessing = Preprocessing(size=size)  # the images' own mean and std are used then
    names = getattr(model.config, "id2label", None) or {}
    classes = tuple(str(names[key]) for key in sorted(names))
    if classes == tuple(f"LABEL_{number}" for number in range(len(classes))):
        classes = ()  # what a config says that was given none
    return OpenedModel(
        name=f"{PREFIX}{name}",
        model=model.eval(),
        config={"name": f"{PREFIX}{name}"},
        preprocessing=preprocessing,
        classes=classes or None,
    )


@contextmanager
def _without_messages() -> Iterator[None]:
    """Keep transformers from printing progress and which weights of other parts it leaves out."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _image_model(name: str) -> Any:
    """The classifier, the network without one, or the image part of a network for two kinds."""
    from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

    config = AutoConfig.from_pretrained(name)
    if type(config) in AutoModelForImageClassification._model_mapping:
        model, loading = AutoModelForImageClassification.from_pretrained(
            name, use_safetensors=True, output_loading_info=True
        )
        if not loading["missing_keys"]:  # else the weights are those of a network without its head
            return model
    model = AutoModel.from_pretrained(name, use_safetensors=True)
    return getattr(model, "vision_model", model)


def _preprocessing(processor: Any, images: tuple[int, int, int]) -> Preprocessing:
    """Mean, std, crop and interpolation of a processor.

    Its images are resized to ``size`` and cropped to ``crop_size``, or to the share ``crop_pct``
    (ConvNeXt's, below 384 pixels), or not cropped.
    """
    size = {key: value for key, value in dict(processor.size).items() if value}
    resized, crop = max(size.values()), 1.0
    if getattr(processor, "do_center_crop", None):
        crop = max(value for value in dict(processor.crop_size).values() if value) / resized
    elif getattr(processor, "crop_pct", None) and resized < 384:
        crop = processor.crop_pct
    return Preprocessing(
        size=images,
        mean=tuple(processor.image_mean),
        std=tuple(processor.image_std),
        crop_pct=min(1.0, float(crop)),
        interpolation="bilinear" if int(processor.resample) == 2 else "bicubic",  # as Pillow
    )


def hub_config(model: nn.Module, name: str) -> dict[str, Any] | None:
    """Return what :func:`rebuilt_classifier` needs; None for a head that it cannot replace.

    Args:
        model: As :func:`open_classifier` opened it.
        name: With ``hf:``.
    """
    config: Any = model.config
    if _head(model) is None:
        return None
    architecture = json.loads(config.to_json_string(use_diff=False))
    return {"name": name, "num_classes": config.num_labels, "architecture": architecture}


def rebuilt_classifier(architecture: Mapping[str, Any], num_classes: int) -> nn.Module:
    """The network that :func:`hub_config` describes, with random weights."""
    from transformers import AutoConfig, AutoModelForImageClassification

    model = AutoModelForImageClassification.from_config(AutoConfig.for_model(**architecture))
    if num_classes != model.config.num_labels:
        new_head(model, num_classes)
    return model


def new_head(model: Any, num_classes: int) -> None:
    """Put a new linear layer for so many classes in the place of the last one."""
    name = _head(model)
    assert name is not None
    old = model.get_submodule(name)
    model.set_submodule(name, nn.Linear(old.in_features, num_classes, bias=old.bias is not None))
    model.config.num_labels = model.num_labels = num_classes


def _head(model: Any) -> str | None:
    """The name of the last linear layer, if it is all of the head."""
    linear = [name for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    name = linear[-1] if linear else ""
    one = name.partition(".")[0] == HEAD and sum(each.startswith(HEAD) for each in linear) == 1
    return name if one and model.get_submodule(name).out_features == model.num_labels else None
