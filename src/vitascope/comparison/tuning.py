"""The learning rate that suits each model, by validation images, at equal cost.

One recipe's learning rate may suit one model and not another, which would bias the comparison. Each
model is trained with a quarter, a half, once and twice the recipe's rate on the most images, with
the first seed and a quarter of the epochs, so that tuning a model costs as much as one of its runs.
The rate with the highest accuracy on the validation images is taken, of equal ones the one with the
lower loss. Test images are not used. With folds, the first fold plays the validation images:
an image that helped to choose a rate is tested there too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitascope.comparison.question import Comparison
from vitascope.record import Record
from vitascope.runs.cache import folder_of
from vitascope.runs.executor import Wanted
from vitascope.runs.spec import Training
from vitascope.training import load_run

FACTORS = (0.25, 0.5, 1.0, 2.0)  # of the recipe's learning rate
SHARE = 0.25  # of the epochs


@dataclass(frozen=True)
class Tried:
    """One learning rate of one model."""

    model: str
    lr: float
    top1: float  # percent, on validation images
    nll: float


def tuning_trainings(question: Comparison) -> dict[tuple[str, float], Training]:
    """Return the short trainings by model and learning rate."""
    plain = replace(question, rates={})
    recipe, most = question.recipe, max(question.fractions)
    epochs = max(1, round(SHARE * recipe.epochs))
    warmup = recipe.warmup_epochs * epochs / recipe.epochs
    short = {"epochs": epochs, "warmup_epochs": warmup}
    return {
        (model, factor * recipe.lr): plain.training(model, most, lr=factor * recipe.lr, **short)
        for model in question.models
        for factor in FACTORS
    }


def tuning_runs(question: Comparison) -> list[Wanted]:
    """Return all short runs."""
    return [(training, (), question.seeds[0]) for training in tuning_trainings(question).values()]


def tried(question: Comparison, out: Path) -> list[Tried]:
    """Return the results of the finished short runs."""
    results = []
    for (model, lr), training in tuning_trainings(question).items():
        final = load_run(folder_of(training, question.seeds[0], out)).final
        results.append(Tried(model, lr, 100 * final["top1"], final["test_nll"]))
    return results


def best_rates(results: Sequence[Tried]) -> dict[str, float]:
    """The learning rate of each model.

    >>> best_rates([Tried("a", 0.1, 90.0, 0.5), Tried("a", 0.2, 90.0, 0.4), Tried("a", 1, 80, 0)])
    {'a': 0.2}
    """
    best: dict[str, Tried] = {}
    for each in results:
        held = best.get(each.model)
        if held is None or (each.top1, -each.nll) > (held.top1, -held.nll):
            best[each.model] = each
    return {model: each.lr for model, each in best.items()}


def tuning_record(question: Comparison, out: Path) -> Record:
    """All that was tried, and the rates that were taken; saved as ``out/tuning.json``."""
    results = tried(question, out)
    values: Mapping[str, Any] = {
        "tried": [vars(each) for each in results],
        "rates": best_rates(results),
        "epochs": max(1, round(SHARE * question.recipe.epochs)),
        "images": "the first fold" if question.folds else "validation",
    }
    record = Record(
        kind="tuning", values=dict(values), config=question.config, seed=question.seeds[0]
    )
    record.save(out / "tuning")
    return record
