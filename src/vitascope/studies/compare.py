"""Which model, with how much built-in locality, for these images?

Every model is trained on every fraction of the images with every seed, by one recipe (Table 2 and
Fig. 2 of the ConViT paper, https://arxiv.org/abs/2103.10697, on the user's own images), and
looked at on the way: gates and nonlocality at log-spaced epochs. The answer is a record that
a page is made from; :mod:`vitascope.studies.evidence` turns numbers into words.

`vitascope compare --data digits` takes about four minutes on two cores.
"""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from vitascope import record
from vitascope.data import Dataset, load
from vitascope.errors import UserError
from vitascope.record import Record, circumstances
from vitascope.settings import Processes, check_value, command_line, flat
from vitascope.studies.evidence import Cell, crossings, plain_rows, tabulate
from vitascope.studies.explorer.explore import explored
from vitascope.studies.grid.comparison_cells import Comparison, jobs_of, run_job, safe
from vitascope.studies.grid.processes import side_by_side
from vitascope.studies.recommendation import recommend
from vitascope.studies.session.built_in_locality import built_in
from vitascope.studies.session.model_sizes import count
from vitascope.studies.session.models import build, reopen
from vitascope.train import Recipe, Run, alone_in, check_trainable, load_run

__all__ = ["compare"]


def compare(
    question: Comparison, out: str | Path, *, processes: int = 1, quiet: bool = False
) -> Record:
    """Train what is not trained yet, and answer. The record is ``out/compare.json``.

    Raises:
        UserError: For what cannot work, before anything is written; or if another process is at
            work in ``out``.
    """
    out, started, made = Path(out), perf_counter(), circumstances()
    check_value(processes, Processes, "processes")
    dataset = load(question.data, image_size=question.image_size)
    jobs = jobs_of(question, dataset, out)
    recipes = list({job.fraction: job.recipe for job in jobs}.values())
    sizes = {name: _describe(name, dataset, *recipes) for name in question.models}
    with alone_in(out):
        side_by_side(
            run_job,
            [
                {
                    "data": question.data,
                    "image_size": question.image_size,
                    "model": job.model,
                    "seed": job.seed,
                    "recipe": job.recipe,
                    "out": job.out,
                }
                for job in jobs
            ],
            processes=processes,
            epochs=[job.recipe.total_epochs for job in jobs],
            weights=[sizes[job.model]["multiply_adds"] * job.fraction for job in jobs],
            quiet=quiet,
        )
        runs = {(job.model, job.fraction, job.seed): load_run(job.out) for job in jobs}
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
    runs: dict[tuple[str, float, int], Run],
    out: Path,
    made: dict[str, Any],
    seconds: float,
) -> Record:
    cells = [
        Cell(model, fraction, seed, run.config["data"]["train_images"], 100 * run.final["top1"])
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
    table = tabulate(cells, reference, num_test)
    cost = {name: size["multiply_adds"] for name, size in sizes.items()}
    looks, arrays = _looks(question, runs)
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
        "crossings": crossings(cells, num_test),
        "recommendation": asdict(recommend(cells, num_test, cost, reference)),
        "curves": [_curve(key, run) for key, run in runs.items()],
        **looks,
        "recipe": flat(question.recipe.to_dict()),
        "command": _command(question),
    }
    total = sum(run.seconds for run in runs.values())
    config = {**asdict(question), "recipe": question.recipe.to_dict()}
    values["training_seconds"] = total
    answer = Record(
        kind="compare",
        values=values,
        arrays=arrays,
        config=config,
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
    runs: dict[tuple[str, float, int], Run],
    out: Path,
) -> None:
    """The attention of every patch in the run on most images, of each model that has any."""
    fraction, seed = max(question.fractions), question.seeds[0]
    for model in question.models:
        run = runs[model, fraction, seed]
        about = f"{run.config['data']['train_images']:,} images, seed {seed}"
        try:
            found = explored(reopen(run.folder), dataset, about=about)
        except UserError:
            continue  # no attention on a grid
        found.save(out / "explorer" / safe(model))


def _cell(key: tuple[str, float, int], run: Run, out: Path) -> dict[str, Any]:
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


def _curve(key: tuple[str, float, int], run: Run) -> dict[str, Any]:
    rows = [row for row in run.metrics if row["top1"] is not None]
    curve = {"epochs": [r["epoch"] for r in rows], "top1": [100 * r["top1"] for r in rows]}
    curve["train_nll"] = [r.get("train_nll") for r in rows]
    return {"model": key[0], "fraction": key[1], "seed": key[2], **curve}


def _looks(
    question: Comparison, runs: dict[tuple[str, float, int], Run]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Gates and nonlocality of each model and fraction, averaged over seeds."""
    found: dict[str, Any] = {"gates": [], "nonlocality": []}
    arrays = {}
    for model in question.models:
        for fraction in sorted(question.fractions):
            folders = [runs[model, fraction, seed].folder for seed in question.seeds]
            looks = [record.load(folder / "looks") for folder in folders]
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
        ("--data", question.data), ("--recipe", question.recipe.name),
        ("--epochs", question.recipe.epochs), ("--models", question.models),
        ("--fractions", fractions), ("--seeds", question.seeds),
        ("--image-size", question.image_size), ("--set", question.overrides),
    ]  # fmt: skip
    return command_line(["vitascope", "compare"], options)
