"""Estimate how long runs take on this machine, from a few timed steps of each model.

Comparisons plan their time budget with it, studies their core-hours, both their time left:

    seconds of a run = start + measurements
        + epochs x (updates x s_update + images x s_step + test images x s_test)

Here s_update is the fixed cost of an update, s_step the cost of one image in it, data loading and
augmentation included, and s_test the cost of one image in a forward pass. Updates are timed with
the recipe's batch and with a quarter of it, because few images are trained in smaller batches.
Steps are timed alone, so runs take up to a quarter longer when all cores are busy.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from vitascope.data import Dataset, EvalBatches
from vitascope.inspection.curvature import BATCH_SIZE
from vitascope.inspection.options import InspectOptions
from vitascope.loading.opening import build
from vitascope.measure.curvature.products import HessianProducts
from vitascope.measure.registry import INSTRUMENTS
from vitascope.runs.cache import kept_epochs
from vitascope.runs.readings import NUM_IMAGES
from vitascope.runs.spec import Reading
from vitascope.runs.train_model import on_so_many
from vitascope.threads import running_on
from vitascope.training import Recipe, evaluate
from vitascope.training.distributed import TrainingProcess
from vitascope.training.trainer.loop import training_batches
from vitascope.training.trainer.optimizer import build_optimizer
from vitascope.training.trainer.update import Update

START = 2.0  # seconds of a run before its first epoch: reading files, building the model
MAX_STEPS, MIN_SECONDS = 16, 0.5  # time this many updates, or as many as fit into this time
PRODUCTS = 50  # Hessian products for the five largest eigenvalues of a mini-batch (45 to 70 seen)


@dataclass(frozen=True)
class Speed:
    """Seconds of one core that a network takes."""

    step: float  # per image of an update
    test: float  # per image of a forward pass
    update: float = 0.0  # per update, whatever its batch
    product: float = 0.0  # per product of a mini-batch's Hessian with a vector, where one is needed


@dataclass(frozen=True)
class ImageCounts:
    """Number of images that all epochs go through."""

    train: int  # at fraction 1
    measured: int  # after an epoch

    @classmethod
    def of(cls, dataset: Dataset) -> "ImageCounts":
        """Count a data set whose test images are those that its runs are measured on."""
        return cls(len(dataset.train), len(dataset.test))


def time_steps(
    name: str,
    dataset: Dataset,
    plan: Recipe,
    *,
    readings: Iterable[Reading] = (),
    **model_args: Any,
) -> Speed:
    """Time a few updates and one forward pass of a model, on one thread as its runs will be.

    Args:
        name: The model.
        dataset: Its images.
        plan: The recipe; a teacher's share is not timed.
        readings: What is measured of its runs. Hessian products are timed if one needs them.
        **model_args: Arguments of the model.
    """
    batch = next((_batch_size(reading) for reading in readings if reading.name == "hessian"), None)
    with running_on(1), torch.random.fork_rng(devices=[]):
        return _timed(name, dataset, plan.override(distillation="none"), batch, model_args)


def _batch_size(reading: Reading) -> int:
    return int(reading.options.get("batch_size", BATCH_SIZE))


def _timed(
    name: str, dataset: Dataset, plan: Recipe, hessian_batch: int | None, args: Mapping[str, Any]
) -> Speed:
    engine = TrainingProcess(plan)
    model = engine.prepare(build(name, dataset, drop_path=plan.drop_path, **args).model)
    update = Update(engine, model, build_optimizer(engine.plain(model), plan), plan, seed=0)
    model.train()
    sizes = plan.batch_size, max(2, plan.batch_size // 4 // 2 * 2)
    times = [_update_time(update, dataset, plan.override(batch_size=size)) for size in sizes]
    step, per_update = _line(sizes, times)
    images = dataset.test if len(dataset.test) else dataset.train
    tests = images.take(range(min(len(images), plan.eval_batch)))
    batches = EvalBatches(tests, batch_size=len(tests), mean=dataset.mean, std=dataset.std)
    began = perf_counter()
    evaluate(engine.plain(model), batches)
    test = (perf_counter() - began) / len(tests)
    product = 0.0
    if hessian_batch is not None:
        pixels = torch.randn(hessian_batch, *dataset.train.size)
        labels = torch.randint(len(dataset.classes), (hessian_batch,))
        product = _product_time(engine.plain(model).eval(), (pixels, labels))
    engine.release(model)
    return Speed(step, test, per_update, product)


def _product_time(model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    products = HessianProducts(model, [batch])
    vector = torch.randn(products.size)
    products(vector)  # the first one also builds the graph
    began = perf_counter()
    products(vector)
    return perf_counter() - began


def _update_time(update: Update, dataset: Dataset, plan: Recipe) -> float:
    """Return the median seconds of a few updates."""
    ends = [perf_counter()]
    for number, batch in enumerate(training_batches(dataset, plan).epoch(0)):
        update(batch, number, plan.base_lr)
        ends.append(perf_counter())
        if number >= MAX_STEPS or (number and ends[-1] - ends[1] > MIN_SECONDS):
            break
    seconds = [end - start for start, end in pairwise(ends)]
    return median(seconds[1:] or seconds)  # the first update also allocates


def _line(sizes: tuple[int, int], times: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of the line through the times of two batches, neither below 0.

    >>> _line((64, 16), (0.36, 0.12)), _line((64, 16), (0.64, 0.12)), _line((2, 2), (0.2, 0.2))
    ((0.005, 0.04), (0.01, 0.0), (0.1, 0.0))
    """
    large, small = sizes
    slope = (times[0] - times[1]) / (large - small) if large > small else times[0] / large
    slope = min(max(slope, 0.0), times[0] / large)
    return round(slope, 12), round(times[0] - slope * large, 12)


