"""Plan of a comparison: matched widths, expected time, time budget and tuning of learning rates.

The plan is kept as ``plan.json`` in the folder, so that the same command resumes it, though timed
steps differ a little every time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from vitascope import record
from vitascope.comparison.budget import Fitted, fit, in_words, seconds_from
from vitascope.comparison.matching import matched_widths
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.question import Comparison
from vitascope.comparison.rounds import MOST, most_seeds
from vitascope.comparison.tuning import FACTORS, SHARE
from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.processes import makespan
from vitascope.record import Record, plain
from vitascope.runs.cost import (
    ImageCounts,
    Speed,
    seconds_of_epoch,
    seconds_outside_epochs,
    time_steps,
)
from vitascope.runs.spec import Training, changed_recipe
from vitascope.training import Recipe

SLACK = 1.25  # a busy machine takes longer than the timed steps say, and the page comes last


def _several(count: int, noun: str) -> str:
    """A number with its noun.

    >>> _several(1, "run"), _several(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """The trainings of a comparison, and how long they are expected to take."""

    question: Comparison
    tune: bool
    seconds: float  # expected
    speeds: Mapping[str, Speed]
    counts: ImageCounts
    left_out: tuple[str, ...]  # to end within the budget
    budget: float | None
    epochs: int  # that were asked for
    most: int  # seeds of a model, where seeds are added until it is decided; else those asked for

    def seconds_of_epoch(self, training: Training) -> float:
        """Return the time of one epoch, for the progress and the time left."""
        plan = training.full_recipe
        return seconds_of_epoch(plan, self.counts, self.speeds[training.model])

    def seconds_outside_epochs(self, training: Training) -> float:
        """Return the time of a run that is not spent in its epochs."""
        plan, readings = training.full_recipe, self.question.readings
        return seconds_outside_epochs(readings, plan, self.counts, self.speeds[training.model])

    @property
    def lines(self) -> list[str]:
        """Describe what will be trained."""
        asked = self.question
        parts = [
            f"{_several(len(asked.models), 'model')} ({', '.join(asked.models)})",
            _several(len(asked.fractions), "fraction"),
            _several(len(asked.seeds), "seed"),
            *([_several(asked.folds, "fold")] if asked.folds else []),
        ]
        runs, epochs = len(asked.runs()), asked.recipe.epochs
        summary = f"{' x '.join(parts)}: {_several(runs, 'run')} of {_several(epochs, 'epoch')}"
        if self.tune:
            summary += f", after {len(asked.models) * len(FACTORS)} short ones to tune"
        summary += f", about {in_words(self.seconds)}"
        rounds = []
        if self.most > len(asked.seeds) and len(asked.models) > 1:
            rounds = [
                f"Then seeds are added to the models still in question, to about {self.most} at "
                "most, until the answer is decided."
            ]
        return [summary, *self.notes, *rounds]

    @property
    def notes(self) -> list[str]:
        """Say what was left out, for the record and the page."""
        if not self.left_out or self.budget is None:
            return []
        return [f"Left out to end within {in_words(self.budget)}: {'; '.join(self.left_out)}."]


def duration_of(
    question: Comparison, counts: ImageCounts, speeds: Mapping[str, Speed], processes: int
) -> float:
    """Return the seconds until the last run ends.

    Runs are handed to processes as these become free, the longest first.

    >>> from vitascope.comparison.question import comparison_of
    >>> options = CompareOptions(data="digits", models=("a",), fractions=(1.0,))
    >>> asked, speeds = comparison_of(options), {"a": Speed(0.001, 0.0)}
    >>> [round(duration_of(asked, ImageCounts(1000, 0), speeds, n)) for n in (1, 2, 3)]
    [96, 64, 32]
    """
    seconds = []
    for training, readings, _ in question.runs():
        plan, speed = training.full_recipe, speeds[training.model]
        epochs = plan.total_epochs * seconds_of_epoch(plan, counts, speed)
        seconds.append(epochs + seconds_outside_epochs(readings, plan, counts, speed))
    return makespan(sorted(seconds, reverse=True), processes)


def make_plan(
    asked: Comparison,
    options: CompareOptions,
    dataset: Dataset,
    recipes: Mapping[str, Recipe],
    out: Path,
    processes: int,
    began: float | None = None,
    at_side: Callable[[int], tuple[Dataset, Mapping[str, Recipe]]] | None = None,
) -> ComparisonPlan:
    """Decide what is trained.

    Args:
        asked: The question.
        options: Those of them that say the budget, tuning and matching.
        dataset: Images that a run trains on and is measured on.
        recipes: Of each model on the most images, for the timed steps.
        out: Folder of the comparison, which may hold a plan.
        processes: Runs at a time.
        began: When the comparison did, by ``perf_counter``: what it took so far, the timed steps
            among it, is off the budget.
        at_side: Gives the images and recipes with images of this side; None where they must not be
            made smaller.

    Raises:
        UserError: If the budget does not suffice, or widths cannot be matched.
    """
    began = perf_counter() if began is None else began
    budget = None if options.budget is None else seconds_from(options.budget)
    if options.match == "compute":
        asked = replace(asked, model_args=matched_widths(asked.models, dataset))
    config = _config(asked, options)
    saved = _kept(out, config)
    if saved is not None:
        return _from_record(saved, asked, budget)

    def timed(images: Dataset, recipes: Mapping[str, Recipe]) -> dict[str, Speed]:
        return {
            name: time_steps(name, images, recipes[name], **asked.model_args.get(name, {}))
            for name in asked.models
        }

    speeds, counts = timed(dataset, recipes), ImageCounts.of(dataset)

    def lasts(question: Comparison) -> float:
        return duration_of(question, counts, speeds, processes)

    def tuning(question: Comparison) -> float:
        short = changed_recipe(question.recipe, max(1, round(SHARE * question.recipe.epochs)), {})
        one = replace(question, recipe=short, fractions=(max(question.fractions),))
        return len(FACTORS) * lasts(replace(one, seeds=question.seeds[:1], folds=None, until=None))

    def all_of(question: Comparison) -> float:
        return lasts(question) + (tuning(question) if options.tune else 0.0)

    question, tune = asked, options.tune
    left_out: tuple[str, ...] = ()
    if budget is not None:

        def fitting(asked: Comparison) -> Fitted:
            spent = perf_counter() - began
            return fit(asked, budget, lambda question: spent + SLACK * all_of(question))

        full, sides = speeds, [] if at_side is None else smaller_sides(dataset.train.size)
        fitted, problem = None, None
        try:
            fitted = fitting(asked)
        except UserError as error:
            problem = error
        for side in sides:
            if fitted is not None and fitted.question.recipe.epochs == asked.recipe.epochs:
                break
            assert at_side is not None
            try:
                speeds = timed(*at_side(side))
                small = fitting(replace(asked, image_size=side))
            except UserError as error:  # no time, or a model that takes no such images
                problem, speeds = problem or error, full
                continue
            if fitted is not None and not _much_longer(small.question, fitted.question):
                speeds = full
                continue
            size_note = f"pixels: images are {side} on a side instead of {dataset.train.size[-1]}"
            fitted, full = replace(small, left_out=(size_note, *small.left_out)), speeds
        if fitted is None:
            assert problem is not None
            raise problem
        question, left_out, speeds = fitted.question, fitted.left_out, full
        spent = perf_counter() - began
        room = budget - spent - SLACK * lasts(question)
        tune = options.tune or (not left_out and SLACK * tuning(question) <= room)
    seconds = lasts(question) + (tuning(question) if tune else 0.0)
    most = len(question.seeds)
    if budget is not None:
        dearest = sorted(question.models, key=lambda name: -speeds[name].step)[:2]
        one = replace(question, models=tuple(dearest), seeds=question.seeds[:1], until=None)
        one = replace(one, reference=None)
        pair = lasts(replace(one, fractions=(max(question.fractions),)))
        most = most_seeds(most, budget - spent - seconds, pair)
    elif question.until:
        most = max(most, MOST)
    return ComparisonPlan(
        question=question,
        tune=tune and not question.rates,
        seconds=seconds,
        speeds=speeds,
        counts=counts,
        left_out=left_out,
        budget=budget,
        epochs=asked.recipe.epochs,
        most=most,
    )


def _much_longer(question: Comparison, other: Comparison) -> bool:
    """Return whether smaller images are worth it: a quarter more epochs."""
    return question.recipe.epochs >= 1.25 * other.recipe.epochs


def smaller_sides(size: Sequence[int]) -> list[int]:
    """Three quarters and half of the side, in multiples of 8 pixels, from 32 on.

    >>> smaller_sides((3, 64, 64)), smaller_sides((3, 32, 32)), smaller_sides((3, 224, 224))
    ([48, 32], [], [168, 112])
    """
    side = min(size[1:])
    sides = (int(share * side) // 8 * 8 for share in (0.75, 0.5))
    return [each for each in sides if 32 <= each < side]


def save_plan(plan: ComparisonPlan, asked: Comparison, options: CompareOptions, out: Path) -> None:
    """Keep the plan, so that the same command resumes it."""
    values = {
        "models": plan.question.models,
        "fractions": plan.question.fractions,
        "epochs": plan.question.recipe.epochs,
        "image_size": plan.question.image_size,
        "most": plan.most,
        "tune": plan.tune,
        "seconds": plan.seconds,
        "speeds": {name: asdict(speed) for name, speed in plan.speeds.items()},
        "counts": asdict(plan.counts),
        "left_out": plan.left_out,
    }
    asked = replace(asked, model_args=plan.question.model_args)
    config = _config(asked, options)
    Record(kind="plan", values=values, config=config).save(out / "plan")


def _config(asked: Comparison, options: CompareOptions) -> dict[str, Any]:
    """Return the options as the record of a plan keeps them."""
    plan = {"budget": options.budget, "tune": options.tune, "match": options.match}
    return dict(plain({**asked.config, **plan}))


def _kept(out: Path, config: Mapping[str, Any]) -> Record | None:
    """The plan of the same question in the same folder."""
    if not (out / "plan.json").exists():
        return None
    saved = record.load(out / "plan")
    return saved if saved.config == config else None


def _from_record(saved: Record, asked: Comparison, budget: float | None) -> ComparisonPlan:
    values = saved.values
    recipe = asked.recipe
    if values["epochs"] != recipe.epochs:
        recipe = changed_recipe(recipe, values["epochs"], {})
    question = replace(
        asked,
        models=tuple(values["models"]),
        fractions=tuple(values["fractions"]),
        recipe=recipe,
        image_size=values.get("image_size", asked.image_size),
    )
    return ComparisonPlan(
        question=question,
        tune=values["tune"],
        seconds=values["seconds"],
        speeds={name: Speed(**speed) for name, speed in values["speeds"].items()},
        counts=ImageCounts(**values["counts"]),
        left_out=tuple(values["left_out"]),
        budget=budget,
        epochs=asked.recipe.epochs,
        most=values.get("most", len(question.seeds)),
    )
