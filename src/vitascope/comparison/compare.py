"""Train the models of a comparison on the user's images, and answer.

Every model is trained on every fraction of the images with every seed, by one recipe (Table 2 and
Fig. 2 of the ConViT paper, https://arxiv.org/abs/2103.10697, on the user's own images), and gates
and nonlocality are measured at log-spaced epochs. Validation images, held out of the training
images, choose the model; its accuracy and its leads are reported on the test images, which
play no part in the choice.
With folds every training image is held out once and chooses. Images of a group (a patient, a
video) are never on two sides, and count together in every interval. The answer is a record that a
page is made from.

`vitascope compare --data digits` takes about four minutes on two cores.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from vitascope import record
from vitascope.atomic import file_name
from vitascope.comparison.advice import advise
from vitascope.comparison.cautions import Trainings, typed_command
from vitascope.comparison.evidence import Evidence, crossings, tabulate
from vitascope.comparison.finished_runs import FinishedRuns, Key
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.planning import ComparisonPlan, make_plan, save_plan
from vitascope.comparison.question import LOOKS, SAME, Comparison, comparison_of
from vitascope.comparison.rounds import Rounds, in_rounds, most_seeds
from vitascope.comparison.tuning import tuning_record, tuning_runs
from vitascope.data import Dataset
from vitascope.data.held_out import check_groups
from vitascope.data.survey import surveyed
from vitascope.errors import UserError
from vitascope.explorer.explore import explore
from vitascope.loading.built_in_locality import built_in
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import build, open_run
from vitascope.loading.session import Session
from vitascope.processes import makespan
from vitascope.progress import Progress
from vitascope.record import Record, provenance
from vitascope.runs.cache import (
    command,
    folder_of,
    images_of,
    is_finished,
    reading_of,
    recipe_of,
    refuse_other,
)
from vitascope.runs.cost import START
from vitascope.runs.executor import Engine, Wanted, run_all
from vitascope.runs.train_model import load_images
from vitascope.settings import command_line, flat
from vitascope.training import Recipe, Run, check_trainable, load_run, lock_folder

PHOTOGRAPH = 64  # pixels a side from which images in colour are taken for photographs
FEW_IMAGES = 20_000  # photographs below which a pretrained network usually wins


def commands(options: CompareOptions, out: str | Path) -> list[str]:
    """One ``vitascope train`` per run, for any scheduler; `compare` then finds them finished."""
    return [
        command(training, seed, Path(out), images_of(training))
        for training, _, seed in comparison_of(options).runs()
    ]


def compare(options: CompareOptions, out: str | Path, engine: Engine | None = None) -> Record:
    """Train what is not trained yet, and answer. The record is ``out/compare.json``.

    Args:
        options: What to ask; more models, fractions or seeds may be asked of the same folder
            later.
        out: Folder for runs and record.
        engine: Where the runs are made; one after the other in this process when left out.

    Raises:
        UserError: For what cannot work, before anything is written; or if another process is at
            work in ``out``, or the folder holds another comparison.
    """
    out, started, made, asked_size = Path(out), perf_counter(), provenance(), options.image_size
    question, engine = comparison_of(options), engine or Engine()
    load_images.cache_clear()  # they may have changed since
    dataset = load_images(question.data, question.image_size, split=question.folds is None)
    _check_labels(dataset)
    _check_models(question)
    _check_groups(question, dataset)
    with Progress(quiet=engine.quiet) as progress:
        plan = _planned(question, options, out, engine.processes, started)
        with lock_folder(out):
            refuse_other(out / "compare", plan.question.config, SAME, "comparison")
            save_plan(plan, question, options, out)
            survey = surveyed(question.data)
            for line in (survey.short, *plan.lines):
                progress.tell(line)
            question, rounds = _tuned(plan, out, engine), None
            if question.image_size != asked_size:
                dataset = load_images(
                    question.data, question.image_size, split=question.folds is None
                )
            sizes = {
                name: _describe(name, dataset, **question.model_args.get(name, {}))
                for name in question.models
            }

            def wanted(question: Comparison) -> list[Wanted]:
                return question.runs(has_test=len(dataset.test) > 0)

            def make(runs: list[Wanted]) -> None:
                cost, overhead = plan.seconds_of_epoch, plan.seconds_outside_epochs
                run_all(runs, out, engine, cost=cost, overhead=overhead)

            make(wanted(question))
            time = _Time(plan, out, engine.processes, started, wanted(question))
            most = time.most(question)
            if most > len(question.seeds) and len(question.models) > 1:
                longer = question

                def evidence() -> Evidence:
                    return FinishedRuns(question=longer, dataset=dataset, out=out).chosen

                def add(models: tuple[str, ...]) -> bool:
                    nonlocal longer
                    there, more = wanted(longer), longer.with_another_seed(models)
                    runs = [run for run in wanted(more) if run not in there]
                    if not time.affordable(runs):
                        return False
                    longer = more
                    make(runs)
                    return True

                rounds = in_rounds(
                    evidence,
                    add,
                    {name: size["multiply_adds"] for name, size in sizes.items()},
                    first=len(question.seeds),
                    most=most,
                    margin=question.margin,
                    tell=progress.tell,
                )
                question = longer
            done = FinishedRuns(question=question, dataset=dataset, out=out)
            leak = survey.leak if survey.leaks else ""
            return _answer(done, plan, sizes, rounds, leak, made, perf_counter() - started)


def _planned(
    question: Comparison, options: CompareOptions, out: Path, processes: int, began: float
) -> ComparisonPlan:
    def at(asked: Comparison) -> tuple[Dataset, dict[str, Recipe]]:
        """The images of a run on most of them, and its recipes."""
        most = max(asked.fractions)
        trainings = {name: asked.training(name, most) for name in asked.models}
        images = images_of(trainings[asked.models[0]])
        seed = asked.seeds[0]
        return images, {name: recipe_of(each, seed, images) for name, each in trainings.items()}

    def at_side(side: int) -> tuple[Dataset, dict[str, Recipe]]:
        smaller = replace(question, image_size=side)
        _check_models(smaller)
        return at(smaller)

    images, recipes = at(question)
    return make_plan(question, options, images, recipes, out, processes, began, at_side=at_side)


class _Time:
    """The time that is left of a budget, by the runs that are finished."""

    def __init__(
        self,
        plan: ComparisonPlan,
        out: Path,
        processes: int,
        started: float,
        first: Sequence[Wanted],
    ) -> None:
        self.plan, self.out, self.processes, self.started = plan, out, processes, started
        self.made = list(first)

    def _expected(self, run: Wanted) -> float:
        training = run[0]
        epochs = training.full_recipe.total_epochs * self.plan.seconds_of_epoch(training)
        return epochs + self.plan.seconds_outside_epochs(training)

    def most(self, question: Comparison) -> int:
        """Return the seeds of a model that there is time for, by the pace of the first runs.

        It is kept in the plan, before anything is known of the results: all looks depend on it.
        """
        if self.plan.budget is None:
            return self.plan.most
        saved = record.load(self.out / "plan")
        if "most_by_pace" not in saved.values:
            took, pace = self._took_and_pace()
            longest = sorted((pace * self._expected(run) for run in self.made), reverse=True)
            left = self.plan.budget - max(perf_counter() - self.started, took / self.processes)
            pair = makespan(longest[:2], self.processes)
            most = most_seeds(len(question.seeds), left, pair)
            values = {**saved.values, "most_by_pace": most}
            saved = replace(saved, values=values)
            saved.save(self.out / "plan")
        return int(saved.values["most_by_pace"])

    def _took_and_pace(self) -> tuple[float, float]:
        """Return the seconds of the runs so far, and the same as a multiple of those expected."""
        took = sum(load_run(folder_of(run[0], run[2], self.out)).seconds for run in self.made)
        return took, took / sum(map(self._expected, self.made))

    def affordable(self, runs: list[Wanted]) -> bool:
        """Return whether the runs end within the budget; finished ones take no time."""
        left = [run for run in runs if not is_finished(*run, self.out)]
        took, pace = self._took_and_pace()
        self.made += runs
        if self.plan.budget is None or not left:
            return True
        used = max(perf_counter() - self.started, took / self.processes)
        seconds = sorted((pace * self._expected(run) for run in left), reverse=True)
        return used + makespan(seconds, self.processes) <= self.plan.budget


def _tuned(plan: ComparisonPlan, out: Path, engine: Engine) -> Comparison:
    """The question with the learning rates that suit its models, if they are to be tuned."""
    if not plan.tune:
        return plan.question
    run_all(
        tuning_runs(plan.question),
        out,
        engine,
        cost=plan.seconds_of_epoch,
        overhead=lambda training: START,
        what="tuning",
    )
    return replace(plan.question, rates=tuning_record(plan.question, out).values["rates"])


def _check_labels(dataset: Dataset) -> None:
    if dataset.label_sets is not None:
        raise UserError(
            f"{dataset.name} has several labels per image, and a comparison needs one; give one "
            "class folder or csv: label per image, or compare once per label (present or not)"
        )


def _check_groups(question: Comparison, dataset: Dataset) -> None:
    """Refuse parts that hold one group alone, before anything is trained."""
    check_groups(dataset.test, "test")
    if question.folds is None:
        images = images_of(question.training(question.models[0], max(question.fractions)))
        check_groups(images.test, "validation")


def _check_models(question: Comparison) -> None:
    """Refuse a model that cannot be trained on the images, before anything is made."""
    for (name, _), training in question.trainings().items():
        images = images_of(training)
        plan = recipe_of(training, question.seeds[0], images)
        subject = build(name, images, drop_path=plan.drop_path, **training.model_args)
        check_trainable(subject.model, images, plan)


def _describe(name: str, dataset: Dataset, **model_args: Any) -> dict[str, Any]:
    """Describe a model: its kind, built-in locality and cost."""
    subject = build(name, dataset, **model_args)
    parameters, multiply_adds = count(subject.model, dataset.train.size)
    kind, locality = built_in(subject.model)
    label = name.removeprefix("timm:")
    costs = {"parameters": parameters, "multiply_adds": multiply_adds}
    return {"name": name, "label": label, "kind": kind, "locality": locality, **costs}


def _answer(
    done: FinishedRuns,
    plan: ComparisonPlan,
    sizes: dict[str, dict[str, Any]],
    rounds: Rounds | None,
    leak: str,
    made: dict[str, Any],
    seconds: float,
) -> Record:
    question, dataset, runs = done.question, done.dataset, done.by_key
    reference = question.reference or question.models[0]
    for name, size in sizes.items():
        own = [run for key, run in runs.items() if key[0] == name]
        size["images_per_second"] = median(
            row["images_per_second"] for run in own for row in run.metrics
        )
        size["lr"] = own[0].recipe.lr
    curves = [_curve(key, run) for key, run in runs.items()]
    most = max(question.fractions)
    grown = [(curve["model"], curve["top1"]) for curve in curves if curve["fraction"] == most]
    advice = advise(
        done.chosen,
        done.reported,
        {name: size["multiply_adds"] for name, size in sizes.items()},
        reference,
        margin=question.margin,
        metric=question.metric,
        trainings=Trainings(
            curves=grown,
            never=done.never(),
            leak=leak,
            command=typed_command(made, f"{question.command} --out {shlex.quote(str(done.out))}"),
            out=str(done.out),
            epochs=question.recipe.epochs,
            asked_epochs=plan.epochs,
            num_classes=len(dataset.classes),
        ),
        notes=[
            *plan.notes,
            *_rates_in_words(question),
            *([] if rounds is None else rounds.notes()),
        ],
        recommendation=None if rounds is None else rounds.recommendation,
    )
    inside, arrays = _looks(question, done.out)
    arrays |= _correct(done.reported, "correct")
    wrong, pictures = done.mistakes(advice.model)
    arrays |= pictures
    if done.chosen is not done.reported:
        arrays |= _correct(done.chosen, "chosen")
    best = done.by_key[advice.model, most, question.seeds[0], 0]
    values = {
        "question": "Which model, with how much built-in locality, for these images?",
        "data": {
            "name": dataset.name,
            "num_train": len(dataset.train),
            "num_test": len(dataset.test),
            "num_classes": len(dataset.classes),
            "classes": list(dataset.classes),
            "size": list(dataset.train.size),
            "notes": list(dataset.notes),
        },
        "models": list(sizes.values()),
        "reference": reference,
        "fractions": sorted(question.fractions),
        "seeds": list(question.seeds),
        "more_seeds": {name: list(seeds) for name, seeds in question.more_seeds.items()},
        "rounds": None if rounds is None else rounds.values(),
        "metric": question.metric,
        "chosen_by": {
            "images": done.chosen.name,
            "count": done.chosen.num_images,
            "share": None if question.folds else question.validation,
            "folds": question.folds,
        },
        "reported_on": {"images": done.reported.name, "count": done.reported.num_images},
        "cells": [_cell(key, done) for key in runs],
        "table": [row.plain() for row in tabulate(done.reported, reference)],
        "table_chosen": [row.plain() for row in tabulate(done.chosen, reference)],
        "crossings": crossings(done.reported),
        "recommendation": {
            **asdict(advice),
            "run": str(best.folder),
            "train": question.for_all_images(advice.model),
            "next": next_steps(question, dataset, done.out),
        },
        "mistakes": wrong,
        "curves": curves,
        **inside,
        "correct": [
            {"model": model, "fraction": fraction, "array": f"correct/{model}/{fraction:g}"}
            for model, fraction in question.trainings()
        ],
        "subset_per_seed": question.subset_per_seed,
        "recipe": flat(question.recipe.to_dict()),
        "command": question.command,
        "expected_seconds": plan.seconds,
        "left_out": list(plan.left_out),
        "rates": dict(question.rates),
        "training_seconds": sum(run.seconds for run in runs.values()),
    }
    answer = Record(
        kind="compare",
        values=values,
        arrays=arrays,
        config=question.config,
        seed=question.seeds[0],
        seconds=seconds,
        made=made,
    )
    answer.save(done.out / "compare")
    _explore(done)
    return answer


def next_steps(question: Comparison, dataset: Dataset, out: Path) -> list[list[str]]:
    """Return what to do with the answer: in words, and the command."""
    folder, final = shlex.quote(str(out)), shlex.quote(str(out / "model"))
    steps = [
        ["Use it", f"vitascope predict {folder} IMAGES --out answers.csv"],
        [
            "Train it longer, on all training images",
            f"vitascope train --from {folder} --epochs {2 * question.recipe.epochs} --out {final}",
        ],
    ]
    channels, height, width = dataset.train.size
    if channels == 3 and min(height, width) >= PHOTOGRAPH and len(dataset.train) < FEW_IMAGES:
        options = [("--data", question.data), ("--out", f"{out}-pretrained")]
        steps.append(
            [
                f"Pretrained networks usually win on photographs when there are fewer than about "
                f"{FEW_IMAGES:,}. Compare them",
                command_line(["vitascope", "compare", "--pretrained"], options),
            ]
        )
    return steps


def _rates_in_words(question: Comparison) -> list[str]:
    if not question.rates:
        return []
    rates = ", ".join(f"{name} {rate:g}" for name, rate in question.rates.items())
    return [f"Learning rates were chosen for each model, not on test images: {rates}."]


def _correct(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    """Return which images every run got right, by model and fraction. (runs, images) uint8"""
    return {
        f"{name}/{model}/{fraction:g}": runs.astype(np.uint8)
        for fraction in {run.fraction for run in evidence.runs}
        for model, runs in evidence.correct(fraction).items()
    }


def _explore(done: FinishedRuns) -> None:
    """The attention of every patch in the run on most images, of each model that has any."""
    question = done.question
    fraction, seed = max(question.fractions), question.seeds[0]
    images = done.dataset if len(done.dataset.test) else None  # or the run's own fold
    for model in question.models:
        run = done.by_key[model, fraction, seed, 0]
        about = f"{run.config['data']['train_images']:,} images, seed {seed}"
        try:
            explored = explore(Session(opened=open_run(run.folder), given=images), about=about)
        except UserError:
            continue  # no attention on a grid
        explored.save(done.out / "explorer" / file_name(model))


def _cell(key: Key, done: FinishedRuns) -> dict[str, Any]:
    model, fraction, seed, fold = key
    run = done.by_key[key]
    final = run.final
    test = done.tests.get(key)
    values = test.values if test is not None else {**final, "nll": final["test_nll"]}
    return {
        "model": model,
        "fraction": fraction,
        "seed": seed,
        **({} if done.question.folds is None else {"fold": fold}),
        "num_images": run.config["data"]["train_images"],
        "epochs": run.epochs,
        "top1": 100 * values["top1"],
        "top5": None if values.get("top5") is None else 100 * values["top5"],
        "nll": values["nll"],
        "ece": values.get("ece"),
        "chosen_top1": 100 * final["top1"],
        "train_nll": final.get("train_nll"),
        "seconds": run.seconds,
        "images_per_second": median(row["images_per_second"] for row in run.metrics),
        "folder": str(run.folder.relative_to(done.out)),
    }


def _curve(key: Key, run: Run) -> dict[str, Any]:
    rows = [row for row in run.metrics if row["top1"] is not None]
    curve = {"epochs": [r["epoch"] for r in rows], "top1": [100 * r["top1"] for r in rows]}
    curve["train_nll"] = [r.get("train_nll") for r in rows]
    return {"model": key[0], "fraction": key[1], "seed": key[2], **curve}


def _looks(question: Comparison, out: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Gates and nonlocality of each model and fraction, averaged over seeds."""
    series: dict[str, Any] = {"gates": [], "nonlocality": []}
    arrays = {}
    trainings = question.trainings()
    for model in question.models:
        for fraction in sorted(question.fractions):
            training = trainings[model, fraction]
            read = [reading_of(training, LOOKS, seed, out) for seed in question.seeds]
            records = [each for each in read if each is not None]
            for name in series:
                if any(name not in each.arrays for each in records):
                    continue
                key = f"{name}/{model}/{fraction:g}"
                arrays[key] = np.mean([each.arrays[name] for each in records], axis=0)
                entry = {"model": model, "fraction": fraction, "array": key}
                entry |= {"epochs": records[0].values["epochs"], **records[0].values[name]}
                series[name].append(entry)
    return series, arrays
