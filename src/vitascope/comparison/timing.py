"""How long will a comparison take? From a few timed steps of each model, before it starts.

    seconds of a run = start + readings
        + epochs x (updates x s_update + images x s_step + measured images x s_test)

with s_update the seconds of an update whatever its batch, s_step those of one image in it, data and
augmentation included, and s_test those of one image that is only measured. Updates are timed with
the recipe's batch and with a quarter of it, because few images are trained in smaller batches.
Readings are gates and nonlocality at the kept epochs, which
keep attention maps and take about twice a measured image each, and the test images. Runs are handed
to the processes as they become free, longest first; the time of all is that of the process which
ends last. Steps are timed with nothing beside them, so a machine with few cores takes longer when
all are busy: expect up to a quarter more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch

from vitascope.comparison.question import Comparison
from vitascope.data import Dataset, EvalBatches
from vitascope.loading.opening import build
from vitascope.processes import makespan
from vitascope.runs.cache import kept_epochs
from vitascope.runs.readings import NUM_IMAGES
from vitascope.runs.train_model import on_so_many
from vitascope.threads import running_on
from vitascope.training import Recipe, evaluate
from vitascope.training.distributed import TrainingProcess
from vitascope.training.trainer.loop import training_batches
from vitascope.training.trainer.optimizer import build_optimizer
from vitascope.training.trainer.update import Update

START = 2.0  # seconds of a run before its epochs: files and model
STEPS, LEAST = 16, 0.5  # so many steps are timed, or as many as go into so many seconds


@dataclass(frozen=True)
class Speed:
    """Seconds of an image, and of an update besides its images."""

    step: float  # an image in an update
    test: float  # an image that is measured
    update: float = 0.0


@dataclass(frozen=True)
class ImageCounts:
    """How many images all epochs go through."""

    train: int  # at fraction 1
    measured: int  # after an epoch

    @classmethod
    def of(cls, dataset: Dataset) -> "ImageCounts":
        """Of a data set whose test images are those a run is measured on."""
        return cls(len(dataset.train), len(dataset.test))


def time_steps(name: str, dataset: Dataset, plan: Recipe, **model_args: Any) -> Speed:
    """Time a few updates and one measured batch of a model, on one thread as its runs will be."""
    with running_on(1), torch.random.fork_rng(devices=[]):
        return _timed(name, dataset, plan, model_args)


def _timed(name: str, dataset: Dataset, plan: Recipe, model_args: Mapping[str, Any]) -> Speed:
    engine = TrainingProcess(plan)
    model = engine.prepare(build(name, dataset, drop_path=plan.drop_path, **model_args).model)
    update = Update(engine, model, build_optimizer(engine.plain(model), plan), plan, seed=0)
    model.train()
    sizes = plan.batch_size, max(2, plan.batch_size // 4 // 2 * 2)
    times = [_update_time(update, dataset, plan.override(batch_size=size)) for size in sizes]
    step, besides = _line(sizes, times)
    tests = dataset.test.take(range(min(len(dataset.test), plan.eval_batch)))
    measured = EvalBatches(tests, batch_size=len(tests), mean=dataset.mean, std=dataset.std)
    began = perf_counter()
    evaluate(engine.plain(model), measured)
    test = (perf_counter() - began) / len(tests)
    engine.release(model)
    return Speed(step, test, besides)


def _update_time(update: Update, dataset: Dataset, plan: Recipe) -> float:
    """Seconds of an update, the median of a few."""
    ends = [perf_counter()]
    for number, batch in enumerate(training_batches(dataset, plan).epoch(0)):
        update(batch, number, plan.base_lr)
        ends.append(perf_counter())
        if number >= STEPS or (number and ends[-1] - ends[1] > LEAST):
            break
    seconds = [end - start for start, end in pairwise(ends)]
    return median(seconds[1:] or seconds)  # the first step prepares much


def _line(sizes: tuple[int, int], times: Sequence[float]) -> tuple[float, float]:
    """Slope and value at 0 of the line through two times of two batches, neither below 0.

    >>> _line((64, 16), (0.36, 0.12)), _line((64, 16), (0.64, 0.12)), _line((2, 2), (0.2, 0.2))
    ((0.005, 0.04), (0.01, 0.0), (0.1, 0.0))
    """
    large, small = sizes
    slope = (times[0] - times[1]) / (large - small) if large > small else times[0] / large
    slope = min(max(slope, 0.0), times[0] / large)
    return round(slope, 12), round(times[0] - slope * large, 12)


def seconds_of_epoch(plan: Recipe, counts: ImageCounts, speed: Speed) -> float:
    """One epoch of a run, with its share of the measuring."""
    images = counts.train * plan.subset.fraction
    updates = images / on_so_many(plan, max(1, round(images))).batch_size
    trained = images * speed.step + updates * speed.update
    return trained + counts.measured * speed.test / _eval_every(plan)


def seconds_beside(plan: Recipe, counts: ImageCounts, speed: Speed) -> float:
    """A run besides its epochs."""
    looks = 2 * 2 * len(kept_epochs(plan)) * NUM_IMAGES
    return START + (looks + counts.measured) * speed.test  # test images are about as many


def _eval_every(plan: Recipe) -> float:
    return plan.eval_every * max(1, round(plan.epoch_factor))  # as runs on fractions do


def duration_of(
    question: Comparison, counts: ImageCounts, speeds: Mapping[str, Speed], processes: int
) -> float:
    """Seconds until the last run ends.

    >>> from vitascope.training import recipe
    >>> asked = Comparison(data="digits", recipe=recipe("laptop"), models=("a",), fractions=(1.0,))
    >>> speeds = {"a": Speed(0.001, 0.0)}
    >>> [round(duration_of(asked, ImageCounts(1000, 0), speeds, n)) for n in (1, 2, 3)]
    [96, 64, 32]
    """
    runs = []
    for training, _, _ in question.runs():
        plan = training.full_recipe
        epoch = seconds_of_epoch(plan, counts, speeds[training.model])
        beside = seconds_beside(plan, counts, speeds[training.model])
        runs.append(beside + plan.total_epochs * epoch)
    return makespan(sorted(runs, reverse=True), processes)
