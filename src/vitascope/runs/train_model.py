"""One training from the words of a command: which model, which images, which recipe."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from vitascope.data import Dataset, load
from vitascope.data.held_out import held_out, one_fold
from vitascope.errors import UserError, printable, reason, unknown
from vitascope.inspection.while_training import Draw, picture_heads
from vitascope.loading.hugging_face import PREFIX
from vitascope.loading.model import OpenedModel
from vitascope.loading.opening import (
    build,
    open_pretrained,
    open_run,
    split_file,
    with_random_weights,
)
from vitascope.models import create_model
from vitascope.record import plain
from vitascope.runs.spec import changed_recipe
from vitascope.settings import Seed, check_value, pairs
from vitascope.training import RECIPES, Observer, Recipe, Run, Teacher, train
from vitascope.training.observe import require_pictures
from vitascope.training.trainer.loop import chosen_images
from vitascope.training.trainer.optimizer import BACKBONE


def recipe_from(name: str, epochs: int | None, changes: Sequence[str], **fields: Any) -> Recipe:
    """A named recipe with what the command line changes.

    >>> recipe_from("deit", 30, ["lr=1e-3"]).lr
    0.001
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    given = pairs(changes, "--set")
    if "name" in given:
        raise UserError(f"--set cannot rename a recipe; choose one of {', '.join(RECIPES)}")
    if epochs is not None and "epochs" in given:
        raise UserError("--epochs and --set epochs=... both name the epochs; give one")
    overrides = given | {k: v for k, v in fields.items() if v is not None}
    return changed_recipe(name, epochs, overrides)


