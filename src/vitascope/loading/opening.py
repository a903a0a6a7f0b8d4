"""Open any model, build a new one, or build again the one that a run's config describes.

A model is named as on the command line:

============================ =================================================================
``NAME`` ``timm:NAME``       one of ours or timm's: with random weights, or with timm's
                             pretrained ones, from the hub or its cache
``hf-hub:`` ``local-dir:``   as timm takes them; ``hf-hub:NAME@REVISION`` too
``NAME@FILE``                a model of ours or timm's with the weights of a file: safetensors,
                             or a pickle that holds tensors alone
a folder                     of a finished run, or of a comparison: the run it recommends
``hf:NAME``                  a Hugging Face model
``package.module:function``  what the user's own function returns
============================ =================================================================

All but a run take suffixes: ``vit_micro+lsa+cb``. For another image size, position embeddings are
resampled by timm's loader; all other weights must be there.
"""

import importlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from math import gcd
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from vitascope import capture
from vitascope.data import Dataset
from vitascope.errors import UserError, reason
from vitascope.layers.context_broadcasting.broadcasting import broadcast
from vitascope.loading.hugging_face import PREFIX, hub_config, open_classifier, rebuilt_classifier
from vitascope.loading.model import OpenedModel, Origin, Preprocessing
from vitascope.models import UnknownArgument, create_model
from vitascope.models.registry import OURS
from vitascope.models.suffix import read_name
from vitascope.models.weights import check_weights, in_order, load_weights, read_state
from vitascope.training import load_run
from vitascope.training.distributed import device_of
from vitascope.training.run_folder.run import run_folder

BEGINNING = ("pretrained", "weights", "origin")  # what a run's config says of its first weights
_REFUSALS = (  # what networks raise for arguments they do not take
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    AttributeError,
    AssertionError,
    OSError,
)


def is_named(text: str) -> bool:
    """Return whether ``text`` is the name of a model of ours or timm's."""
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


def open_model(
    text: str | nn.Module,
    *,
    pretrained: bool = False,
    weights: str | None = None,
    epoch: int | None = None,
    image_size: int | None = None,
    seed: int = 0,
    device: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    by_order: bool = False,
) -> OpenedModel:
    """Open the model that ``text`` names, in evaluation mode on its device.

    Args:
        text: See the top of this file. Or a model itself.
        pretrained: timm's weights for a model given by name.
        weights: File of weights to load into a model that has none of its own.
        epoch: Of a run: the weights it kept then.
        image_size: Side of the images that the network is built for, where it depends on them; a
            run keeps its own.
        seed: Of untrained weights.
        device: cpu, cuda, mps; a GPU if there is one when left out.
        arguments: More arguments of the network.
        by_order: The tensors of ``NAME@FILE`` have other names, and stand in the same order.

    Raises:
        UserError: If there is no such model, or an option does not go with it.
    """
    given, text = (None, text) if isinstance(text, str) else (text, type(text).__name__)
    if given is not None and (pretrained or epoch is not None or weights is not None):
        raise UserError(f"the {text} that was given has its weights; leave other weights out")
    if given is None and Path(text).is_dir():
        text = str(run_folder(text))
    is_run, named = Path(text).is_dir(), given is None and is_named(text)
    with_file = split_file(text)[1] is not None
    if with_file and (pretrained or weights is not None):
        raise UserError(f"{text} has weights of its own; leave --pretrained and --weights out")
    if epoch is not None and not is_run:
        raise UserError(f"--epoch is for the kept weights of a run; {text} is not a run's folder")
    if pretrained and not named:
        raise UserError(f"--pretrained is for a model given by name; {text} has weights of its own")
    if by_order and not with_file:
        raise UserError(f"only NAME@FILE can be matched by order, not {text}")
    target = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(seed)
    arguments = dict(arguments or {})
    if given is not None:
        opened = _from_module(given)
    elif is_run:
        opened = open_run(text, epoch)
    elif with_file:
        opened = _from_file(text, image_size, arguments, by_order)
    elif named:
        side = image_size if weights is None else None
        opened = _from_name(text, pretrained, side, seed, arguments)
    else:
        opened = _from_elsewhere(text)
    _check_arguments(opened.model, arguments)
    if weights is not None:
        load_weights(opened.model, weights)
        opened = replace(opened, random=False)
    opened.model.to(target).eval()
    return opened


