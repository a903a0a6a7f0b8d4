"""Estimate what a study costs: core-hours on this machine, GPU-hours at the paper's scale.

Core-hours follow from a few timed steps of every model (:mod:`vitascope.runs.cost`). Finished runs
cost nothing; teachers are not counted.

GPU-hours and memory are computed before anything is started. Training takes three forward passes'
work per image (forward, and twice that backward), two operations per multiply-add:

    seconds = 6 x multiply-adds x images x epochs / (peak x utilisation)

for a GPU of 312 Tflop/s (A100, bf16) used at 35 %, which is what well-fed ViTs reach; data loading
and evaluation come on top. Memory per GPU: weights, gradients and Adam's two moments in fp32 (16
bytes per parameter) and activations, 34 bytes per token, channel and block without recomputation
(Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, eq. 1, with fused attention). Both are
expectations, not measurements: no GPU was at hand to check them. Small networks on images of 32
pixels use far less of a GPU, so their hours are a lower bound; measurements (spectra of a thousand
mini-batches) and a teacher's passes are not counted.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from vitascope.loading.model_sizes import count
from vitascope.models import create_model
from vitascope.papers.plan import Plan, Training
from vitascope.record import plain
from vitascope.runs.cache import images_of, is_finished
from vitascope.runs.cost import (
    ImageCounts,
    Speed,
    seconds_of_epoch,
    seconds_of_reading,
    time_steps,
)
from vitascope.runs.spec import Reading
from vitascope.training import recipe


@dataclass(frozen=True, kw_only=True)
class CoreHours:
    """Trainings and measurements that are not finished, in core-hours."""

    num_runs: int  # to be trained
    training: float
    readings: float
    images_per_second: dict[str, float]  # in training on one core, by the training's key

    @property
    def hours(self) -> float:
        """Total core-hours: training plus measurements."""
        return self.training + self.readings


class RunCosts:
    """Seconds of one core that the runs of a plan take; a network is timed when first needed."""

    def __init__(self, plan: Plan) -> None:
        self._readings = {key: tuple(rs.values()) for key, (_, rs) in plan.wanted().items()}
        self._speeds: dict[str, Speed] = {}

    def speed(self, training: Training) -> Speed:
        """Time a network; trainings of the same network and images share the result."""
        sam = training.full_recipe.sam  # takes two gradients per update
        key = f"{training.model} {dict(training.model_args)} {training.data} {sam}"
        if key not in self._speeds:
            readings = self._readings.get(training.key, ())
            self._speeds[key] = time_steps(
                training.model,
                images_of(training),
                training.full_recipe,
                readings=readings,
                **training.model_args,
            )
        return self._speeds[key]

    def epoch(self, training: Training) -> float:
        """Return the time of an epoch, with its share of the evaluations."""
        counts = ImageCounts.of(images_of(training))
        return seconds_of_epoch(training.full_recipe, counts, self.speed(training))

    def reading(self, reading: Reading, training: Training) -> float:
        """Return the time of one measurement."""
        counts = ImageCounts.of(images_of(training))
        return seconds_of_reading(reading, training.full_recipe, counts, self.speed(training))

    def readings(self, training: Training) -> float:
        """Return the time of everything that is measured of a run."""
        return sum(self.reading(each, training) for each in self._readings.get(training.key, ()))


def core_hours(
    plan: Plan,
    seeds: tuple[int, ...],
    out: Path,
    known: Container[tuple[str, int]] = (),
) -> CoreHours:
    """Time the models of a plan and add up what is not finished in ``out``.

    Args:
        plan: With the trainings.
        seeds: Seeds of every training.
        out: Folder of the runs.
        known: Runs that earlier records have, by training and seed.
    """
    costs, rates = RunCosts(plan), {}
    num_runs, training_seconds, reading_seconds = 0, 0.0, 0.0
    for key, (training, readings) in plan.wanted().items():
        new = [seed for seed in seeds if (key, seed) not in known]
        missing = sum(not is_finished(training, (), seed, out) for seed in new)
        num_runs += missing
        epochs = training.full_recipe.total_epochs
        training_seconds += missing * epochs * costs.epoch(training)
        for reading in readings.values():
            missing = sum(not is_finished(training, (reading,), seed, out) for seed in new)
            reading_seconds += missing * costs.reading(reading, training)
        speed = costs.speed(training)
        batch = training.full_recipe.batch_size
        rates[key] = 1 / (speed.step + speed.update / batch)
    return CoreHours(
        num_runs=num_runs,
        training=training_seconds / 3600,
        readings=reading_seconds / 3600,
        images_per_second=rates,
    )


PEAK, USED = 312e12, 0.35
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}

# (10^9 multiply-adds of a sample, samples of an epoch): DeiT-S under UPerNet on ADE20K's crops of
# 512 pixels; ViLT-B on questions of 40 words and images of 384 pixels
TASKS = {"segmentation": (100.4, 20_210), "vqa": (16.69, 443_757)}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Expected GPU time and memory of a plan."""

    gpu_hours: float
    largest_gb: float  # of the run that needs most, a GPU


