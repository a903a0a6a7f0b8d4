"""What a study costs on this machine: core-hours, from a few timed steps of every model.

    seconds of a run = steps x seconds a step + measurements x test images x seconds an image / 3

with one core, as studies run their trainings side by side; a forward pass is a third of a step. A
training that is finished in the folder costs nothing. Readings (spectra, corruptions, ...) come on
top.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import torch
from torch.nn import functional as F

from vitascope.capture import logits_of
from vitascope.data import subset
from vitascope.studies.grid.runs import images_of, is_finished, recipe_of
from vitascope.studies.grid.training import Training
from vitascope.studies.papers.plan import Plan
from vitascope.studies.session.models import build

__all__ = ["CoreHours", "core_hours", "seconds_per_image"]


@dataclass(frozen=True, kw_only=True)
class CoreHours:
    """What is left to be trained."""

    num_runs: int
    hours: float
    images_per_second: dict[str, float]  # by the training's key, in training on one core


def seconds_per_image(training: Training, steps: int = 2) -> float:
    """Of one core's time for an update, over a few updates after a first one."""
    dataset = images_of(training)
    plan = recipe_of(training, 0, dataset)
    model = build(training.model, dataset, **training.model_args).model.train()
    images = torch.randn(plan.batch_size, *dataset.train.size)
    labels = torch.randint(len(dataset.classes), (plan.batch_size,))
    optimizer = torch.optim.AdamW(model.parameters())
    start = 0.0
    for step in range(steps + 1):
        if step == 1:
            start = process_time()
        optimizer.zero_grad()
        F.cross_entropy(logits_of(model(images)), labels).backward()
        optimizer.step()
    return (process_time() - start) / steps / plan.batch_size


def core_hours(
    plan: Plan,
    seeds: tuple[int, ...],
    out: Path,
    progress: Callable[[str], object] = lambda name: None,
) -> CoreHours:
    """Time the models of a plan and add up what is not finished in ``out``."""
    timed: dict[str, float] = {}  # models that differ in nothing but their training cost the same
    rates: dict[str, float] = {}
    runs, seconds = 0, 0.0
    for key, (training, _) in plan.wanted().items():
        left = sum(not is_finished(training, (), seed, out) for seed in seeds)
        same = f"{training.model} {dict(training.model_args)} {training.data}"
        if same not in timed:
            progress(training.model)
            timed[same] = seconds_per_image(training)
        dataset = images_of(training)
        recipe = recipe_of(training, 0, dataset)
        seen = len(subset(dataset.train, recipe.subset)) * recipe.total_epochs
        tested = len(dataset.test) * (recipe.total_epochs // recipe.eval_every + 1)
        seconds += left * timed[same] * (seen + tested / 3)
        runs += left
        rates[key] = 1 / timed[same]
    return CoreHours(num_runs=runs, hours=seconds / 3600, images_per_second=rates)