def seconds_of_epoch(plan: Recipe, counts: ImageCounts, speed: Speed) -> float:
    """Return the time of one epoch of a run, with its share of the evaluations."""
    images = counts.train * plan.subset.fraction
    updates = images / on_so_many(plan, max(1, round(images))).batch_size
    trained = images * speed.step + updates * speed.update
    return trained + counts.measured * speed.test / _eval_every(plan)


def _eval_every(plan: Recipe) -> float:
    return plan.eval_every * max(1, round(plan.epoch_factor))  # as runs on fractions do


def seconds_of_reading(reading: Reading, plan: Recipe, counts: ImageCounts, speed: Speed) -> float:
    """Return the time of one measurement of a finished run.

    Maps of a few images and the trajectory of the weights count nothing, nor does making corrupted
    images.

    >>> from vitascope.training import recipe
    >>> given = recipe("laptop"), ImageCounts(1000, 500)
    >>> noise = Reading(name="frequency", options={"num_images": 100})
    >>> seconds_of_reading(noise, *given, Speed(step=0.03, test=0.01))
    12.0
    >>> spectrum = Reading(name="hessian", options={"num_batches": 8})
    >>> seconds_of_reading(spectrum, *given, Speed(step=1, test=1, product=0.1))
    40.0
    """
    options = reading.options
    batches = options.get("num_batches", InspectOptions.batches)
    if reading.name == "looks":  # attention maps take about twice the time, for gates and distances
        return 2 * 2 * len(kept_epochs(plan)) * NUM_IMAGES * speed.test
    if reading.name == "test":  # about as many images as the run was measured on
        return counts.measured * speed.test
    if reading.name == "hessian":
        return float(batches * PRODUCTS * speed.product)
    if reading.name == "landscape":
        points = options.get("points", InspectOptions.points) ** 2
        return float(points * batches * BATCH_SIZE * speed.test)
    instrument = INSTRUMENTS.get(reading.name)
    passes = instrument.passes if instrument else 0
    return float(passes * options.get("num_images", 0) * speed.test)


def seconds_outside_epochs(
    readings: Iterable[Reading], plan: Recipe, counts: ImageCounts, speed: Speed
) -> float:
    """Return the time of a run that is not spent in its epochs."""
    return START + sum(seconds_of_reading(each, plan, counts, speed) for each in readings)
