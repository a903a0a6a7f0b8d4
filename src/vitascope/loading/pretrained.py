"""Pretrained weights from anywhere, with a new head for other classes, in their own preprocessing.

======================== =====================================================================
``NAME`` ``timm:NAME``   timm's weights, from the hub or its cache
``hf-hub:`` ``local-dir:``  as timm takes them; ``hf-hub:NAME@REVISION`` too
``NAME@FILE``            a model of ours or timm's with the weights of a file: safetensors, or a
                         pickle that holds tensors alone
a run's folder           its network and final weights
``hf:NAME``              a Hugging Face classifier
``package.module:function``  what the user's own function returns
======================== =====================================================================

The head is new unless it is asked for (``keep_head``), or the source is a run on classes of the
same names. Its seed is its own: the source may have begun at the same one. Position embeddings are
resampled by timm's loader where the image size is another. All other weights must be there.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from vitascope.data import Dataset, load
from vitascope.errors import UserError, reason
from vitascope.loading.hugging_face import PREFIX, hub_config, new_head
from vitascope.loading.opening import BEGINNING, is_named, open_session, rebuilt, split_file
from vitascope.models import create_model
from vitascope.models.weights import check_weights, read_state
from vitascope.training import load_run
from vitascope.training.run_folder.run import run_folder

HEAD = 0x68656164  # "head": its seed is drawn from the run's and this


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images are prepared for a model."""

    size: tuple[int, int, int]  # (C, H, W)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop_pct: float

    def __str__(self) -> str:
        """In words.

        >>> print(
        ...     Preprocessing(
        ...         size=(3, 8, 8), mean=(0.5,), std=(0.25,), interpolation="bicubic", crop_pct=0.9
        ...     )
        ... )
        3 x 8 x 8, mean 0.5, std 0.25, bicubic, crop 0.9
        """
        mean, std = (" ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        size = " x ".join(map(str, self.size))
        return f"{size}, mean {mean}, std {std}, {self.interpolation}, crop {self.crop_pct:g}"


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model with its weights, and what is known of them."""

    text: str  # as it was asked for
    model: nn.Module
    config: Mapping[str, Any] | None  # with which `rebuilt` makes the network; None: nobody can
    preprocessing: Preprocessing
    source: str  # where the weights came from
    num_loaded: int  # tensors
    new: tuple[str, ...]  # parameters that are not the source's
    resampled: bool  # position embeddings
    classes: tuple[str, ...] | None = None  # of the source's head, where their names are known
    head: str = "its head is kept"  # what became of it, in words
    license: str | None = None

    @property
    def line(self) -> str:
        """Everything in one line."""
        more = ", position embeddings resampled" if self.resampled else ""
        return (
            f"{self.text}: {self.preprocessing}; {self.num_loaded} tensors from {self.source}"
            f"{more}; {self.head}"
        )

    def for_classes(
        self, classes: Sequence[str], *, keep_head: bool = False, seed: int = 0
    ) -> "Pretrained":
        """With the source's head, or a new one for these classes; the model is changed in place.

        Args:
            classes: Names of the classes to tell apart.
            keep_head: Keep the head, which must have as many outputs, and a run's the same names.
            seed: From which the new head's own is drawn.

        Raises:
            UserError: If the head that is to be kept is for other classes.
        """
        wanted, same = tuple(classes), self.classes == tuple(classes)
        count = getattr(self.model, "num_classes", None)
        if keep_head and self.classes is not None and not same:
            raise UserError(
                f"--keep-head: {self.text} knows {', '.join(self.classes[:10])}; the images have "
                f"{', '.join(wanted[:10])}"
            )
        if keep_head and count not in (None, len(wanted)):
            raise UserError(
                f"--keep-head: {self.text} has {count} outputs, the images {len(wanted)} classes"
            )
        own = same and Path(self.text).is_dir()  # a run that was trained on these classes
        if keep_head or own:
            why = "the classes have the same names" if own else "as asked"
            return replace(self, head=f"its head is kept ({why})")
        reset = getattr(self.model, "reset_classifier", None)
        if reset is None and self.config is not None:
            reset = partial(new_head, self.model)
        if reset is None:
            raise UserError(
                f"{self.text} has no reset_classifier, so it cannot be given a head for "
                f"{len(wanted)} classes; give a model of timm's, or a run"
            )
        before = dict(self.model.named_parameters())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(head_seed(seed))
            reset(len(wanted))
        new = tuple(n for n, p in self.model.named_parameters() if before.get(n) is not p)
        return replace(
            self,
            config=None if self.config is None else {**self.config, "num_classes": len(wanted)},
            classes=wanted,
            new=new,
            num_loaded=self.num_loaded - sum(name in before for name in new),
            head=f"new head for {len(wanted)} classes ({', '.join(new)})",
        )

    def emptied(self, seed: int) -> "Pretrained":
        """The same network in the same preprocessing, with random weights."""
        assert self.config is not None
        torch.manual_seed(seed)
        return replace(
            self,
            model=rebuilt(self.config),
            source="nowhere",
            num_loaded=0,
            resampled=False,
            head="random weights",
        )

    @cached_property
    def weights_key(self) -> str:
        """A hash of every weight but the new ones, for what is computed with them."""
        found = hashlib.sha256(str(self.preprocessing).encode())
        for name, value in sorted(self.model.state_dict().items()):
            if name not in self.new:
                array = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
                found.update(f"{name} {tuple(value.shape)}".encode())
                found.update(array.tobytes())
        return found.hexdigest()[:16]


def open_pretrained(
    text: str, *, image_size: int | None = None, drop_path: float = 0.0, **arguments: Any
) -> Pretrained:
    """The model that ``text`` names, with pretrained weights and the source's head.

    Args:
        text: See the top of this file.
        image_size: Side of the images; the model's own when left out.
        drop_path: Rate of stochastic depth, for models that have it.
        arguments: More of the model.

    Raises:
        UserError: If there is no such model, its weights cannot be had or do not fit.
    """
    if Path(text).is_dir():
        text = str(run_folder(text))
    name, file = split_file(text)
    wanted = {**arguments, **({"drop_path_rate": drop_path} if drop_path else {})}
    if Path(text).is_dir():
        found = _from_run(Path(text), image_size, wanted)
    elif file is not None:
        found = _from_file(name, file, image_size, wanted)
    elif is_named(text):
        found = _from_name(text, image_size, wanted)
    else:
        found = _from_elsewhere(text, image_size)
    check_weights(found.model, text)
    return found


def images_for(source: str, found: Pretrained | Preprocessing, **more: Any) -> Dataset:
    """Images as a model takes them: its size, crop, interpolation, mean and std.

    ``more`` are further arguments of :func:`vitascope.data.load`.
    """
    how = found if isinstance(found, Preprocessing) else found.preprocessing
    images = load(
        source,
        image_size=how.size[-1],
        in_chans=how.size[0],
        crop_pct=how.crop_pct,
        interpolation=how.interpolation,
        **more,
    )
    return replace(images, mean=how.mean, std=how.std)


def head_seed(seed: int) -> int:
    """A seed for a new head, other than that of the run.

    >>> head_seed(0) == head_seed(0), head_seed(0) == head_seed(1)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, HEAD]).generate_state(1)[0])