@cache
def _counted(model: str, arguments: str, side: int) -> tuple[int, int]:
    """Count parameters and multiply-adds of a model; its arguments are YAML, to be hashable."""
    given = yaml.safe_load(arguments)
    with torch.device("meta"):
        built = create_model(model, **{k: _hashable(v) for k, v in given.items()})
    return count(built, (3, side, side))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def size_of(training: Training) -> tuple[int, int]:
    """Count parameters and multiply-adds of one image, without context broadcasting.

    Models are built without memory (on the meta device).

    >>> made = Training(model="deit_tiny+cb", data="imagenet", recipe="deit")
    >>> size_of(made)
    (5717416, 1253683200)
    """
    side = training.image_size or (32 if _source(training).startswith("cifar") else 224)
    arguments = yaml.safe_dump(plain(dict(training.model_args)))
    return _counted(training.model.partition("+")[0], arguments, side)


def _source(training: Training) -> str:
    """Return the name of the data set: the paper's where no path is given yet."""
    source, path, _ = training.data.partition(":")
    unsaid = not path and training.full_recipe.name in ("cifar", "cifar_weak")
    return "cifar100" if unsaid else source


def hours(training: Training) -> float:
    """Return the GPU-hours of one run.

    >>> made = Training(model="deit_tiny", data="imagenet", recipe="deit")
    >>> round(hours(made), 2)
    7.35
    """
    plan = training.full_recipe
    images = float(IMAGES.get(_source(training), IMAGES["imagenet"]))
    classes = plan.subset.first_classes
    images *= (classes / 1000) if classes else 1
    images *= plan.subset.fraction * plan.epoch_factor
    passes = 1 if plan.sam is None else 2  # SAM takes a second gradient at each step
    return _gpu_hours(size_of(training)[1] / 1e9, passes * images * plan.epochs)


def _gpu_hours(giga: float, samples: float) -> float:
    return 6 * giga * 1e9 * samples / (PEAK * USED) / 3600


def task_hours(task: str) -> float:
    """Return the GPU-hours of ``train --task`` at full size, with the task's recipe.

    >>> round(task_hours("segmentation"), 1), round(task_hours("vqa"), 1)
    (3.9, 1.1)
    """
    giga, samples = TASKS[task]
    return _gpu_hours(giga, samples * recipe(task).epochs)


def gigabytes(training: Training) -> float:
    """Return the memory of one GPU with 128 images on it, from parameters and multiply-adds alone.

    A block of width D takes 12 D^2 multiply-adds per token, so activations of 34 D bytes per token
    and block are 34 x multiply-adds / (12 D), with D from the parameters of 12 blocks.
    """
    parameters, multiply_adds = size_of(training)
    width = (parameters / (12 * 12)) ** 0.5
    activations = 34 * multiply_adds / (12 * width) * 128
    return (16 * parameters + activations) / 1e9


def budget(plans: Iterable[Plan], num_seeds: int) -> Budget:
    """Add up several plans: a training that they share is counted once."""
    trainings = {key: pair[0] for plan in plans for key, pair in plan.wanted().items()}.values()
    return Budget(
        gpu_hours=num_seeds * sum(map(hours, trainings)),
        largest_gb=max(map(gigabytes, trainings), default=0.0),
    )
