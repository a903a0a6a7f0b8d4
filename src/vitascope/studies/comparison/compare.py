"""Which model, with how much built-in locality, for these images?

Every model is trained on every fraction of the images with every seed, by one recipe (Table 2 and
Fig. 2 of the ConViT paper, https://arxiv.org/abs/2103.10697, on the user's own images), and gates
and nonlocality are measured at log-spaced epochs. The answer is a record that a page is made from;
:mod:`vitascope.studies.comparison.evidence` turns numbers into words.

`vitascope compare --data digits` takes about four minutes on two cores.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.record import Record, provenance
from vitascope.settings import Seed, Side, Within, check, command_line, flat
from vitascope.studies.comparison.advice import advise
from vitascope.studies.comparison.evidence import RunResult, crossings, plain_rows, tabulate
from vitascope.studies.explorer.explore import explore
from vitascope.studies.grid.executor import Engine, Wanted, run_all
from vitascope.studies.grid.runs import (
    command,
    correct_arrays,
    folder_of,
    reading_of,
    recipe_of,
    refuse_other,
)
from vitascope.studies.grid.train_command import load_images
from vitascope.studies.grid.training import Reading, Training, file_name
from vitascope.studies.session.built_in_locality import built_in
from vitascope.studies.session.model_sizes import count
from vitascope.studies.session.models import build, reopen
from vitascope.train import Recipe, Run, check_trainable, load_run, lock_folder

__all__ = ["Comparison", "commands", "compare"]

LOOKS = Reading(name="looks")  # gates and nonlocality over training
Key = tuple[str, float, int]  # model, fraction, seed

# What must not change in a folder; more models, fractions or seeds use the same runs.
_SAME = ("data", "image_size", "recipe", "subset_per_seed")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The question in full."""

    data: str
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    fractions: tuple[float, ...] = (0.1, 1.0)
    seeds: tuple[Seed, ...] = (0, 1, 2)
    recipe: Recipe
    image_size: Side | None = None
    reference: str | None = None  # gains are relative to it; by default the first model
    overrides: tuple[str, ...] = ()  # what was changed in the recipe, to say the command again
    subset_per_seed: bool = True  # a fraction is drawn anew with each seed
    margin: Annotated[float, Within(0, 100)] = 1.0  # points a cheaper model may be behind

    def __post_init__(self) -> None:
        check(self)
        for name in ("models", "fractions", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise UserError(f"{name} must be one or more different ones, not {list(values)}")
            short = [f"{v:g}" if isinstance(v, float) else file_name(str(v)) for v in values]
            if len(set(short)) != len(values):
                raise UserError(
                    f"{name} {', '.join(map(str, values))} are too much alike: their results would "
                    f"share the names {', '.join(short)}"
                )
        if not all(0 < fraction <= 1 for fraction in self.fractions):
            raise UserError(f"fractions lie in (0, 1], not {list(self.fractions)}")
        if self.reference is not None and self.reference not in self.models:
            raise UserError(f"the reference {self.reference} is not among the models")

    @property
    def config(self) -> dict[str, Any]:
        """In plain types."""
        return {**asdict(self), "recipe": self.recipe.to_dict()}

    def trainings(self) -> dict[tuple[str, float], Training]:
        """By model and fraction, the largest fractions first."""
        return {
            (model, fraction): Training(
                model=model,
                data=self.data,
                image_size=self.image_size,
                recipe=self.recipe,
                changes={"subset.fraction": fraction},
                subset_per_seed=self.subset_per_seed,
            )
            for fraction in sorted(self.fractions, reverse=True)
            for model in self.models
        }

    def runs(self) -> list[Wanted]:
        """Every training with every seed."""
        return [(t, (LOOKS,), seed) for t in self.trainings().values() for seed in self.seeds]


def commands(question: Comparison, out: str | Path) -> list[str]:
    """One ``vitascope train`` per run, for any scheduler; `compare` then finds them finished."""
    dataset = load_images(question.data, question.image_size)
    return [command(training, seed, Path(out), dataset) for training, _, seed in question.runs()]


def compare(question: Comparison, out: str | Path, engine: Engine | None = None) -> Record:
    """Train what is not trained yet, and answer. The record is ``out/compare.json``.

    Args:
        question: What to ask; more models, fractions or seeds may be asked of the same folder
            later.
        out: Folder for runs and record.
        engine: Where the runs are made; one after the other in this process when left out.

    Raises:
        UserError: For what cannot work, before anything is written; or if another process is at
            work in ``out``, or the folder holds another comparison.
    """
    out, started, made = Path(out), perf_counter(), provenance()
    load_images.cache_clear()  # they may have changed since
    dataset = load_images(question.data, question.image_size)
    recipes = {
        fraction: recipe_of(training, question.seeds[0], dataset)
        for (_, fraction), training in question.trainings().items()
    }
    sizes = {name: _describe(name, dataset, *recipes.values()) for name in question.models}
    with lock_folder(out):
        refuse_other(out / "compare", question.config, _SAME, "comparison")
        run_all(
            question.runs(),
            out,
            engine or Engine(),
            cost=lambda training: (
                sizes[training.model]["multiply_adds"] * training.changes["subset.fraction"]
            ),
        )
        runs = {
            (model, fraction, seed): load_run(folder_of(training, seed, out))
            for (model, fraction), training in question.trainings().items()
            for seed in question.seeds
        }
        return _answer(question, dataset, sizes, runs, out, made, perf_counter() - started)


def _describe(name: str, dataset: Dataset, *recipes: Recipe) -> dict[str, Any]:
    """What a model is and costs; also the first test of whether it can be trained on the images."""
    subject = build(name, dataset, drop_path=recipes[0].drop_path)
    for recipe in recipes:
        check_trainable(subject.model, dataset, recipe)
    parameters, multiply_adds = count(subject.model, dataset.train.size)
    kind, locality = built_in(subject.model)
    label = name.removeprefix("timm:")
    costs = {"parameters": parameters, "multiply_adds": multiply_adds}
    return {"name": name, "label": label, "kind": kind, "locality": locality, **costs}


def _answer(
    question: Comparison,
    dataset: Dataset,
    sizes: dict[str, dict[str, Any]],
    runs: Mapping[Key, Run],
    out: Path,
    made: dict[str, Any],
    seconds: float,
) -> Record:
    cells = [
        RunResult(model, fraction, seed, run.config["data"]["train_images"], _correct(run))
        for (model, fraction, seed), run in runs.items()
    ]
    reference = question.reference or question.models[0]
    for name, size in sizes.items():
        speeds = [
            row["images_per_second"]
            for (model, _, _), run in runs.items()
            if model == name
            for row in run.metrics
        ]
        size["images_per_second"] = median(speeds)
    num_test = len(dataset.test)
    table = tabulate(cells, reference)
    cost = {name: size["multiply_adds"] for name, size in sizes.items()}
    curves = [_curve(key, run) for key, run in runs.items()]
    most = max(question.fractions)
    grown = [(curve["model"], curve["top1"]) for curve in curves if curve["fraction"] == most]
    advice = advise(cells, cost, reference, margin=question.margin, curves=grown)
    looks, arrays = _looks(question, out)
    names = {f"{m}/{f:g}": training for (m, f), training in question.trainings().items()}
    arrays |= correct_arrays(names, question.seeds, out)
    values = {
        "question": "Which model, with how much built-in locality, for these images?",
        "data": {
            "name": dataset.name,
            "num_train": len(dataset.train),
            "num_test": num_test,
            "num_classes": len(dataset.classes),
            "classes": list(dataset.classes),
            "size": list(dataset.train.size),
            "notes": list(dataset.notes),
        },
        "models": list(sizes.values()),
        "reference": reference,
        "fractions": sorted(question.fractions),
        "seeds": list(question.seeds),
        "cells": [_cell(key, run, out) for key, run in runs.items()],
        "table": plain_rows(table),
        "crossings": crossings(cells),
        "recommendation": asdict(advice),
        "curves": curves,
        **looks,
        "correct": [
            {"model": model, "fraction": fraction, "array": f"correct/{model}/{fraction:g}"}
            for model, fraction in question.trainings()
            if f"correct/{model}/{fraction:g}" in arrays
        ],
        "subset_per_seed": question.subset_per_seed,
        "recipe": flat(question.recipe.to_dict()),
        "command": _command(question),
    }
    total = sum(run.seconds for run in runs.values())
    values["training_seconds"] = total
    answer = Record(
        kind="compare",
        values=values,
        arrays=arrays,
        config=question.config,
        seed=question.seeds[0],
        seconds=seconds,
        made=made,
    )
    answer.save(out / "compare")
    _explore(question, dataset, runs, out)
    return answer


def _explore(
    question: Comparison,
    dataset: Dataset,
    runs: Mapping[Key, Run],
    out: Path,
) -> None:
    """The attention of every patch in the run on most images, of each model that has any."""
    fraction, seed = max(question.fractions), question.seeds[0]
    for model in question.models:
        run = runs[model, fraction, seed]
        about = f"{run.config['data']['train_images']:,} images, seed {seed}"
        try:
            found = explore(reopen(run.folder, images=dataset), about=about)
        except UserError:
            continue  # no attention on a grid
        found.save(out / "explorer" / file_name(model))


def _correct(run: Run) -> np.ndarray:
    """Which test images a run got right."""
    found = run.predictions
    if found is None:
        raise UserError(
            f"{run.folder} keeps no predictions: it was made by an earlier version; give another "
            "--out, or delete it and it is trained again"
        )
    return found.correct


def _cell(key: Key, run: Run, out: Path) -> dict[str, Any]:
    model, fraction, seed = key
    final = run.final
    return {
        "model": model,
        "fraction": fraction,
        "seed": seed,
        "num_images": run.config["data"]["train_images"],
        "epochs": run.epochs,
        "top1": 100 * final["top1"],
        "top5": None if final.get("top5") is None else 100 * final["top5"],
        "nll": final["test_nll"],
        "ece": final.get("ece"),
        "train_nll": final.get("train_nll"),
        "seconds": run.seconds,
        "images_per_second": median(row["images_per_second"] for row in run.metrics),
        "folder": str(run.folder.relative_to(out)),
    }


def _curve(key: Key, run: Run) -> dict[str, Any]:
    rows = [row for row in run.metrics if row["top1"] is not None]
    curve = {"epochs": [r["epoch"] for r in rows], "top1": [100 * r["top1"] for r in rows]}
    curve["train_nll"] = [r.get("train_nll") for r in rows]
    return {"model": key[0], "fraction": key[1], "seed": key[2], **curve}


def _looks(question: Comparison, out: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Gates and nonlocality of each model and fraction, averaged over seeds."""
    found: dict[str, Any] = {"gates": [], "nonlocality": []}
    arrays = {}
    trainings = question.trainings()
    for model in question.models:
        for fraction in sorted(question.fractions):
            training = trainings[model, fraction]
            read = [reading_of(training, LOOKS, seed, out) for seed in question.seeds]
            looks = [each for each in read if each is not None]
            for name in found:
                if any(name not in each.arrays for each in looks):
                    continue
                key = f"{name}/{model}/{fraction:g}"
                arrays[key] = np.mean([each.arrays[name] for each in looks], axis=0)
                entry = {"model": model, "fraction": fraction, "array": key}
                entry |= {"epochs": looks[0].values["epochs"], **looks[0].values[name]}
                found[name].append(entry)
    return found, arrays


def _command(question: Comparison) -> str:
    """What to type to get this again."""
    fractions = tuple(f"{fraction:g}" for fraction in question.fractions)
    options = [
        ("--data", question.data),
        ("--recipe", question.recipe.name),
        ("--epochs", question.recipe.epochs),
        ("--models", question.models),
        ("--fractions", fractions),
        ("--seeds", question.seeds),
        ("--image-size", question.image_size),
        ("--set", question.overrides),
        ("--margin", question.margin if question.margin != 1.0 else None),
    ]
    return command_line(["vitascope", "compare"], options)
