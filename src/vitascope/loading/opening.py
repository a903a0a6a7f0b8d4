"""Sessions opened: a model built for some images, or opened again from where it was left.

A model is named as on the command line: one of ours or timm's (``convit_micro``,
``timm:vit_tiny_patch16_224``), the folder of a finished run, ``hf:NAME`` for a Hugging Face model,
``NAME@FILE`` for a name with the weights of a file, or a Python factory
``package.module:function``. All but a run take suffixes: ``vit_micro+lsa+cb``.
"""

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitascope import capture
from vitascope.data import Dataset
from vitascope.data.sources.imagenet import CROP_PCT
from vitascope.errors import UserError, reason
from vitascope.layers.context_broadcasting.broadcasting import broadcast
from vitascope.loading.hugging_face import PREFIX, open_classifier, rebuilt_classifier
from vitascope.loading.session import Session
from vitascope.models import create_model
from vitascope.models.registry import OURS
from vitascope.models.suffix import read_name
from vitascope.models.weights import check_weights, load_weights
from vitascope.training import load_run
from vitascope.training.classes import class_pairs
from vitascope.training.device import device_of
from vitascope.training.run_folder.run import run_folder

__all__ = [
    "build",
    "class_pairs",
    "fitting_patch",
    "is_named",
    "open_session",
    "rebuilt",
    "reopen",
    "split_file",
]

BEGINNING = ("pretrained", "weights", "origin")  # what a run's config says of its first weights