def open_pretrained(
    text: str, *, image_size: int | None = None, drop_path: float = 0.0, **arguments: Any
) -> OpenedModel:
    """Open a model with trained weights, its complete preprocessing and its head, on the CPU.

    Args:
        text: See the top of this file; a plain name stands for timm's pretrained weights.
        image_size: Side of the images; the model's own when left out.
        drop_path: Rate of stochastic depth, for models that have it.
        arguments: More of the model.

    Raises:
        UserError: If there is no such model, its weights cannot be had or do not fit.
    """
    if drop_path:
        arguments["drop_path_rate"] = drop_path
    if Path(text).is_dir():
        opened = open_run(run_folder(text), image_size=image_size, arguments=arguments)
        opened = replace(opened, name=text)
    else:
        own = split_file(text)[1] is not None or not is_named(text)
        opened = open_model(
            text, pretrained=not own, image_size=image_size, device="cpu", arguments=arguments
        )
        opened = replace(opened, preprocessing=_completed(opened, image_size))
    check_weights(opened.model, text)
    return opened


def open_run(
    folder: str | Path,
    epoch: int | None = None,
    *,
    image_size: int | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> OpenedModel:
    """Open the model of a finished run, with its final weights or those kept at ``epoch``.

    Args:
        folder: The run's.
        epoch: At which the run kept its weights.
        image_size: Side of the images; the run's own when left out.
        arguments: More arguments of the network.

    Raises:
        UserError: If it is no finished run, or its config makes no network.
    """
    run = load_run(folder)
    name = run.config["model"].get("name")
    if name is None:
        raise UserError(f"{folder} was trained on a model that was handed in; build it yourself")
    data = run.config["data"]
    parts = ("name", "size", "mean", "std", "crop_pct", "interpolation")
    missing = [part for part in parts if data.get(part) is None]
    if missing:
        raise UserError(f"{folder}: its config.yaml does not say the {', '.join(missing)} of data")
    if not len(data["mean"]) == len(data["std"]) == data["size"][0]:
        raise UserError(f"{folder}: its config.yaml needs a data.mean and data.std a channel")
    file, epochs = run.weights, run.folder.glob("weights/epoch-*.safetensors")
    if epoch is not None:
        file = run.folder / f"weights/epoch-{epoch:04d}.safetensors"
        if not file.exists():
            kept_epochs = ", ".join(str(int(path.stem.split("-")[1])) for path in sorted(epochs))
            raise UserError(
                f"{folder} kept no weights of epoch {epoch}; there are: {kept_epochs or 'none'}"
            )
    config = {k: v for k, v in run.config["model"].items() if k not in BEGINNING}
    config |= arguments or {}
    channels, height, width = data["size"]
    resampled = image_size not in (None, width) and "img_size" in config
    if resampled:
        config["img_size"] = (image_size, image_size)
        more = {k: v for k, v in config.items() if k not in ("name", "num_classes")}
        model, _ = _with_state(name, read_state(file), None, str(folder), more)
    else:
        model = load_weights(_rebuilt_for(folder, config), file)
    preprocessing = Preprocessing(
        size=(channels, image_size or height, image_size or width),
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        crop_pct=data["crop_pct"],
        interpolation=data["interpolation"],
    )
    return OpenedModel(
        name=name,
        model=model,
        config={"run": str(folder), "epoch": epoch, "model": run.config["model"]},
        preprocessing=preprocessing,
        classes=run.classes,
        run=run,
        architecture=config,
        origin=Origin(source=str(file), num_tensors=len(model.state_dict()), resampled=resampled),
    )


def _rebuilt_for(folder: str | Path, config: Mapping[str, Any]) -> nn.Module:
    """The network of a run's config, or a line about why there is none."""
    try:
        return rebuilt(config)
    except UserError:
        raise
    except Exception as error:  # the model's own words for arguments that cannot be
        raise UserError(
            f"{folder}: its config.yaml makes no model {config['name']!r}: {reason(error)}"
        ) from None


def rebuilt(config: Mapping[str, Any]) -> nn.Module:
    """Build the network that a run's ``config.yaml`` describes, with random weights."""
    config = {k: v for k, v in config.items() if k not in BEGINNING}
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    name = config.pop("name")
    if name.startswith(PREFIX):
        return rebuilt_classifier(**config)
    return create_model(name, **config)


def with_random_weights(opened: OpenedModel, seed: int) -> OpenedModel:
    """Return the same network and preprocessing with random weights."""
    assert opened.architecture is not None
    torch.manual_seed(seed)
    return replace(
        opened,
        model=rebuilt(opened.architecture),
        origin=Origin(source="nowhere", num_tensors=0),
        head="random weights",
    )


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
) -> OpenedModel:
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
    arguments: dict[str, Any] = {"num_classes": len(dataset.classes), "in_chans": channels}
    arguments |= {"img_size": (height, width), "drop_path_rate": drop_path}
    _, defaults = OURS.get(read_name(name).base, (None, {}))
    for part, least in (("patch_size", 2), ("stem_stride", 1)):
        if {"img_size", part} <= set(defaults):
            cells = defaults["img_size"] // defaults[part]
            arguments[part] = fitting_patch(height, width, cells, least)
    if read_name(name).patch_size is not None:
        arguments["patch_size"] = read_name(name).patch_size
    arguments |= kwargs
    without_size = {k: v for k, v in arguments.items() if k != "img_size"}
    model, arguments = _first_that_builds(name, [arguments, without_size], seed)
    _check_arguments(model, kwargs)
    blank = torch.zeros(1, *dataset.train.size)
    capture.try_image(model, blank, name, "give --image-size, or another model")
    config = {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}
    return OpenedModel(
        name=name,
        model=model,
        config={"name": name, **config},
        preprocessing=Preprocessing(size=dataset.train.size),
        random=not arguments.get("pretrained"),
    )


