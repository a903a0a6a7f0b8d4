"""What a study costs on this machine, from a few timed steps of every model.

`--plan` says it in core-hours; the progress of a study weighs its runs by it.

    seconds of a run = steps x seconds per step + measurements x test images x seconds per image / 3
    of a spectrum    = mini-batches x 50 products with the Hessian x seconds per product
    of an instrument = its passes x its images x seconds per image / 3

with one core, as studies run their trainings side by side; a forward pass is a third of a step.
Seconds are the process's own, which other programs stretch less than the clock's. What is finished
in the folder costs nothing. Not counted: teachers, making corrupted images, and readings of a few
images (maps, gates, the trajectory of the weights).
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from vitascope.capture import logits_of
from vitascope.data import Dataset, subset
from vitascope.inspection.curvature import BATCH_SIZE, Curvature
from vitascope.loading.opening import build
from vitascope.measure.curvature.products import HessianProducts
from vitascope.papers.plan import Plan
from vitascope.runs.cache import images_of, is_finished, recipe_of
from vitascope.runs.spec import Reading, Training
from vitascope.threads import running_on

PRODUCTS = 50  # of a mini-batch for its five largest eigenvalues; 45 to 70 were seen
PASSES = {  # forward passes of an image
    "fourier": 1,
    "variance": 1,
    "entropy": 1,
    "cka": 1,
    "frequency": 12,  # clean, and eleven frequencies of noise
    "lesion": 17,  # whole, and without each of a small network's units
    "corruption": 75,  # 15 corruptions of 5 severities
}


@dataclass(frozen=True, kw_only=True)
class CoreHours:
    """What is left to be done."""

    num_runs: int  # to be trained
    training: float
    readings: float
    images_per_second: dict[str, float]  # by the training's key, in training on one core

    @property
    def hours(self) -> float:
        """Total core-hours: training plus measurements."""
        return self.training + self.readings


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of one core that a network takes."""

    step: float  # an image of an update
    product: float = 0.0  # of the Hessian of a mini-batch with a vector, where one is wanted

    def reading(self, reading: Reading) -> float:
        """Seconds that one measurement takes.

        >>> Pace(step=0.03).reading(Reading(name="frequency", options={"num_images": 100}))
        12.0
        >>> Pace(step=1, product=0.1).reading(Reading(name="hessian", options={"num_batches": 8}))
        40.0
        """
        options = reading.options
        batches = options.get("num_batches", Curvature.num_batches)
        if reading.name == "hessian":
            return batches * PRODUCTS * self.product
        if reading.name == "landscape":
            points = options.get("points", Curvature.points) ** 2
            return points * batches * BATCH_SIZE * self.step / 3
        return PASSES.get(reading.name, 0) * options.get("num_images", 0) * self.step / 3


def pace_of(training: Training, readings: Iterable[Reading] = (), steps: int = 2) -> Pace:
    """Time a few updates after a first one, and products where a spectrum is wanted."""
    dataset = images_of(training)
    batch = recipe_of(training, 0, dataset).batch_size
    model = build(training.model, dataset, **training.model_args).model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    images, labels = _made_up(dataset, batch)

    def update() -> None:
        optimizer.zero_grad()
        F.cross_entropy(logits_of(model(images)), labels).backward()
        optimizer.step()

    spectra = [reading for reading in readings if reading.name == "hessian"]
    product = 0.0
    if spectra:
        each = spectra[0].options.get("batch_size", BATCH_SIZE)
        product = _timed(_product(model, dataset, each), steps)
    return Pace(step=_timed(update, steps) / batch, product=product)


def _product(model: nn.Module, dataset: Dataset, batch: int) -> Callable[[], Any]:
    products = HessianProducts(model.eval(), [_made_up(dataset, batch)])
    vector = torch.randn(products.size)
    model.train()
    return lambda: products(vector)


def _made_up(dataset: Dataset, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(batch, *dataset.train.size)
    return images, torch.randint(len(dataset.classes), (batch,))


def _timed(work: Callable[[], Any], times: int) -> float:
    """Seconds of this process for one of a few, after a first."""
    work()
    start = process_time()
    for _ in range(times):
        work()
    return (process_time() - start) / times


class RunCosts:
    """Seconds of one core that the runs of a plan take; a network is timed when first asked for."""

    def __init__(self, plan: Plan, progress: Callable[[str], object] = lambda name: None):
        self._readings = {key: tuple(rs.values()) for key, (_, rs) in plan.wanted().items()}
        self._paces: dict[str, Pace] = {}
        self._progress = progress

    def pace(self, training: Training) -> Pace:
        """Pace of its network; networks that differ in nothing but their training have the same."""
        same = f"{training.model} {dict(training.model_args)} {training.data}"
        if same not in self._paces:
            self._progress(training.model)
            with running_on(1):
                self._paces[same] = pace_of(training, self._readings.get(training.key, ()))
        return self._paces[same]

    def epoch(self, training: Training) -> float:
        """Seconds of an epoch, with its share of the measurements."""
        dataset = images_of(training)
        recipe = recipe_of(training, 0, dataset)
        measured = recipe.total_epochs // recipe.eval_every + 1
        tested = len(dataset.test) * measured / recipe.total_epochs
        return self.pace(training).step * (len(subset(dataset.train, recipe.subset)) + tested / 3)

    def readings(self, training: Training) -> float:
        """Seconds of all that is read off a run."""
        pace = self.pace(training)
        return sum(pace.reading(reading) for reading in self._readings.get(training.key, ()))


def core_hours(
    plan: Plan,
    seeds: tuple[int, ...],
    out: Path,
    progress: Callable[[str], object] = lambda name: None,
    known: Container[tuple[str, int]] = (),
) -> CoreHours:
    """Time the models of a plan and add up what is not finished in ``out``.

    Args:
        plan: With the trainings.
        seeds: Seeds of every training.
        out: Folder of the runs.
        progress: Called with the name of a network that is timed.
        known: Runs that earlier records have, by training and seed.
    """
    costs, rates = RunCosts(plan, progress), {}
    runs, training_seconds, reading_seconds = 0, 0.0, 0.0
    for key, (training, readings) in plan.wanted().items():
        new = [seed for seed in seeds if (key, seed) not in known]
        left = sum(not is_finished(training, (), seed, out) for seed in new)
        runs += left
        epochs = recipe_of(training, 0, images_of(training)).total_epochs
        training_seconds += left * epochs * costs.epoch(training)
        pace = costs.pace(training)
        for reading in readings.values():
            unread = sum(not is_finished(training, (reading,), seed, out) for seed in new)
            reading_seconds += unread * pace.reading(reading)
        rates[key] = 1 / pace.step
    return CoreHours(
        num_runs=runs,
        training=training_seconds / 3600,
        readings=reading_seconds / 3600,
        images_per_second=rates,
    )
