"""One training from the words of a command: which model, which images, which recipe."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vitascope.data import load
from vitascope.errors import UserError, unknown
from vitascope.models import create_model
from vitascope.models.weights import load_weights
from vitascope.settings import Seed, check_value
from vitascope.studies.session.models import build, reopen
from vitascope.train import RECIPES, Recipe, Run, Teacher, recipe, train

__all__ = ["pairs", "recipe_from", "train_once"]


def pairs(words: Sequence[str], what: str) -> dict[str, Any]:
    """``NAME=VALUE`` words as a mapping, values read as YAML.

    >>> pairs(["lr=1e-3", "ema=null", "global_pool=avg"], "--set")
    {'lr': '1e-3', 'ema': None, 'global_pool': 'avg'}
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"{what} takes NAME=VALUE, not {word!r}")
        try:
            found[name.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: the 99th of a month
            raise UserError(f"{what} {word!r}: the value cannot be read") from None
    return found


def recipe_from(name: str, epochs: int | None, changes: Sequence[str], **fields: Any) -> Recipe:
    """A named recipe with what the command line changes.

    With other epochs the warm-up keeps its share of the training, unless it is changed as well.

    >>> recipe_from("deit", 30, []).warmup_epochs
    0.5
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    given = pairs(changes, "--set")
    if "name" in given:
        raise UserError(f"--set cannot rename a recipe; choose one of {', '.join(RECIPES)}")
    overrides = given | {k: v for k, v in fields.items() if v is not None}
    if epochs is not None:
        base = recipe(name)
        overrides.setdefault("warmup_epochs", base.warmup_epochs * epochs / base.epochs)
        overrides["epochs"] = epochs
    return recipe(name, **overrides)


def teacher_from(name: str) -> Teacher:
    """A finished run, or a timm model with its weights."""
    if Path(name).is_dir():
        subject = reopen(name)
        size = subject.size[1:] if subject.size else None
        statistics = {"mean": subject.mean, "std": subject.std}
        return Teacher(subject.model, **statistics, image_size=size, classes=subject.classes)
    return Teacher.of_timm(create_model(name, pretrained=True))


def train_once(
    *,
    model: str,
    data: str,
    out: Path,
    recipe: str,
    epochs: int | None = None,
    fraction: float | None = None,
    changes: Sequence[str] = (),
    model_args: Sequence[str] = (),
    image_size: int | None = None,
    pretrained: bool = False,
    weights: Path | None = None,
    teacher: str | None = None,
    distillation: str = "none",
    seed: int = 0,
    **how: Any,
) -> Run | None:
    """Build everything and train; None in the helping processes of a distributed run."""
    check_value(seed, Seed, "seed")
    fields = {"subset.fraction": fraction}
    if distillation != "none":
        fields["distillation"] = distillation  # type: ignore[assignment]
    plan = recipe_from(recipe, epochs, changes, **fields)
    kwargs = pairs(model_args, "--model-args")
    if pretrained:
        kwargs["pretrained"] = True
    dataset = load(data, image_size=image_size)
    subject = build(model, dataset, seed=seed, drop_path=plan.drop_path, **kwargs)
    config = dict(subject.config)
    if weights is not None:
        load_weights(subject.model, weights)
        config["weights"] = str(weights)
    done = train(
        subject.model,
        dataset,
        plan,
        out,
        seed=seed,
        teacher=teacher_from(teacher) if teacher else None,
        model_config=config,
        **how,
    )
    return done if int(os.environ.get("RANK", "0")) == 0 else None
