"""Images a second of any models, as in Table 1 of the ConViT paper, beside its numbers.

Batches of 128 images at 224 x 224 (or the model's own size), forward passes and whole updates; the
models take turns, so that their ratios hold though a machine's speed drifts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import nn

from vitascope.bench.timing import Benchmark, Row, take_turns
from vitascope.capture import try_image
from vitascope.errors import UserError
from vitascope.measure.throughput import PUBLISHED, forward_pass, update_step
from vitascope.models import create_model
from vitascope.threads import running_on
from vitascope.train.device import device_of


@dataclass(frozen=True)
class ThroughputBenchmark(Benchmark, subject="throughput"):
    """Images a second of each model, and ratios to the first."""

    # model, million parameters, inference, training, the paper's inference
    throughput: tuple[tuple[str, float, float, float, float | None], ...]
    speed: tuple[Row, ...]  # this against the first: quartiles


def time_throughput(
    *,
    models: Sequence[str] = ("deit_tiny", "convit_tiny"),
    batch_size: int = 128,
    rounds: int = 5,
    threads: int = 1,
    image_size: int | None = None,
    device: str | None = None,
    progress: Callable[[str], object] = lambda stage: None,
) -> ThroughputBenchmark:
    """Time forward passes and updates of the models, in turns."""
    if len(set(models)) < len(models):
        raise UserError(f"a model is named twice: {', '.join(models)}")
    start, where = perf_counter(), device_of(device)
    built, images = {}, {}
    for name in models:
        built[name], images[name] = _opened(name, batch_size, image_size, where)
    first, *others = models
    rates: dict[str, list[float]] = {name: [] for name in models}
    speed = []
    with running_on(threads):
        for mode, work in (("inference", forward_pass), ("training", update_step)):
            progress(mode)
            runs = {name: work(built[name], images[name]) for name in models}
            times = take_turns(runs, rounds=rounds, least_seconds=0.0, clock=perf_counter)
            for name in models:
                rates[name].append(batch_size / times.median(name))
            speed += [(f"{name} {mode} / {first}", *times.speed(name, first)) for name in others]
    rows = []
    for name in models:
        millions = sum(p.numel() for p in built[name].parameters()) / 1e6
        inference, training = rates[name]
        rows.append((name, millions, inference, training, PUBLISHED.get(name)))
    config = {"models": tuple(models), "batch_size": batch_size, "rounds": rounds}
    config |= {"threads": threads, "image_size": image_size, "device": str(where)}
    return ThroughputBenchmark(
        tuple(rows), tuple(speed), config=config, seconds=perf_counter() - start
    )


def _opened(
    name: str, batch_size: int, side: int | None, device: torch.device
) -> tuple[nn.Module, torch.Tensor]:
    """A model with random weights and noise of the size it takes."""
    torch.manual_seed(0)
    try:
        model = create_model(name, img_size=side) if side is not None else create_model(name)
    except UserError:  # many networks take any size, and no argument for it
        model = create_model(name)
    config: Any = getattr(model, "pretrained_cfg", None) or {}
    channels, height, width = config.get("input_size", (3, 224, 224))
    size = (channels, side or height, side or width)
    images = torch.randn(batch_size, *size)
    try_image(model, images, name, "give --image-size")
    return model.to(device), images.to(device)
