"""The page of all recipe settings, docs/api/recipes.md, from the dataclasses.

The build of the site makes it. Names and values come from the code. A setting without a description
here, or a description without a setting, is an error.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from vitascope.training import recipe
from vitascope.training.recipes.config import Recipe

SHOWN = ("laptop", "deit", "finetune")
DESCRIPTIONS = {
    "How far and how fast": {
        "epochs": "Passes over the training images.",
        "batch_size": "Images per update, over all processes and accumulated parts.",
        "optimizer": "Any optimizer of timm.",
        "lr": "Learning rate at the top of the schedule.",
        "lr_batch": "The learning rate is given for this batch size and scaled to the one used; "
        "null: it is used as it is.",
        "weight_decay": "Decay of weights; biases, norms and position tables have none.",
        "schedule": "Shape of the learning rate after the warm-up: cosine, linear or constant.",
        "schedule_by": "The learning rate changes once per epoch or at every step.",
        "warmup_epochs": "Epochs in which the learning rate rises.",
        "warmup_lr": "Learning rate at the start of the warm-up.",
        "min_lr": "Learning rate at the end.",
        "clip_grad": "Largest norm of the gradient; null: it is not clipped.",
        "layer_decay": "Learning rate of each layer as a multiple of that of the next one.",
        "travel": "Parameters (wildcards) that use `travel_lr`: the gates and positions of GPSA.",
        "travel_lr": "Their learning rate as a multiple of that of the others.",
        "scale_epochs": "Multiply the epochs by 1 / fraction, so that a small subset is seen as "
        "often as the whole set.",
        "least_steps": "Raise the epochs until there are this many updates.",
        "betas": "Decay of Adam's two averages; timm's when left out.",
        "eps": "Adam's smallest denominator; timm's when left out.",
        "momentum": "Momentum of SGD and its kin; timm's 0.9 when left out.",
    },
    "Images": {
        "subset.fraction": "Share of each class to train on, at least one image.",
        "subset.first_classes": "Keep only the first classes by name.",
        "subset.order": "Draw the subset at random, or take the first files by name.",
        "subset.seed": "Seed of the draw.",
    },
    "Augmentation": {
        "augmentation.crop": "none, pad (shifted crops) or resized (random resized crops).",
        "augmentation.pad": "Pixels of padding for shifted crops; null: an eighth of the side from "
        "16 pixels on.",
        "augmentation.scale": "Area of a resized crop, as a share of the image.",
        "augmentation.ratio": "Ratio of width to height of a resized crop.",
        "augmentation.hflip": "Chance of a mirror; null: 0.5 unless mirrors change the class.",
        "augmentation.interpolation": "bilinear or bicubic.",
        "augmentation.rand_augment": "RandAugment, as timm writes it.",
        "augmentation.color_jitter": "Strength of changes of brightness, contrast and saturation.",
        "augmentation.random_erasing": "Chance that a box of the image is replaced by noise.",
        "augmentation.erasing_area": "Area of that box.",
        "augmentation.mixup": "Alpha of mixup; 0 is off.",
        "augmentation.cutmix": "Alpha of CutMix; 0 is off.",
        "augmentation.mixup_prob": "Chance that a batch is mixed at all.",
        "augmentation.mixup_switch": "Chance of CutMix where both are on.",
        "augmentation.label_smoothing": "Share of the label spread over all classes.",
        "augmentation.repeats": "Copies of an image in a batch.",
    },
    "Regularisation and transfer": {
        "drop_path": "Chance that a residual branch is dropped.",
        "ema": "Decay of the running average of the weights; null: none is kept.",
        "sam": "Radius of sharpness-aware minimisation; null: plain updates.",
        "freeze": "Parameters (wildcards) that are not trained; also `backbone` and `batchnorm`.",
        "head": "Start the head at random, or fit it to the frozen features.",
        "distillation": "none, hard or soft: learn from a teacher (`--teacher`).",
        "distillation_alpha": "Share of the teacher's term in the loss.",
        "distillation_temperature": "Temperature of soft distillation.",
    },
    "How it is carried out": {
        "accumulation": "Parts into which a batch is split; less memory, the same update.",
        "mixed_precision": "no, bf16 or fp16.",
        "eval_every": "Epochs between two measurements.",
        "eval_batch": "Images per batch when measuring.",
        "checkpoint_epochs": "Epochs between two checkpoints.",
        "checkpoint_steps": "Steps between two checkpoints inside an epoch; null: none.",
        "keep_epochs": "Epochs whose weights are kept, for instruments that look at training.",
        "keep_best": "Also keep the weights with the best accuracy.",
        "finish": "The result is the last epoch, or the best: the one with the lowest loss on the "
        "images that are measured, which should be validation images.",
        "explode": "Stop when the loss is this many times that of a uniform guess.",
    },
}


def settings(target: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted name, with its value.

    >>> dict(settings(recipe("laptop")))["schedule"]
    'cosine'
    """
    for field in fields(target):
        value = getattr(target, field.name)
        if is_dataclass(value):
            yield from settings(value, f"{prefix}{field.name}.")
        elif field.name != "name":
            yield prefix + field.name, value


def shown(value: Any) -> str:
    """A value as it is written after `--set`.

    >>> [shown(value) for value in (None, True, 1e-3, (0.08, 1.0), "cosine")]
    ['null', 'true', '0.001', '[0.08, 1]', 'cosine']
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def page() -> str:
    """The page with every setting, what it does, and its value in some recipes."""
    values = [dict(settings(recipe(name))) for name in SHOWN]
    described = {name for section in DESCRIPTIONS.values() for name in section}
    unequal = described ^ set(values[0])
    if unequal:
        raise ValueError(f"scripts/make_recipes.py and {Recipe.__name__} differ: {unequal}")
    parts = [
        "# Recipe settings",
        "A recipe is everything that decides a training apart from model, images and seed. "
        "`--recipe NAME` chooses one ([which](../training.md)), and `--set` changes single "
        "settings: `--set lr=1e-3 augmentation.mixup=0.2 ema=null`. In Python it is "
        '`vitascope.training.recipe("laptop", lr=1e-3)`.',
    ]
    for title, section in DESCRIPTIONS.items():
        head = " | ".join(f"`{name}`" for name in SHOWN)
        parts.append(f"## {title}")
        lines = [f"| setting | what it does | {head} |", "|---|---|" + "---|" * len(SHOWN)]
        for name, words in section.items():
            first, *others = (shown(each[name]) for each in values)
            long = len(first) > 12
            cells = " | ".join([first, *("same" if long and o == first else o for o in others)])
            lines.append(f"| `{name}` | {words} | {cells} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