def _known(model: nn.Module) -> dict[str, Any]:
    """What timm's description of a model says."""
    return dict(getattr(model, "pretrained_cfg", None) or {})


def preprocessing_of(model: nn.Module, image_size: int | None) -> Preprocessing:
    """What timm's description of a model says of its images."""
    from timm.data import resolve_data_config

    how = resolve_data_config({}, pretrained_cfg=_known(model) or {"crop_pct": 1.0})
    size = tuple(how["input_size"])
    smooth = how["interpolation"] if how["interpolation"] == "bilinear" else "bicubic"
    return Preprocessing(
        size=(size[0], image_size or size[1], image_size or size[2]),
        mean=tuple(how["mean"]),
        std=tuple(how["std"]),
        interpolation=smooth,
        crop_pct=float(how["crop_pct"]),
    )


def _built(name: str, image_size: int | None, **wanted: Any) -> tuple[nn.Module, dict[str, Any]]:
    """A model built for an image size, if it takes that as an argument; and its arguments."""
    sized = {"img_size": image_size} if image_size else {}
    attempts = [{**wanted, **sized}]
    if sized:
        attempts.append(wanted)  # many networks take any size, and no argument for it
    if "drop_path_rate" in wanted:
        plain = {k: v for k, v in wanted.items() if k != "drop_path_rate"}
        attempts += [{**plain, **sized}, plain]
    for number, kwargs in enumerate(attempts, start=1):
        try:
            return create_model(name, **kwargs), kwargs
        except UserError as error:
            if number == len(attempts) or "takes no such argument" not in str(error):
                raise
        except (TypeError, ValueError, RuntimeError, KeyError, AssertionError, OSError) as error:
            raise UserError(f"cannot open {name}: {reason(error)}") from None
    raise AssertionError("unreachable")