def fitting_patch(height: int, width: int, cells: int = 8, least: int = 2) -> int:
    """The side of a patch that divides images of this size into about ``cells`` x ``cells``.

    There are at least 7/8 of ``cells`` on the shorter side: 7 for a grid of 8, 14 for one of 16.

    >>> [fitting_patch(side, side) for side in (8, 28, 32, 64, 224)]
    [2, 4, 4, 8, 32]
    >>> [fitting_patch(side, side, 16) for side in (8, 28, 32, 64, 224)]
    [2, 2, 2, 4, 16]
    """
    common, limit = gcd(height, width), max(least, 8 * min(height, width) // (7 * cells))
    return max(size for size in range(1, limit + 1) if common % size == 0)


def build(
    name: str, dataset: Dataset, *, seed: int = 0, drop_path: float = 0.0, **kwargs: Any
) -> Session:
    """Build a new model for these images; small ones get patches that keep their own grid.

    Args:
        name: A model of ours or timm's.
        dataset: Its images: they decide its classes, channels and size.
        seed: Of the first weights.
        drop_path: Rate of stochastic depth.
        kwargs: More arguments of the model.

    Raises:
        UserError: If it cannot be built, or does not take the images.
    """
    channels, height, width = dataset.train.size
    wanted: dict[str, Any] = {"num_classes": len(dataset.classes), "in_chans": channels}
    wanted |= {"img_size": (height, width), "drop_path_rate": drop_path}
    _, made_with = OURS.get(read_name(name).base, (None, {}))
    for part, least in (("patch_size", 2), ("stem_stride", 1)):
        if {"img_size", part} <= set(made_with):
            cells = made_with["img_size"] // made_with[part]
            wanted[part] = fitting_patch(height, width, cells, least)
    if read_name(name).patch_size is not None:
        wanted["patch_size"] = read_name(name).patch_size
    wanted |= kwargs
    torch.manual_seed(seed)
    try:
        model = _created(name, wanted)
    except UserError:
        del wanted["img_size"]  # many networks take any size, and no argument for it
        torch.manual_seed(seed)
        model = _created(name, wanted)
    blank = torch.zeros(1, *dataset.train.size)
    capture.try_image(model, blank, name, "give --image-size, or another model")
    config = {k: list(v) if isinstance(v, tuple) else v for k, v in wanted.items()}
    return Session(
        model=model,
        name=name,
        config={"name": name, **config},
        size=dataset.train.size,
        data=dataset.name,
        random=not wanted.get("pretrained"),
        source=dataset.name,
        given=dataset,
    )


def _created(name: str, wanted: dict[str, Any]) -> nn.Module:
    """The model, or a line about why it cannot be built with these arguments."""
    refusals = (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Initializing zero-element tensors", UserWarning)
            return create_model(name, **wanted)
    except UserError:
        raise
    except UserWarning:
        raise UserError(
            f"cannot build {name}: a layer would have no weights; give sizes of at least 1"
        ) from None
    except (*refusals, AttributeError, AssertionError) as error:
        raise UserError(f"cannot build {name}: {reason(error)}") from None


def rebuilt(config: Mapping[str, Any]) -> nn.Module:
    """The model that a run's ``config.yaml`` describes, with random weights."""
    config = {k: v for k, v in config.items() if k not in BEGINNING}
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    name = config.pop("name")
    if name.startswith(PREFIX):
        return rebuilt_classifier(**config)
    return create_model(name, **config)


def reopen(
    folder: str | Path, epoch: int | None = None, *, images: Dataset | None = None
) -> Session:
    """Open the model of a finished run, with its final weights or those kept at ``epoch``.

    Args:
        folder: The run's.
        epoch: At which the run kept its weights.
        images: Of the run, where they are loaded already.
    """
    run = load_run(folder)
    name = run.config["model"].get("name")
    if name is None:
        raise UserError(f"{folder} was trained on a model that was handed in; build it yourself")
    data = run.config["data"]
    missing = [part for part in ("name", "size", "mean", "std") if data.get(part) is None]
    if missing:
        raise UserError(f"{folder}: its config.yaml does not say the {', '.join(missing)} of data")
    if not len(data["mean"]) == len(data["std"]) == data["size"][0]:
        raise UserError(f"{folder}: its config.yaml needs a data.mean and data.std a channel")
    try:
        model = rebuilt(run.config["model"])
    except UserError:
        raise
    except Exception as error:  # the model's own words for arguments that cannot be
        raise UserError(
            f"{folder}: its config.yaml makes no model {name!r}: {reason(error)}"
        ) from None
    kept = run.folder / f"weights/epoch-{epoch or 0:04d}.safetensors"
    return Session(
        model=load_weights(model, run.weights if epoch is None else kept),
        name=name,
        config={"run": str(folder), "epoch": epoch, "model": run.config["model"]},
        size=tuple(data["size"]),
        data=data["name"],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        crop_pct=data.get("crop_pct", CROP_PCT if data["name"].startswith("imagenet") else 1.0),
        interpolation=data.get("interpolation", "bicubic"),
        classes=run.classes,
        first_classes=run.recipe.subset.first_classes,
        source=data["name"],
        given=images,
        fold=tuple(data["fold"]) if data.get("fold") else None,
    )


def is_named(text: str) -> bool:
    """Whether ``text`` is the name of a model of ours or timm's, with a suffix or without."""
    source, colon, _ = read_name(text).base.partition(":")
    return not Path(text).is_dir() and (not colon or source in ("timm", "hf-hub", "local-dir"))


def split_file(text: str) -> tuple[str, Path | None]:
    """``NAME@FILE`` at its first ``@``, where NAME is a plain name; else no file.

    >>> split_file("resnet18@a@b.safetensors")
    ('resnet18', PosixPath('a@b.safetensors'))
    >>> split_file("hf-hub:timm/resnet18@main")
    ('hf-hub:timm/resnet18@main', None)
    """
    name, at, file = text.partition("@")
    plain = ":" not in name.removeprefix("timm:") and "/" not in name
    if not at or not plain or Path(text).is_dir():
        return text, None
    if not name or not file:
        raise UserError(f"{text!r} needs a model's name before the @ and a file after it")
    return name, Path(file)


def open_session(
    text: str | nn.Module,
    data: str | None = None,
    *,
    epoch: int | None = None,
    pretrained: bool = False,
    weights: str | None = None,
    image_size: int | None = None,
    seed: int = 0,
    device: str | None = None,
    map_classes: Mapping[str, str] | None = None,
    new_head: bool = True,
) -> Session:
    """Open the model that ``text`` names, on its device; its images are loaded when asked for.

    Args:
        text: See the top of this file; the folder of a comparison stands for the run that it
            recommends. Or a model itself.
        data: Images; a run's own when left out.
        epoch: Of a run: the weights it kept then.
        pretrained: timm's weights for a model given by name.
        weights: File of weights to load.
        image_size: Side of the images; the model's own when left out.
        seed: Of untrained weights.
        device: cpu, cuda, mps; a GPU if there is one when left out.
        map_classes: Class of the images -> class of the model, where the names differ.
        new_head: Give a model with untrained weights a head for the classes of ``data``.

    Raises:
        UserError: If there is no such model, or an option does not go with it.
    """
    model, text = (None, text) if isinstance(text, str) else (text, type(text).__name__)
    if model is not None and (pretrained or epoch is not None or weights is not None):
        raise UserError(f"the {text} that was given has its weights; leave other weights out")
    if model is None and Path(text).is_dir():
        text = str(run_folder(text))
    is_run, named = Path(text).is_dir(), model is None and is_named(text)
    with_file = split_file(text)[1] is not None
    if with_file and (pretrained or weights is not None):
        raise UserError(f"{text} brings its own weights; leave --pretrained and --weights out")
    if epoch is not None and not is_run:
        raise UserError(f"--epoch is for the kept weights of a run; {text} is not a run's folder")
    if pretrained and not named:
        raise UserError(f"--pretrained is for a model given by name; {text} brings its own weights")
    place = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(seed)
    if model is not None:
        opened = _from_module(model)
    elif is_run:
        opened = _from_run(Path(text), epoch)
    elif with_file:
        opened = _from_file(text, image_size)
    elif named:
        opened = _from_name(text, pretrained, image_size if weights is None else None, seed)
    else:
        opened = _from_elsewhere(text)
    if weights is not None:
        load_weights(opened.model, weights)
    random = named and not with_file and not pretrained and weights is None
    session = replace(
        opened,
        source=opened.data if data is None else data,
        image_size=image_size,
        random=random,
        device=place,
        map_classes=dict(map_classes or {}),
    )
    if new_head and random and data is not None and hasattr(session.model, "reset_classifier"):
        session.model.reset_classifier(len(session.loaded.classes))
    session.model.to(place).eval()
    return session


def _from_run(folder: Path, epoch: int | None) -> Session:
    kept = sorted(int(p.stem.split("-")[1]) for p in folder.glob("weights/epoch-*.safetensors"))
    if epoch is not None and epoch not in kept:
        there = ", ".join(map(str, kept)) or "none"
        raise UserError(f"{folder} kept no weights of epoch {epoch}; there are: {there}")
    return reopen(folder, epoch)


def _from_name(text: str, pretrained: bool, image_size: int | None, seed: int) -> Session:
    """A model of ours or timm's, built for another image size if it can be."""
    wanted: dict[str, Any] = {"pretrained": True} if pretrained else {}
    attempts = [{**wanted, "img_size": image_size}, wanted] if image_size else [wanted]
    for kwargs in attempts:
        torch.manual_seed(seed)
        try:
            model = create_model(text, **kwargs)
            break
        except (UserError, TypeError, AssertionError) as error:
            last = error
    else:
        if isinstance(last, UserError):
            raise last
        raise UserError(f"cannot build {text}: {reason(last)}")
    known: Any = getattr(model, "pretrained_cfg", {}) or {}
    size = known.get("input_size")
    if "img_size" in kwargs:
        size = (3, kwargs["img_size"], kwargs["img_size"])
    return Session(
        model=model,
        name=text,
        config={"name": text, **kwargs},
        size=size,
        mean=known.get("mean"),
        std=known.get("std"),
        crop_pct=known.get("crop_pct") if pretrained else None,
        interpolation="bilinear" if known.get("interpolation") == "bilinear" else "bicubic",
    )


def _from_file(text: str, image_size: int | None) -> Session:
    """``NAME@FILE`` with the head that the file has."""
    from vitascope.loading.pretrained import open_pretrained  # which opens runs from here

    found = open_pretrained(text, image_size=image_size)
    how = found.preprocessing
    return Session(
        model=found.model,
        name=text,
        config={"name": text},
        size=how.size,
        mean=how.mean,
        std=how.std,
        crop_pct=how.crop_pct,
        interpolation=how.interpolation,
        classes=found.classes,
    )


def _from_elsewhere(text: str) -> Session:
    """A Hugging Face model or what a Python factory returns, with a suffix if there is one."""
    base, changes, suffix, patch = read_name(text)
    if changes or patch:
        raise UserError(f"{text}: but for +cb, suffixes change a ViT of ours, not {base}")
    source, _, name = base.partition(":")
    opened = open_classifier(name) if source == "hf" else _from_factory(source, name)
    if suffix is None:
        return opened
    model, config = broadcast(opened.model, **suffix), {**opened.config, "suffix": suffix}
    return replace(opened, model=model, name=text, config=config)


def _from_factory(module: str, function: str) -> Session:
    """What ``package.module:function`` returns: the user's own code, from the user's own path."""
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"cannot open {module}:{function}: {error}; give a model's name, a run's folder, "
            "hf:NAME or package.module:function"
        ) from None
    model, name = factory(), f"{module}:{function}"
    if not isinstance(model, nn.Module):
        raise UserError(f"{name} returned {type(model).__name__}, not an nn.Module")
    check_weights(model, name)
    preparation = _torchvision_preparation(function) if module.startswith("torchvision.") else {}
    return Session(model=model, name=name, config={"factory": name}, **preparation)


def _torchvision_preparation(function: str) -> dict[str, Any]:
    """Image size, normalisation and crop that torchvision publishes for a model of its own."""
    from torchvision.models import get_model_weights

    try:
        how: Any = get_model_weights(function).DEFAULT.transforms()  # type: ignore[attr-defined]
        side, resized = how.crop_size[0], how.resize_size[0]
        return {
            "size": (len(how.mean), side, side),
            "mean": tuple(how.mean),
            "std": tuple(how.std),
            "crop_pct": min(1.0, side / resized),
            "interpolation": "bilinear" if how.interpolation.value == "bilinear" else "bicubic",
        }
    except (ValueError, AttributeError, TypeError, IndexError):
        return {}  # not a classifier with published weights


def _from_module(model: nn.Module) -> Session:
    """A model that the caller built; what timm's description says of its images holds."""
    name = type(model).__name__
    check_weights(model, name)
    about: Any = getattr(model, "pretrained_cfg", None) or {}
    return Session(
        model=model,
        name=name,
        config={"module": f"{type(model).__module__}.{type(model).__qualname__}"},
        size=about.get("input_size"),
        mean=about.get("mean"),
        std=about.get("std"),
        interpolation=about.get("interpolation"),
    )
