"""What a study costs at the paper's scale: GPU-hours and memory, before anything is started.

Training takes three forward passes' work an image (forward, and twice that backward), two
operations a multiply-add:

    seconds = 6 x multiply-adds x images x epochs / (peak x utilisation)

for a GPU of 312 Tflop/s (A100, bf16) used at 35 %, which is what well-fed ViTs reach; data loading
and evaluation come on top. Memory a GPU: weights, gradients and Adam's two moments in fp32 (16
bytes a parameter) and activations, 34 bytes a token, channel and block without recomputation
(Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, eq. 1, with fused attention). Both are
expectations, not measurements: no GPU was at hand to check them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vitascope.studies.plan import Plan, Training

__all__ = ["FLOPS", "Budget", "budget", "hours"]

PEAK, USED = 312e12, 0.35
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}
EPOCHS = {"deit": 300, "deit_plus": 300, "cifar": 300, "broadcast": 300, "broadcast_base": 300}

# model: (million parameters, 10^9 multiply-adds an image), counted by studies.sizes.count
FLOPS: dict[str, tuple[float, float]] = {}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a plan is expected to take."""

    num_runs: int
    gpu_hours: float
    largest_gb: float  # of the run that needs most, a GPU
    unknown: tuple[str, ...]  # models that are not in the table above


def hours(training: Training) -> float | None:
    """GPU-hours of one run; None for a model that was not counted.

    >>> FLOPS["half"] = (1.0, 0.5)
    >>> made = Training(model="half", data="imagenet", recipe="deit")
    >>> round(hours(made), 2), FLOPS.pop("half")
    (2.93, (1.0, 0.5))
    """
    size = FLOPS.get(training.model.split("+")[0])
    if size is None:
        return None
    source = training.data.partition(":")[0]
    images = float(IMAGES.get(source, IMAGES["imagenet"]))
    classes = training.changes.get("subset.first_classes")
    images *= (classes / 1000) if classes else 1
    epochs = training.epochs or EPOCHS.get(training.recipe, 300)
    fraction = float(training.changes.get("subset.fraction", 1.0))
    if training.recipe == "cifar":  # its epochs are not scaled with the images
        images *= fraction
    return 6 * size[1] * 1e9 * images * epochs / (PEAK * USED) / 3600


def gigabytes(training: Training, batch: int = 128) -> float | None:
    """Memory of one GPU with ``batch`` images on it, from parameters and multiply-adds alone.

    A block of width D takes 12 D^2 multiply-adds a token, so activations of 34 D bytes a token and
    block are 34 x multiply-adds / (12 D), with D from the parameters of 12 blocks.
    """
    size = FLOPS.get(training.model.split("+")[0])
    if size is None:
        return None
    width = (size[0] * 1e6 / (12 * 12)) ** 0.5
    activations = 34 * size[1] * 1e9 / (12 * width) * batch
    return (16 * size[0] * 1e6 + activations) / 1e9


def budget(plans: Iterable[Plan], num_seeds: int) -> Budget:
    """Of several plans together: a training that they share is counted once."""
    trainings = {key: pair[0] for plan in plans for key, pair in plan.wanted().items()}
    known = [t for t in trainings.values() if hours(t) is not None]
    unknown = sorted({t.model for t in trainings.values()} - {t.model for t in known})
    return Budget(
        num_runs=len(trainings) * num_seeds,
        gpu_hours=num_seeds * sum(hours(t) or 0.0 for t in known),
        largest_gb=max((gigabytes(t) or 0.0 for t in known), default=0.0),
        unknown=tuple(unknown),
    )