def _check_arguments(model: nn.Module, given: dict[str, Any]) -> None:
    """Refuse what a constructor takes without a word: a switch that is a text, no layers at all.

    Raises:
        UserError: Naming the argument.
    """
    parameters = signature(type(model)).parameters
    for name, value in given.items():
        usual = parameters[name].default if name in parameters else None
        if isinstance(usual, bool) and not isinstance(value, bool):
            raise UserError(f"the model's {name} is true or false, not {value!r:.80}")
        if name in _SIZES and isinstance(value, int) and value < 1:
            raise UserError(f"the model's {name} must be at least 1, not {value}")


_SIZES = ("depth", "embed_dim", "num_heads", "patch_size", "width")


def _first_that_builds(
    name: str, attempts: list[dict[str, Any]], seed: int
) -> tuple[nn.Module, dict[str, Any]]:
    """The model made with the first arguments that it knows, and these.

    Many networks take images of any size, and have no argument for it.

    Raises:
        UserError: If it refuses them, with the reason in one line.
    """
    *others, last = attempts
    for arguments in others:
        with suppress(UnknownArgument):
            return _built(name, arguments, seed), arguments
    return _built(name, last, seed), last


def _built(name: str, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    """The model, or a line about why it cannot be built with these arguments."""
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Initializing zero-element tensors", UserWarning)
            return create_model(name, **arguments)
    except UserError as error:
        if name in str(error):
            raise
        problem = str(error)
    except UserWarning:
        problem = "a layer would have no weights; give sizes of at least 1"
    except _REFUSALS as error:
        problem = reason(error)
    raise UserError(f"cannot build {name}: {problem}")


def _attempts(image_size: int | None, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Arguments of a model, with and without those that many networks do not take."""
    sized = [{"img_size": image_size}, {}] if image_size else [{}]
    optional = {k: v for k, v in arguments.items() if k == "drop_path_rate"}
    others = {k: v for k, v in arguments.items() if k not in optional}
    rates = [optional, {}] if optional else [{}]
    return [{**others, **rate, **size} for rate in rates for size in sized]


def _description(model: nn.Module) -> dict[str, Any]:
    """Return timm's description of a pretrained model."""
    return dict(getattr(model, "pretrained_cfg", None) or {})


def _stated(model: nn.Module) -> Preprocessing:
    """The preprocessing that timm's description of a model states."""
    description = _description(model)
    return Preprocessing(
        size=description.get("input_size"),
        mean=description.get("mean"),
        std=description.get("std"),
        crop_pct=description.get("crop_pct"),
        interpolation="bilinear" if description.get("interpolation") == "bilinear" else "bicubic",
    )


def _preprocessing_of(model: nn.Module, image_size: int | None = None) -> Preprocessing:
    """The preprocessing that timm's description of a model states, completed by timm's defaults."""
    from timm.data import resolve_data_config

    how = resolve_data_config({}, pretrained_cfg=_description(model) or {"crop_pct": 1.0})
    channels, height, width = how["input_size"]
    return Preprocessing(
        size=(channels, image_size or height, image_size or width),
        mean=tuple(how["mean"]),
        std=tuple(how["std"]),
        interpolation=how["interpolation"] if how["interpolation"] == "bilinear" else "bicubic",
        crop_pct=float(how["crop_pct"]),
    )


def _completed(opened: OpenedModel, image_size: int | None) -> Preprocessing:
    """The preprocessing of a model, with timm's defaults for what is not known."""
    stated, default = opened.preprocessing, _preprocessing_of(opened.model, image_size)
    channels, height, width = opened.input_size()
    return Preprocessing(
        size=(channels, image_size or height, image_size or width),
        mean=stated.mean or default.mean,
        std=stated.std or default.std,
        interpolation=stated.interpolation or default.interpolation,
        crop_pct=stated.crop_pct or default.crop_pct,
    )


def _from_name(
    text: str,
    pretrained: bool,
    image_size: int | None,
    seed: int,
    arguments: Mapping[str, Any],
) -> OpenedModel:
    """A model of ours or timm's, built for another image size if it can be."""
    given = {"pretrained": True, **arguments} if pretrained else dict(arguments)
    model, made_with = _first_that_builds(text, _attempts(image_size, given), seed)
    description = _description(model)
    config = {"name": text, **made_with}
    if pretrained:
        architecture = {k: v for k, v in config.items() if k != "pretrained"}
        if text.startswith(("hf-hub:", "local-dir:")):  # rebuilt without the hub or the folder
            named = {"name": f"timm:{description['architecture']}"}
            architecture = {**_arguments(text), **architecture, **named}
        origin = Origin(
            source=str(description.get("hf_hub_id") or description.get("url") or text),
            num_tensors=len(model.state_dict()),
            resampled=_resampled(model, image_size),
            license=description.get("license"),
        )
        return OpenedModel(
            name=text,
            model=model,
            config=config,
            preprocessing=_preprocessing_of(model, image_size),
            architecture=architecture,
            origin=origin,
        )
    stated = replace(_stated(model), crop_pct=None)  # crops are of trained weights
    if "img_size" in made_with:
        stated = replace(stated, size=(3, made_with["img_size"], made_with["img_size"]))
    return OpenedModel(name=text, model=model, config=config, preprocessing=stated, random=True)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments that the ``config.json`` of a model has for it."""
    from timm.models import load_model_config_from_hf
    from timm.models._hub import load_model_config_from_path

    from vitascope.hub_access import hub_download

    kind, _, location = text.partition(":")
    if kind == "local-dir":
        config = load_model_config_from_path(location)
    else:
        with hub_download(text):
            config = load_model_config_from_hf(location)
    return dict(config[2] or {})


def _resampled(model: nn.Module, image_size: int | None) -> bool:
    """Return whether a table of positions was made for another image size."""
    own = _description(model).get("input_size")
    tables = any("pos_embed" in n or "relative_position" in n for n in model.state_dict())
    return bool(image_size and own and tables and tuple(own)[-1] != image_size)


def _from_file(
    text: str, image_size: int | None, arguments: Mapping[str, Any], by_order: bool
) -> OpenedModel:
    """``NAME@FILE``: a model by name with the weights, and the head, of a file."""
    name, file = split_file(text)
    assert file is not None
    state, header = read_state(file), _header(file)
    if by_order:
        state = in_order(state, create_model(name, **arguments), file)
    stated = dict(header.get("model") or {})
    if stated.pop("name", None) == name:  # an export of ours says how its network is made
        arguments = {k: v for k, v in stated.items() if k not in BEGINNING} | {**arguments}
    model, made_with = _with_state(name, state, image_size, str(file), arguments)
    preprocessing = replace(_preprocessing_of(model, image_size), **header.get("preprocessing", {}))
    if image_size:
        channels = preprocessing.size[0] if preprocessing.size else 3
        preprocessing = replace(preprocessing, size=(channels, image_size, image_size))
    return OpenedModel(
        name=text,
        model=model,
        config={"name": text},
        preprocessing=preprocessing,
        classes=header.get("classes") or None,
        architecture={**made_with, "name": name},
        origin=Origin(
            source=str(file),
            num_tensors=len(model.state_dict()),
            resampled=_resampled(model, image_size),
        ),
    )


def _header(file: Path) -> dict[str, Any]:
    """Model, preprocessing and classes in the header of a file that ``vitascope export`` wrote."""
    if file.suffix != ".safetensors":
        return {}
    with safe_open(file, framework="pt") as opened:
        text = (opened.metadata() or {}).get("vitascope")
    if text is None:
        return {}
    try:
        about = json.loads(text)
        preprocessing = {name: tuple(about[name]) for name in ("size", "mean", "std")}
        preprocessing |= {name: about[name] for name in ("interpolation", "crop_pct")}
        classes = tuple(about["classes"])
        return {"model": about["model"], "preprocessing": preprocessing, "classes": classes}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: its metadata is damaged: {reason(error)}") from None


def _with_state(
    name: str,
    state: Mapping[str, Tensor],
    image_size: int | None,
    where: str,
    arguments: Mapping[str, Any],
) -> tuple[nn.Module, dict[str, Any]]:
    """A model with these weights, its head as wide as theirs, positions resampled by timm."""
    arguments = {k: v for k, v in arguments.items() if k != "num_classes"}
    if image_size:
        arguments.pop("img_size", None)
    plain, made_with = _first_that_builds(name, _attempts(image_size, arguments), 0)
    heads = _description(plain).get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    first = f"{heads[0]}.weight" if heads else ""
    count = int(state[first].shape[0]) if first in state else 0
    own = plain.state_dict()
    state = {n: v for n, v in state.items() if n in own or not n.endswith("pos_proj.bias")}
    overlay = {"state_dict": dict(state), "num_classes": count, "custom_load": False}
    try:
        model = create_model(
            name, **made_with, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=count
        )
    except UserError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} does not fit {name}: {reason(error)}") from None
    description: Any = model.pretrained_cfg
    description.pop("state_dict", None)  # all its tensors again
    return model, {**made_with, "num_classes": count}


def _from_elsewhere(text: str) -> OpenedModel:
    """A Hugging Face model or what a Python factory returns, with a suffix if there is one.

    What a factory returns is not fine-tuned: a run would have to call the function to be opened,
    and opening a run calls no code that its files name.
    """
    base, changes, suffix, patch = read_name(text)
    if changes or patch:
        raise UserError(f"{text}: but for +cb, suffixes change a ViT of ours, not {base}")
    source, _, name = base.partition(":")
    opened = open_classifier(name) if source == "hf" else _from_factory(source, name)
    origin = Origin(source=text, num_tensors=len(opened.model.state_dict()))
    if suffix is not None:
        model, config = broadcast(opened.model, **suffix), {**opened.config, "suffix": suffix}
        return replace(opened, model=model, name=text, config=config, origin=origin)
    architecture = hub_config(opened.model, text) if source == "hf" else None
    return replace(opened, architecture=architecture, origin=origin)


def _from_factory(module: str, function: str) -> OpenedModel:
    """Call ``package.module:function``, the user's own code, and return its model."""
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"cannot open {module}:{function}: {error}; give a model's name, a run's folder, "
            "hf:NAME or package.module:function"
        ) from None
    name = f"{module}:{function}"
    try:
        model = factory()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise UserError(
            f"{name}() ended with {type(error).__name__}: {reason(error)}; it must return an "
            "nn.Module and take no arguments"
        ) from None
    if not isinstance(model, nn.Module):
        raise UserError(f"{name} returned {type(model).__name__}, not an nn.Module")
    check_weights(model, name)
    published = module.startswith("torchvision.")
    return OpenedModel(
        name=name,
        model=model,
        config={"factory": name},
        preprocessing=_torchvision_preprocessing(function) if published else Preprocessing(),
    )


def _torchvision_preprocessing(function: str) -> Preprocessing:
    """Image size, normalisation and crop that torchvision publishes for a model of its own."""
    from torchvision.models import get_model_weights

    try:
        how: Any = get_model_weights(function).DEFAULT.transforms()  # type: ignore[attr-defined]
        side, resized = how.crop_size[0], how.resize_size[0]
        return Preprocessing(
            size=(len(how.mean), side, side),
            mean=tuple(how.mean),
            std=tuple(how.std),
            crop_pct=min(1.0, side / resized),
            interpolation="bilinear" if how.interpolation.value == "bilinear" else "bicubic",
        )
    except (ValueError, AttributeError, TypeError, IndexError):
        return Preprocessing()  # not a classifier with published weights


def _from_module(model: nn.Module) -> OpenedModel:
    """A model that the caller built; what timm's description says of its images holds."""
    name, stated = type(model).__name__, _stated(model)
    check_weights(model, name)
    opened = OpenedModel(
        name=name,
        model=model,
        config={"module": f"{type(model).__module__}.{type(model).__qualname__}"},
        preprocessing=replace(stated, size=None),
    )
    if stated.size is not None:  # of the published weights: the model may be built for others
        side = getattr(getattr(model, "patch_embed", None), "img_size", None)
        height_width = side if isinstance(side, tuple) else stated.size[1:]
        size = (opened.channels or stated.size[0], *height_width)
        stated = replace(stated, size=size)
        if size[0] != len(stated.mean or ()):
            stated = replace(stated, mean=None, std=None)
    return replace(opened, preprocessing=stated)
