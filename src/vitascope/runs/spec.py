"""One training of a grid, and what is read off its finished runs. Nothing here needs torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from vitascope.atomic import file_name
from vitascope.record import plain
from vitascope.training import Recipe, recipe


def changed_recipe(base: str | Recipe, epochs: int | None, changes: Mapping[str, Any]) -> Recipe:
    """A recipe, or the one of this name, with other epochs and fields.

    With other epochs the warm-up keeps its share of the training, unless it is changed as well, and
    there are as many as that, however few the images.

    >>> changed_recipe("deit", 30, {}).warmup_epochs
    0.5
    """
    start = recipe(base) if isinstance(base, str) else base
    changes = dict(changes)
    if epochs is not None:
        changes.setdefault("warmup_epochs", start.warmup_epochs * epochs / start.epochs)
        changes.setdefault("least_steps", None)
        changes["epochs"] = epochs
    return start.override(**changes)


def _hashed(values: Mapping[str, Any]) -> str:
    text = json.dumps(plain(dict(values)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training apart from its seed; equal ones share their runs."""

    model: str
    model_args: Mapping[str, Any] = field(default_factory=dict)
    data: str
    image_size: int | None = None
    validation: float | None = None  # share of the training images that replaces the test images
    fold: tuple[int, ...] | None = None  # or this fold (from 0) of so many; in which draw of them
    recipe: str | Recipe
    start: Literal["", "pretrained", "random"] = ""  # the source's weights, or its network alone
    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the recipe
    teacher: "str | Training | None" = None  # timm's name, or another training
    subset_per_seed: bool = True  # a subset is drawn anew with each seed

    @property
    def source_of_weights(self) -> str:
        """The pretrained weights whose preprocessing the images have; empty without such."""
        return self.model if self.start else ""

    @cached_property
    def full_recipe(self) -> Recipe:
        """The recipe with its epochs and changes."""
        changes = dict(self.changes)
        if self.teacher is not None:
            changes.setdefault("distillation", "hard")
        return changed_recipe(self.recipe, self.epochs, changes)

    @cached_property
    def key(self) -> str:
        """A short name of everything above: trainings that do the same have the same.

        >>> made = Training(model="vit_micro", data="digits", recipe="laptop")
        >>> made.key.startswith("vit_micro-")
        True
        >>> made.key == made.but(changes={"subset.fraction": 1.0}).key
        True
        """
        teacher = self.teacher.key if isinstance(self.teacher, Training) else self.teacher
        names = ("model", "model_args", "data", "image_size", "validation", "subset_per_seed")
        values = {name: getattr(self, name) for name in names}
        values |= {"teacher": teacher, "recipe": self.full_recipe.to_dict()}
        if self.fold is not None:
            values["fold"] = self.fold
        if self.start:
            values["start"] = self.start
        return f"{file_name(self.model)[-80:]}-{_hashed(values)}"

    def but(self, **changes: Any) -> "Training":
        """Return a copy with other fields; ``changes`` and ``model_args`` are merged."""
        for name in ("changes", "model_args"):
            if name in changes:
                changes[name] = {**getattr(self, name), **changes[name]}
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A measurement of a finished run: its final line, its curves, or an instrument's record."""

    name: str = "final"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the instrument, as in `inspect`

    @property
    def key(self) -> str:
        """The name of its file in the run's folder."""
        return f"{self.name}-{_hashed(self.options)}" if self.options else self.name


FINAL = Reading()
