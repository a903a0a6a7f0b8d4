"""Train any classifier by a recipe into a run folder, and evaluate it.

Subpackages: `recipes`, `trainer`, `run_folder`. Imports `record`, `data` and `capture`.

    >>> from vitascope.training import recipe
    >>> recipe("laptop").optimizer
    'adamw'

Names are loaded when first used: recipes do not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitascope.training.evaluation import Evaluation, evaluate
    from vitascope.training.observe import Observer, at_epochs, every, keep_weights, log_spaced
    from vitascope.training.predictions import Predictions
    from vitascope.training.recipes.config import Recipe
    from vitascope.training.recipes.named import RECIPES, recipe
    from vitascope.training.run_folder.lock import lock_folder
    from vitascope.training.run_folder.run import Run, load_run
    from vitascope.training.trainer.distill import Teacher
    from vitascope.training.trainer.loop import check_trainable, train
    from vitascope.training.trainer.stop import Diverged

_HOME = {
    "Diverged": "trainer.stop",
    "Evaluation": "evaluation",
    "Observer": "observe",
    "Predictions": "predictions",
    "RECIPES": "recipes.named",
    "Recipe": "recipes.config",
    "Run": "run_folder.run",
    "Teacher": "trainer.distill",
    "lock_folder": "run_folder.lock",
    "at_epochs": "observe",
    "check_trainable": "trainer.loop",
    "evaluate": "evaluation",
    "every": "observe",
    "keep_weights": "observe",
    "load_run": "run_folder.run",
    "log_spaced": "observe",
    "recipe": "recipes.named",
    "train": "trainer.loop",
}

__all__ = [
    "RECIPES",
    "Diverged",
    "Evaluation",
    "Observer",
    "Predictions",
    "Recipe",
    "Run",
    "Teacher",
    "at_epochs",
    "check_trainable",
    "evaluate",
    "every",
    "keep_weights",
    "load_run",
    "lock_folder",
    "log_spaced",
    "recipe",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"vitascope.training.{_HOME[name]}"), name)
    raise AttributeError(f"module 'vitascope.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
