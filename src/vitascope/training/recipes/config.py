"""Everything that decides a training run, in one frozen object that can be written out.

A recipe is complete: two runs with the same recipe, model, images and seed are the same run.
:mod:`vitascope.training.recipes.named` holds the named ones; each is a function that returns one of
these, and single fields are changed with :meth:`Recipe.override`, nested ones by their dotted name:

    >>> from vitascope.training import recipe
    >>> small = recipe("laptop", epochs=3, **{"augmentation.mixup": "0.2"})
    >>> small.epochs, small.augmentation.mixup
    (3, 0.2)
"""

import math
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from vitascope.data import Augmentation, Subset
from vitascope.errors import UserError, unknown
from vitascope.settings import Count, Within, check

__all__ = ["Recipe"]

LONGEST = 1_000_000  # epochs
Epochs = Annotated[int, Within(1, LONGEST)]
Rate = Annotated[float, Within(0)]  # of learning, of decay
Share = Annotated[float, Within(0, 1)]
BelowOne = Annotated[float, Within(0, 1, open_high=True)]
Positive = Annotated[float, Within(0, open_low=True)]
Epoch = Annotated[int, Within(0)]
LayerDecay = Annotated[float, Within(0, 1, open_low=True)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A complete description of how to train, apart from model, images and seed."""

    name: str
    # how far and how fast
    epochs: Epochs
    batch_size: Count  # images per update, over all processes and accumulated parts
    optimizer: str  # any name timm.optim.list_optimizers() gives
    lr: Rate
    lr_batch: Count | None  # lr belongs to this batch size, used: lr * batch_size / lr_batch (DeiT)
    weight_decay: Rate  # not on vectors, nor on model.no_weight_decay()
    schedule: Literal["cosine", "linear", "constant"]
    schedule_by: Literal["epoch", "step"]  # DeiT changes the lr once an epoch
    warmup_epochs: Annotated[float, Within(0)]
    warmup_lr: Rate
    min_lr: Rate
    clip_grad: Positive | None  # largest norm of the whole gradient
    # what is seen
    augmentation: Augmentation
    subset: Subset
    scale_epochs: bool  # epochs (and warm-up) times 1/fraction: as many images seen as in full
    # regularisation
    drop_path: BelowOne  # for the caller who builds the model
    ema: BelowOne | None  # decay of the running average of the weights
    sam: Positive | None  # radius of sharpness-aware minimisation
    # wildcards of parameters that stay as they are; "backbone": all but the head's; "batchnorm":
    # of all batch norms, whose statistics stay too
    freeze: tuple[str, ...] = ()
    travel: tuple[str, ...] = ("*gating_param", "*pos_proj.weight")  # GPSA's gates and positions
    travel_lr: Rate = 1.0  # their lr, as a multiple of the others'
    layer_decay: LayerDecay = 1.0  # lr of each layer, as a multiple of that of the next one
    betas: tuple[BelowOne, BelowOne] | None = None  # of Adam and its kin; timm's when left out
    eps: Positive | None = None  # the same
    momentum: BelowOne | None = None  # of SGD and its kin; timm's 0.9 when left out
    # of pretrained weights: random, or fitted to the frozen features, for the caller who builds it
    head: Literal["random", "fitted"] = "random"
    least_steps: Count | None = None  # epochs are more where few images make fewer updates than so
    distillation: Literal["none", "hard", "soft"] = "none"
    distillation_alpha: Share = 0.5  # share of the teacher's term (hard DeiT: one half)
    distillation_temperature: Positive = 1.0  # soft only
    # how it is carried out
    accumulation: Count = 1  # parts the batch is split into; changes memory, not the update
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    eval_every: Count = 1  # epochs; the last one is always measured
    eval_batch: Count = 256
    checkpoint_epochs: Count = 1
    checkpoint_steps: Count | None = None  # also inside an epoch, every so many steps
    keep_epochs: tuple[Epoch, ...] = ()  # weights/epoch-0003.safetensors
    keep_best: bool = False  # best.safetensors, by top-1
    # which epoch is the result: the last, or the one with the lowest loss on the measured images
    finish: Literal["last", "best"] = "last"
    explode: Positive = 25.0  # stop when the loss is this many times that of a uniform guess

    def __post_init__(self) -> None:
        check(self, "recipe field {}".format)
        if not self.epochs * self.epoch_factor <= LONGEST:
            raise UserError(
                f"{self.epochs} epochs become {self.epochs * self.epoch_factor:.3g} at fraction "
                f"{self.subset.fraction:g}, more than {LONGEST}; take a larger fraction, fewer "
                "epochs or scale_epochs=false"
            )
        late = [epoch for epoch in self.keep_epochs if epoch > self.total_epochs]
        if late:
            raise UserError(
                f"recipe field keep_epochs names epochs {late}; the run has {self.total_epochs}"
            )
        if self.sam is not None and self.mixed_precision == "fp16":
            raise UserError("sam needs true gradients: use mixed_precision=bf16 or no, not fp16")

    @property
    def base_lr(self) -> float:
        """The lr at the top of the schedule, for this batch size."""
        return self.lr if self.lr_batch is None else self.lr * self.batch_size / self.lr_batch

    @property
    def epoch_factor(self) -> float:
        """1/f when the epochs are scaled to a fraction f of the images, else 1."""
        return 1 / (self.subset.fraction or 1.0) if self.scale_epochs else 1.0

    @property
    def total_epochs(self) -> int:
        """Epochs that are really run."""
        return max(1, round(self.epochs * self.epoch_factor))

    def for_images(self, count: int) -> "Recipe":
        """Return the recipe with at least ``least_steps`` updates on this number of images.

        >>> from vitascope.training import recipe
        >>> plan = recipe("finetune", epochs=5, batch_size=32, least_steps=200)
        >>> plan.for_images(320).epochs, plan.for_images(32_000).epochs
        (20, 5)
        """
        if self.least_steps is None:
            return self
        steps = max(1, count // self.batch_size)
        epochs = max(self.epochs, math.ceil(self.least_steps / steps))
        warmup = self.warmup_epochs * epochs / self.epochs  # its share stays
        return replace(self, epochs=epochs, warmup_epochs=warmup, least_steps=None)

    def override(self, /, **changes: Any) -> "Recipe":
        """This recipe with fields changed; text is read as YAML, ``None`` means off."""
        return _override(self, changes, "")

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for YAML or JSON.

        What later versions added is left out at its default, so that earlier runs stay the same.
        """
        values = _plain(asdict(self))
        return {k: v for k, v in values.items() if k not in _LATER or v != _LATER[k]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """The recipe that :meth:`to_dict` wrote; every field must be there, and no other."""
        return _from_dict(cls, {**_LATER, **values}, "")


_LATER: dict[str, Any] = {
    "layer_decay": 1.0,
    "head": "random",
    "least_steps": None,
    "betas": None,
    "eps": None,
    "momentum": None,
    "finish": "last",
}  # fields that runs of earlier versions do not have


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _override(target: Any, changes: Mapping[str, Any], prefix: str) -> Any:
    hints = get_type_hints(type(target))
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        head, _, inner_key = key.partition(".")
        inner = getattr(target, head, None)
        if head not in hints or (inner_key and not is_dataclass(inner)):
            raise unknown("recipe field", prefix + key, _names(target, prefix))
        if inner_key:
            nested.setdefault(head, {})[inner_key] = value
        elif is_dataclass(inner) and isinstance(value, Mapping):
            nested.setdefault(head, {}).update(value)
        else:
            direct[head] = coerce(value, hints[head], prefix + head)
    for head, inner_changes in nested.items():
        base = direct.get(head, getattr(target, head))
        direct[head] = _override(base, inner_changes, f"{prefix}{head}.")
    return replace(target, **direct)


def _names(target: Any, prefix: str) -> list[str]:
    names = []
    for field in fields(target):
        value = getattr(target, field.name)
        names.append(prefix + field.name)
        names += _names(value, f"{prefix}{field.name}.") if is_dataclass(value) else []
    return names


def _from_dict(cls: Any, values: Mapping[str, Any], prefix: str) -> Any:
    hints = get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise unknown("recipe field", prefix + key, [prefix + name for name in hints])
    missing = [prefix + name for name in hints if name not in values]
    if missing:
        raise UserError(f"the recipe lacks {', '.join(missing)}")
    return cls(**{key: coerce(value, hints[key], prefix + key) for key, value in values.items()})


def coerce(value: Any, hint: Any, name: str) -> Any:
    """``value`` as the type ``hint``; text is read as YAML first.

    >>> coerce("1e-3", float, "lr"), coerce("null", float | None, "ema")
    (0.001, None)
    """
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        if isinstance(value, Mapping):
            return _from_dict(hint, value, f"{name}.")
        if not isinstance(value, hint):  # type: ignore[arg-type]
            first = f"{name}.{fields(hint)[0].name}"
            raise UserError(f"recipe field {name} has fields of its own, {first} and others")
        return value
    if origin in (Union, types.UnionType):
        off = value is None or (isinstance(value, str) and value.lower() in ("none", "null", ""))
        if off and type(None) in args:
            return None
        choices = [arg for arg in args if arg is not type(None)]
        for choice in choices:
            try:
                return coerce(value, choice, name)
            except UserError:
                if choice is choices[-1]:
                    raise
    if origin is Literal:
        if value is False and "no" in args:  # YAML reads a bare no as false
            value = "no"
        if value not in args:
            given = f"{value!r:.80}"
            raise UserError(f"recipe field {name} must be one of {', '.join(args)}, not {given}")
        return value
    if hint is str:
        return str(value)
    try:
        read = yaml.safe_load(value) if isinstance(value, str) else value
        if origin is tuple:
            items = list(read) if isinstance(read, (list, tuple)) else [read]
            each = [args[0]] * len(items) if args[-1] is Ellipsis else args
            return tuple(coerce(item, kind, name) for item, kind in zip(items, each, strict=True))
        if hint is bool and isinstance(read, bool):
            return read
        if hint is int and not isinstance(read, bool) and int(read) == float(read):
            return int(read)
        if hint is float and not isinstance(read, bool):
            return float(read)
    except (TypeError, ValueError, OverflowError, RecursionError, yaml.YAMLError):
        pass
    kind = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise UserError(f"recipe field {name} takes {kind}, not {value!r:.80}")
