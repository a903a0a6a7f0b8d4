"""What a study costs at the paper's scale: GPU-hours and memory, before anything is started.

Training takes three forward passes' work per image (forward, and twice that backward), two
operations per multiply-add:

    seconds = 6 x multiply-adds x images x epochs / (peak x utilisation)

for a GPU of 312 Tflop/s (A100, bf16) used at 35 %, which is what well-fed ViTs reach; data loading
and evaluation come on top. Memory per GPU: weights, gradients and Adam's two moments in fp32 (16
bytes per parameter) and activations, 34 bytes per token, channel and block without recomputation
(Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, eq. 1, with fused attention). Both are
expectations, not measurements: no GPU was at hand to check them. Small networks on images of 32
pixels use far less of a GPU, so their hours are a lower bound; readings (spectra of a thousand
mini-batches) and a teacher's passes are not counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from vitascope.papers.plan import Plan, Training
from vitascope.record import plain
from vitascope.training import recipe

PEAK, USED = 312e12, 0.35
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}

# seconds of one slow core on digits, by reading; the final line stands for the training itself
LAPTOP = {"final": 25.0, "hessian": 8.0, "corruption": 5.0, "landscape": 4.0}
_OTHER = 0.5


# (10^9 multiply-adds of a sample, samples of an epoch): DeiT-S under UPerNet on ADE20K's crops of
# 512 pixels; ViLT-B on questions of 40 words and images of 384 pixels
TASKS = {"segmentation": (100.4, 20_210), "vqa": (16.69, 443_757)}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a plan is expected to take."""

    gpu_hours: float
    largest_gb: float  # of the run that needs most, a GPU


@cache
def _counted(model: str, arguments: str, side: int) -> tuple[int, int]:
    """Parameters and multiply-adds of a model with its arguments, as YAML."""
    import torch  # a plan needs none

    from vitascope.loading.model_sizes import count
    from vitascope.models import create_model

    given = yaml.safe_load(arguments)
    with torch.device("meta"):
        built = create_model(model, **{k: _hashable(v) for k, v in given.items()})
    return count(built, (3, side, side))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def size_of(training: Training) -> tuple[int, int]:
    """Parameters and multiply-adds of one image, without context broadcasting.

    Models are built without memory (on the meta device).

    >>> made = Training(model="deit_tiny+cb", data="imagenet", recipe="deit")
    >>> size_of(made)
    (5717416, 1253683200)
    """
    side = training.image_size or (32 if _source(training).startswith("cifar") else 224)
    arguments = yaml.safe_dump(plain(dict(training.model_args)))
    return _counted(training.model.partition("+")[0], arguments, side)


def _source(training: Training) -> str:
    """The set of images; the paper's where the path is not given yet."""
    source, path, _ = training.data.partition(":")
    unsaid = not path and training.full_recipe.name in ("cifar", "cifar_weak")
    return "cifar100" if unsaid else source


def hours(training: Training) -> float:
    """GPU-hours of one run.

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
    """GPU-hours of ``train --task`` at full size, with the task's recipe.

    >>> round(task_hours("segmentation"), 1), round(task_hours("vqa"), 1)
    (3.9, 1.1)
    """
    giga, samples = TASKS[task]
    return _gpu_hours(giga, samples * recipe(task).epochs)


def gigabytes(training: Training) -> float:
    """Memory of one GPU with 128 images on it, from parameters and multiply-adds alone.

    A block of width D takes 12 D^2 multiply-adds per token, so activations of 34 D bytes per token
    and block are 34 x multiply-adds / (12 D), with D from the parameters of 12 blocks.
    """
    parameters, multiply_adds = size_of(training)
    width = (parameters / (12 * 12)) ** 0.5
    activations = 34 * multiply_adds / (12 * width) * 128
    return (16 * parameters + activations) / 1e9


def budget(plans: Iterable[Plan], num_seeds: int) -> Budget:
    """Cost of several plans together: a training that they share is counted once."""
    trainings = {key: pair[0] for plan in plans for key, pair in plan.wanted().items()}.values()
    return Budget(
        gpu_hours=num_seeds * sum(map(hours, trainings)),
        largest_gb=max(map(gigabytes, trainings), default=0.0),
    )


def laptop_minutes(plan: Plan, num_seeds: int, cores: int = 2) -> float:
    """What a plan takes on a laptop when nothing is there yet, from seconds seen on digits."""
    names = [
        reading.name for _, readings in plan.wanted().values() for reading in readings.values()
    ]
    return num_seeds * sum(LAPTOP.get(name, _OTHER) for name in names) / cores / 60