def _from_name(text: str, image_size: int | None, wanted: Mapping[str, Any]) -> Pretrained:
    """A model of timm's or ours with the weights that timm knows."""
    model, kwargs = _built(text, image_size, pretrained=True, **wanted)
    known = _known(model)
    architecture = text
    if text.startswith(("hf-hub:", "local-dir:")):  # rebuilt without the hub or the folder
        architecture = f"timm:{known['architecture']}"
        kwargs = {**_arguments(text), **kwargs}
    config = {**kwargs, "name": architecture}
    config.pop("pretrained", None)
    source = known.get("hf_hub_id") or known.get("url") or text
    return Pretrained(
        text=text,
        model=model,
        config=config,
        preprocessing=preprocessing_of(model, image_size),
        source=str(source),
        num_loaded=len(model.state_dict()),
        new=(),
        resampled=_resampled(model, image_size),
        license=known.get("license"),
    )


def _arguments(text: str) -> dict[str, Any]:
    """The arguments that a model's ``config.json`` has for it."""
    from timm.models import load_model_config_from_hf
    from timm.models._hub import load_model_config_from_path

    from vitascope.hub_access import hub_download

    kind, _, place = text.partition(":")
    if kind == "local-dir":
        found = load_model_config_from_path(place)
    else:
        with hub_download(text):
            found = load_model_config_from_hf(place)
    return dict(found[2] or {})


def _resampled(model: nn.Module, image_size: int | None) -> bool:
    """Whether a table of positions was made for another image size."""
    own = _known(model).get("input_size")
    tables = any("pos_embed" in n or "relative_position" in n for n in model.state_dict())
    return bool(image_size and own and tables and tuple(own)[-1] != image_size)


def _from_file(
    name: str, file: Path, image_size: int | None, wanted: Mapping[str, Any]
) -> Pretrained:
    """A model by name with the weights of a file."""
    state, said = read_state(file), _said(file)
    made = dict(said.get("model") or {})
    if made.pop("name", None) == name:  # an export of ours says how its network is made
        wanted = {k: v for k, v in made.items() if k not in BEGINNING} | {**wanted}
    model, kwargs = _loaded(name, state, image_size, str(file), **wanted)
    how = replace(preprocessing_of(model, image_size), **said.get("how", {}))
    if image_size:
        how = replace(how, size=(how.size[0], image_size, image_size))
    return Pretrained(
        text=f"{name}@{file}",
        classes=said.get("classes"),
        model=model,
        config={**kwargs, "name": name},
        preprocessing=how,
        source=str(file),
        num_loaded=len(model.state_dict()),
        new=(),
        resampled=_resampled(model, image_size),
    )