def on_so_many(plan: Recipe, count: int) -> Recipe:
    """The recipe on so many images: at least four steps per epoch, and the recipe's least steps."""
    batch = min(plan.batch_size, max(2, count // 4 // 2 * 2))
    return plan.override(batch_size=batch).for_images(count)


def fold_from(text: str) -> tuple[int, ...]:
    """A fold as ``WHICH/COUNT``, counted from 1, or ``WHICH/COUNT/DRAW``.

    >>> fold_from("2/5"), fold_from("2/5/1")
    ((1, 5), (1, 5, 1))
    """
    numbers = [int(word) if word.isdecimal() else -1 for word in text.split("/")]
    if len(numbers) not in (2, 3) or min(numbers) < 0 or not 0 < numbers[0] <= numbers[1]:
        raise UserError(f"--fold takes WHICH/COUNT or WHICH/COUNT/DRAW, such as 2/5, not {text!r}")
    return numbers[0] - 1, *numbers[1:]


def fold_text(fold: tuple[int, ...]) -> str:
    """The fold as :func:`fold_from` reads it.

    >>> fold_text((1, 5, 3))
    '2/5/3'
    """
    return "/".join(map(str, (fold[0] + 1, *fold[1:])))


def teacher_from(name: str) -> Teacher:
    """A finished run, or a timm model with its weights."""
    if Path(name).is_dir():
        opened = open_run(name)
        stated = opened.preprocessing
        return Teacher(
            opened.model,
            mean=stated.mean,
            std=stated.std,
            image_size=opened.input_size()[1:],
            classes=opened.classes,
        )
    return Teacher.of_timm(create_model(name, pretrained=True))


@lru_cache(maxsize=3)
def load_images(
    source: str,
    image_size: int | None,
    validation: float | None = None,
    fold: tuple[int, ...] | None = None,
    start: str = "",
    *,
    split: bool = True,
) -> Dataset:
    """Images, loaded once in each process (``load_images.cache_clear()`` forgets them).

    Args:
        source: Where from.
        image_size: Side to resize them to.
        validation: This share of each class's training images takes the test images' place.
        fold: This fold of so many of them does; where the source has no test images, of all.
        start: Pretrained weights whose preprocessing is used, as :func:`open_pretrained` has it.
        split: Split test images off where the source has none; otherwise there are none.
    """
    if fold is not None:
        return one_fold(load_images(source, image_size, start=start, split=False), fold)
    if validation is not None:
        return held_out(load_images(source, image_size, start=start), validation)
    more: dict[str, Any] = {} if split else {"test_fraction": 0.0}
    if start:
        return open_pretrained(start, image_size=image_size).preprocessing.load(source, **more)
    return load(source, image_size=image_size, **more)


def train_model(
    model: str,
    dataset: Dataset,
    plan: Recipe,
    out: Path,
    *,
    seed: int,
    model_args: Mapping[str, Any],
    start: OpenedModel | None = None,
    keep_head: bool = False,
    emptied: bool = False,
    teacher: str | None = None,
    draw: Draw | None = None,
    features: Path | None = None,
    **how: Any,
) -> Run:
    """Build a model for these images and train it.

    Args:
        model: Its name.
        dataset: The images.
        plan: The complete recipe.
        out: The run's folder.
        seed: Of the first weights and the training.
        model_args: Arguments of the model.
        start: Pretrained weights to begin with, and the network they are of.
        keep_head: With their head.
        emptied: Only their network and preprocessing, with random weights.
        teacher: A run's folder, or a timm model's name.
        features: Folder of frozen features that a probe has kept, for a head that is fitted.
        draw: Draws the attention heads while the model trains, for the trackers.
        **how: See :func:`vitascope.training.train`.
    """
    how["teacher"] = teacher_from(teacher) if teacher else None
    if start is None:
        if BACKBONE in plan.freeze:
            raise UserError(
                f"recipe {plan.name} keeps the backbone as it is: start from pretrained weights, "
                "with --pretrained, NAME@FILE or a run's folder"
            )
        built = build(model, dataset, seed=seed, drop_path=plan.drop_path, **model_args)
        how["observers"] = _pictured(built.model, dataset, plan, draw, quiet=how.get("quiet"))
        config = dict(built.config)
        return train(built.model, dataset, plan, out, seed=seed, model_config=config, **how)
    if start.architecture is None:
        raise UserError(
            f"{model} cannot be built again from a run's config; give a model of timm's, NAME@FILE "
            "or a run's folder"
        )
    opened = start.for_classes(dataset.classes, keep_head=keep_head, seed=seed)
    if emptied:
        opened = with_random_weights(opened, seed)
    elif plan.head == "fitted":
        from vitascope.inspection.probe import kept_features  # scikit-learn takes a second
        from vitascope.runs.fitted_head import fit_head

        images = chosen_images(dataset, plan)[0]
        known = None if features is None else kept_features(start, images, features)
        opened = fit_head(opened, images, known)
    if not how.get("quiet"):
        print(printable(opened.line), file=sys.stderr)
    config = plain({**(opened.architecture or {}), "origin": opened.line})
    how["observers"] = _pictured(opened.model, dataset, plan, draw, quiet=how.get("quiet"))
    return train(opened.model, dataset, plan, out, seed=seed, model_config=config, **how)


def _pictured(
    model: nn.Module, dataset: Dataset, plan: Recipe, draw: Draw | None, *, quiet: bool | None
) -> list[Observer]:
    """The observer that draws, if wanted; a model without attention is trained without it."""
    if draw is None or not _first_process():
        return []
    try:
        return [picture_heads(model, dataset, plan.total_epochs, draw)]
    except UserError as error:
        if not quiet:
            print(f"note: no pictures: {reason(error)}", file=sys.stderr)
        return []


def _first_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def pretrained_source(model: str, pretrained: bool, weights: Path | None) -> str | None:
    """Return what :func:`open_pretrained` has to open; None for a new model.

    >>> (
    ...     pretrained_source("vit_micro", False, Path("a.pt")),
    ...     pretrained_source("vit_micro", False, None),
    ... )
    ('vit_micro@a.pt', None)
    """
    brings = Path(model).is_dir() or model.startswith(PREFIX) or split_file(model)[1] is not None
    if sum((brings, pretrained, weights is not None)) > 1:
        raise UserError(
            f"{model} with more than one source of weights; give NAME@FILE, hf:NAME, a run's "
            "folder, --pretrained or --weights"
        )
    if weights is not None:
        return f"{model}@{weights}"
    return model if brings or pretrained else None


def train_once(
    *,
    model: str,
    data: str,
    out: Path,
    recipe: str,
    epochs: int | None = None,
    fraction: float | None = None,
    validation: float | None = None,
    fold: str | None = None,
    changes: Sequence[str] = (),
    model_args: Sequence[str] = (),
    image_size: int | None = None,
    pretrained: bool = False,
    weights: Path | None = None,
    keep_head: bool = False,
    distillation: str = "none",
    seed: int = 0,
    **how: Any,
) -> Run | None:
    """Train from the words of a command; None in the helping processes of a distributed run.

    ``how`` are further arguments of :func:`train_model`.
    """
    check_value(seed, Seed, "seed")
    if how.get("draw") is not None:
        require_pictures(how.get("trackers"))
    fields: dict[str, Any] = {"subset.fraction": fraction}
    if distillation != "none":
        fields["distillation"] = distillation
    plan = recipe_from(recipe, epochs, changes, **fields)
    given = pairs(model_args, "--model-args")
    if validation is not None and fold is not None:
        raise UserError("--validation and --fold both name images to measure on; give one")
    source = pretrained_source(model, pretrained, weights)
    if source is None and keep_head:
        raise UserError("--keep-head is for pretrained weights; give --pretrained or --weights too")
    load_images.cache_clear()  # they may have changed since
    which = None if fold is None else fold_from(fold)
    start = None
    if source is None:
        dataset = load_images(data, image_size, validation, which)
    else:
        start = open_pretrained(source, image_size=image_size, drop_path=plan.drop_path, **given)
        more = {} if which is None else {"test_fraction": 0.0}
        dataset = start.preprocessing.load(data, **more)
        dataset = dataset if which is None else one_fold(dataset, which)
        dataset = dataset if validation is None else held_out(dataset, validation)
    count = len(chosen_images(dataset, plan)[0])
    if count < plan.batch_size and "batch_size" not in pairs(changes, "--set"):
        full, plan = plan.batch_size, on_so_many(plan, count)
        if not how.get("quiet") and _first_process():
            short = f"{count} training images do not fill a batch of {full}"
            print(f"note: {short}: batches of {plan.batch_size}", file=sys.stderr)
    else:
        plan = plan.for_images(count)
    how |= {"start": start, "keep_head": keep_head}
    done = train_model(model, dataset, plan, out, seed=seed, model_args=given, **how)
    return done if _first_process() else None
