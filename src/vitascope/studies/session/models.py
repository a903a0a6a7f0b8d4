"""The model under study: built for some images, or opened again from where it was left.

A subject is named as on the command line: a model of ours or timm's (``convit_micro``,
``timm:vit_tiny_patch16_224``), a folder of a finished run, ``hf:NAME`` for a Hugging Face model, or
a Python factory ``package.module:function``. All but a run take a suffix: ``vit_micro+cb``.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.layers.broadcasting import broadcast
from vitascope.models import create_model
from vitascope.models.registry import OURS
from vitascope.models.suffix import split_suffix
from vitascope.models.weights import check_weights, load_weights
from vitascope.train import load_run
from vitascope.train.classes import class_pairs, joined

__all__ = ["Subject", "build", "class_pairs", "fitting_patch", "open_subject", "reopen"]


@dataclass(frozen=True)
class Subject:
    """A model, and what is known of it."""

    model: nn.Module
    name: str
    config: dict[str, Any]  # enough to build it again, or where it came from
    size: tuple[int, int, int] | None  # images it was made for, (C, H, W)
    data: str | None = None  # what a run was trained on
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    classes: tuple[str, ...] | None = None  # in the order of its outputs, where they are known
    first_classes: int | None = None  # of its data, that a run was trained on

    def seeing(
        self, images: Dataset, outputs: int, map_classes: Mapping[str, str] | None = None
    ) -> Dataset:
        """The images with labels that are the model's; see :func:`vitascope.train.classes.joined`.

        Raises:
            UserError: If they have other classes.
        """
        own = images.name == self.data
        return joined(
            images,
            self.classes,
            outputs,
            given=map_classes,
            strict="run" in self.config,
            first_classes=self.first_classes if own else None,
        )


def fitting_patch(height: int, width: int) -> int:
    """A patch that gives a grid of about 8 x 8, where locality has a meaning; a pixel is no patch.

    >>> [fitting_patch(side, side) for side in (8, 28, 32, 64, 224)]
    [2, 4, 4, 8, 32]
    """
    common, limit = gcd(height, width), max(2, min(height, width) // 7)
    return max(size for size in range(1, limit + 1) if common % size == 0)


def build(
    name: str, dataset: Dataset, *, seed: int = 0, drop_path: float = 0.0, **kwargs: Any
) -> Subject:
    """A fresh model for these images; the micro models get a patch that fits them."""
    channels, height, width = dataset.train.size
    wanted: dict[str, Any] = {"num_classes": len(dataset.classes), "in_chans": channels}
    wanted |= {"img_size": (height, width), "drop_path_rate": drop_path}
    _, made_with = OURS.get(split_suffix(name)[0], (None, {}))
    if {"img_size", "patch_size"} <= set(made_with):
        wanted["patch_size"] = fitting_patch(height, width)
    wanted |= kwargs
    torch.manual_seed(seed)
    try:
        model = _created(name, wanted)
    except UserError:
        del wanted["img_size"]  # many networks take any size, and no argument for it
        torch.manual_seed(seed)
        model = _created(name, wanted)
    _try_out(model, name, dataset)
    config = {
        "name": name,
        **{k: list(v) if isinstance(v, tuple) else v for k, v in wanted.items()},
    }
    return Subject(model, name, config, dataset.train.size, dataset.name)


def _created(name: str, wanted: dict[str, Any]) -> nn.Module:
    """The model, or a line about why it cannot be built with these arguments."""
    try:
        return create_model(name, **wanted)
    except (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError, AttributeError,
            AssertionError) as error:  # fmt: skip
        if isinstance(error, UserError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"cannot build {name}: {reason}") from None


def _try_out(model: nn.Module, name: str, dataset: Dataset) -> None:
    """One image must go through before hours are spent."""
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *dataset.train.size))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{name} cannot take images of {' x '.join(map(str, dataset.train.size))}: {reason}; "
            "give --image-size, or another model"
        ) from None
    model.train(training)


def reopen(folder: str | Path, epoch: int | None = None) -> Subject:
    """The model of a finished run, with its final weights or those kept at ``epoch``."""
    run = load_run(folder)
    config = dict(run.config["model"])
    name = config.pop("name", None)
    if name is None:
        raise UserError(f"{folder} was trained on a model that was handed in; build it yourself")
    config.pop("pretrained", None)
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    data = run.config["data"]
    missing = [part for part in ("name", "size", "mean", "std") if data.get(part) is None]
    if missing:
        raise UserError(f"{folder}: its config.yaml does not say the {', '.join(missing)} of data")
    if not len(data["mean"]) == len(data["std"]) == data["size"][0]:
        raise UserError(f"{folder}: its config.yaml needs a data.mean and data.std a channel")
    try:
        model = create_model(name, **config)
    except UserError:
        raise
    except Exception as error:  # the model's own words for arguments that cannot be
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{folder}: its config.yaml makes no model {name!r}: {reason}") from None
    weights = (
        run.weights if epoch is None else run.folder / f"weights/epoch-{epoch:04d}.safetensors"
    )
    return Subject(
        load_weights(model, weights),
        name,
        {"run": str(folder), "epoch": epoch, "model": run.config["model"]},
        tuple(data["size"]),
        data["name"],
        tuple(data["mean"]),
        tuple(data["std"]),
        run.classes,
        run.recipe.subset.first_classes,
    )


def open_subject(text: str, **kwargs: Any) -> Subject:
    """The model that ``text`` names; see the top of this file."""
    if Path(text).is_dir():
        return reopen(text)
    base, suffix = split_suffix(text)
    source, _, name = base.partition(":")
    if name and source not in ("timm", "hf-hub", "local-dir"):
        opened = _from_hub(name) if source == "hf" else _from_factory(source, name)
        if suffix is None:
            return opened
        model, config = broadcast(opened.model, **suffix), {**opened.config, "suffix": suffix}
        return replace(opened, model=model, name=text, config=config)
    model = create_model(text, **kwargs)
    known: Any = getattr(model, "pretrained_cfg", {}) or {}
    size = known.get("input_size")
    if kwargs.get("img_size"):
        side = kwargs["img_size"]
        size = (kwargs.get("in_chans", 3), *((side, side) if isinstance(side, int) else side))
    return Subject(
        model, text, {"name": text, **kwargs}, size, mean=known.get("mean"), std=known.get("std")
    )


def _from_hub(name: str) -> Subject:
    """A Hugging Face image classifier, from the hub or a local folder; safetensors only."""
    try:
        from transformers import AutoImageProcessor, AutoModelForImageClassification
    except ImportError:
        raise UserError("hf: models need transformers: pip install 'vitascope[hub]'") from None
    try:
        model = AutoModelForImageClassification.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"no Hugging Face image classifier {name!r}: {reason}") from None
    check_weights(model, f"hf:{name}")
    config = model.config
    side = getattr(config, "image_size", 224)
    side = (side, side) if isinstance(side, int) else tuple(side)
    size = (getattr(config, "num_channels", 3), *side)
    try:
        processor = AutoImageProcessor.from_pretrained(name)
        statistics: dict[str, Any] = {
            "mean": tuple(processor.image_mean),
            "std": tuple(processor.image_std),
        }
    except (OSError, ValueError, AttributeError, TypeError, ImportError):
        statistics = {}  # the images' own are used then
    names = getattr(config, "id2label", None) or {}
    classes = tuple(str(names[key]) for key in sorted(names))
    if classes == tuple(f"LABEL_{number}" for number in range(len(classes))):
        classes = ()  # what a config says that was given none
    known = {**statistics, "classes": classes or None}
    return Subject(model.eval(), f"hf:{name}", {"name": f"hf:{name}"}, size, **known)


def _from_factory(module: str, function: str) -> Subject:
    """What ``package.module:function`` returns: the user's own code, from the user's own path."""
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"cannot open {module}:{function}: {error}; give a model's name, a run's folder, "
            "hf:NAME or package.module:function"
        ) from None
    model = factory()
    if not isinstance(model, nn.Module):
        raise UserError(f"{module}:{function} returned {type(model).__name__}, not an nn.Module")
    check_weights(model, f"{module}:{function}")
    return Subject(model, f"{module}:{function}", {"factory": f"{module}:{function}"}, None)