def _said(file: Path) -> dict[str, Any]:
    """What the header of a file that ``vitascope export`` wrote says: model and preprocessing."""
    if file.suffix != ".safetensors":
        return {}
    with safe_open(file, framework="pt") as opened:
        text = (opened.metadata() or {}).get("vitascope")
    if text is None:
        return {}
    try:
        about = json.loads(text)
        how = {name: tuple(about[name]) for name in ("size", "mean", "std")}
        how |= {name: about[name] for name in ("interpolation", "crop_pct")}
        return {"model": about["model"], "how": how, "classes": tuple(about["classes"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: its metadata is damaged: {reason(error)}") from None


def _loaded(
    name: str, state: Mapping[str, Tensor], image_size: int | None, where: str, **wanted: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """A model with these weights, its head as wide as theirs, positions resampled by timm."""
    wanted = {k: v for k, v in wanted.items() if k != "num_classes"}
    if image_size:
        wanted.pop("img_size", None)
    plain, kwargs = _built(name, image_size, **wanted)
    heads = _known(plain).get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    first = f"{heads[0]}.weight" if heads else ""
    count = int(state[first].shape[0]) if first in state else 0
    own = plain.state_dict()
    state = {n: v for n, v in state.items() if n in own or not n.endswith("pos_proj.bias")}
    overlay = {"state_dict": dict(state), "num_classes": count, "custom_load": False}
    try:
        model = create_model(
            name, **kwargs, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=count
        )
    except UserError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} does not fit {name}: {reason(error)}") from None
    known: Any = model.pretrained_cfg
    known.pop("state_dict", None)  # all its tensors again
    return model, {**kwargs, "num_classes": count}


def _from_run(folder: Path, image_size: int | None, wanted: Mapping[str, Any]) -> Pretrained:
    """The network of a finished run."""
    run = load_run(folder)
    session = open_session(str(folder), device="cpu")
    assert session.size is not None  # a run has them
    assert session.mean is not None
    assert session.std is not None
    config = {**run.config["model"], **wanted}
    config = {k: v for k, v in config.items() if k not in BEGINNING}
    side = image_size or session.size[-1]
    state = read_state(run.weights)
    if side != session.size[-1] and "img_size" in config:
        config["img_size"] = (side, side)
        arguments = {k: v for k, v in config.items() if k not in ("name", "num_classes")}
        model, _ = _loaded(str(config["name"]), state, None, str(folder), **arguments)
    else:
        model = rebuilt(config)
        model.load_state_dict(state)
    how = Preprocessing(
        size=(session.size[0], side, side),
        mean=tuple(session.mean),
        std=tuple(session.std),
        interpolation=session.interpolation or "bicubic",
        crop_pct=session.crop_pct or 1.0,
    )
    return Pretrained(
        text=str(folder),
        model=model,
        config=config,
        preprocessing=how,
        source=str(run.weights),
        num_loaded=len(state),
        new=(),
        classes=run.classes,
        resampled=side != session.size[-1] and "img_size" in config,
    )


def _from_elsewhere(text: str, image_size: int | None) -> Pretrained:
    """A Hugging Face classifier, or what a factory returns.

    The latter is not fine-tuned: a run would have to call the function to be opened, and opening a
    run calls no code that its files name.
    """
    session = open_session(text, device="cpu")
    how = preprocessing_of(session.model, image_size)
    channels, height, width = session.input_size()
    how = replace(
        how,
        size=(channels, image_size or height, image_size or width),
        mean=session.mean or how.mean,
        std=session.std or how.std,
        crop_pct=session.crop_pct or how.crop_pct,
        interpolation=session.interpolation or how.interpolation,
    )
    plain = text.startswith(PREFIX) and "suffix" not in session.config
    return Pretrained(
        text=text,
        model=session.model,
        config=hub_config(session.model, text) if plain else None,
        preprocessing=how,
        source=text,
        num_loaded=len(session.model.state_dict()),
        new=(),
        resampled=False,
        classes=session.classes,
    )
