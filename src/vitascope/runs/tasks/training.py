"""One training of a task from the words of a command, and its evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from vitascope.errors import UserError
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.runs.tasks.segmentation import Segmentation, build_segmenter
from vitascope.runs.tasks.vqa import VQA, build_vilt
from vitascope.runs.train_model import recipe_from
from vitascope.settings import pairs
from vitascope.training.distributed import device_of
from vitascope.training.run_folder.run import Run, load_task_run
from vitascope.training.trainer.loop import train_task
from vitascope.training.trainer.task import Task

__all__ = ["PREFIXES", "evaluate_task", "load_task_run", "train_task_once"]

PREFIXES = {"segmentation": "ade20k", "vqa": "vqa"}  # what stands before the path in --data
_SIDES = {"segmentation": 512, "vqa": 384}  # ADE20K's usual crops, ViLT's images


def _path(task: str, data: str) -> Path:
    prefix = PREFIXES[task]
    given, colon, path = data.partition(":")
    if given != prefix or not colon or not path:
        raise UserError(f"--task {task} takes --data {prefix}:PATH, not {data!r}")
    return Path(path)


def _opened(
    task: str, data: str, side: int, batch_size: int, seed: int, num_workers: int
) -> Segmentation | VQA:
    made = Segmentation if task == "segmentation" else VQA
    return made(
        _path(task, data), side=side, batch_size=batch_size, seed=seed, num_workers=num_workers
    )


def _built(name: str, task: Task, args: Mapping[str, Any]) -> nn.Module:
    if isinstance(task, Segmentation):
        return build_segmenter(name, task, **args)
    assert isinstance(task, VQA)
    return build_vilt(name, task, **args)


def train_task_once(
    *,
    task: str,
    model: str,
    data: str,
    out: Path,
    recipe: str,
    epochs: int | None = None,
    changes: Sequence[str] = (),
    model_args: Sequence[str] = (),
    image_size: int | None = None,
    seed: int = 0,
    num_workers: int = 0,
    **how: Any,
) -> Run:
    """Train from the words of a command; ``how`` is ``resume``, ``device`` and ``quiet``."""
    plan = recipe_from(recipe, epochs, changes)
    side = image_size or _SIDES[task]
    made = _opened(task, data, side, plan.batch_size, seed, num_workers)
    given = pairs(model_args, "--model-args")
    torch.manual_seed(seed)
    built = _built(model, made, given)
    config = {"name": model, **given}
    return train_task(built, made, plan, out, seed=seed, model_config=config, **how)


def evaluate_task(
    run: Run, data: str | None = None, *, device: str | None = None, num_workers: int = 0
) -> Record:
    """Measure a finished run on its own test data, or on the validation part of other data."""
    started, config = perf_counter(), run.config
    args = dict(config["model"])
    name, settings = args.pop("name"), config["data"]
    batch = config["recipe"]["batch_size"]
    made = _opened(run.task, data or settings["name"], settings["size"][-1], batch, 0, num_workers)
    if made.config()["classes"] != settings["classes"]:
        raise UserError(
            f"{data} has other classes than {run.folder} was trained on; give data with the same"
        )
    model = load_weights(_built(name, made, args), run.weights).to(device_of(device))
    record = made.record(model)
    return replace(
        record,
        config={"run": str(run.folder), "data": made.config()},
        seconds=perf_counter() - started,
    )
