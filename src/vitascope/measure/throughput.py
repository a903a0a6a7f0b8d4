"""Throughput of a model: images per second, in inference or in training.

ConViT Table 1 (d'Ascoli et al. 2021): forward passes of batches of 128 images at 224 x 224 on a
Quadro GP100. Park and Kim 2022, appendix A: training throughputs on CIFAR-100, so an update here is
a forward pass, the backward pass and a step of AdamW. The images are noise already on the device;
loading is not timed. The median over rounds is given with its quartiles. Numbers of different
machines cannot be compared, ratios of models on one machine can.

Several models take turns in one process (:func:`by_turns`), so that their ratios hold though a
machine's speed drifts.

Shapes: B images of (C, height, width).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import evaluating, logits_of
from vitascope.measure.result import InstrumentResult
from vitascope.measure.timing import Row, take_turns

__all__ = [
    "PUBLISHED",
    "Mode",
    "Throughput",
    "Turns",
    "by_turns",
    "forward_pass",
    "throughput",
    "update_step",
]

Mode = Literal["inference", "training"]
PUBLISHED = {  # model -> images a second, ConViT Table 1
    "deit_tiny": 1442,
    "convit_tiny": 734,
    "deit_tiny_plus": 1036,
    "convit_tiny_plus": 625,
    "deit_small": 587,
    "convit_small": 305,
    "deit_small_plus": 480,
    "convit_small_plus": 382,
    "deit_base": 187,
    "convit_base": 141,
    "deit_base_plus": 114,
    "convit_base_plus": 96,
}


@dataclass(frozen=True, kw_only=True)
class Throughput(InstrumentResult, kind="throughput"):
    """Images a second in each round."""

    rates: tuple[float, ...]
    mode: Mode
    batch_size: int
    parameters: int
    device: str

    @property
    def median(self) -> float:
        """Images a second."""
        return float(np.median(self.rates))

    def record_values(self) -> dict[str, Any]:
        """Return median and quartiles in place of the single rounds."""
        values = super().record_values()
        del values["rates"]
        quartiles = np.quantile(self.rates, [0.25, 0.75])
        return {"images_per_second": self.median, "quartiles": quartiles, **values}


def forward_pass(model: nn.Module, images: Tensor) -> Callable[[], None]:
    """One forward pass in evaluation mode, to be timed; it waits for the device to finish."""

    def run() -> None:
        with evaluating(model):
            model(images)
        _wait(images.device)

    return run


def update_step(model: nn.Module, images: Tensor) -> Callable[[], None]:
    """One update by AdamW at a learning rate of 0, to be timed: the weights stay as they are."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.0)

    def run() -> None:
        model.train()
        optimizer.zero_grad()
        logits = logits_of(model(images))
        labels = torch.zeros(len(images), dtype=torch.long, device=images.device)
        F.cross_entropy(logits, labels).backward()
        optimizer.step()
        _wait(images.device)

    return run


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def throughput(
    model: nn.Module,
    size: Sequence[int],
    *,
    mode: Mode = "inference",
    batch_size: int = 128,
    rounds: int = 5,
) -> Throughput:
    """Time ``model`` on its own device.

    Args:
        model: Takes (B, *size); its mode and gradients are left as they were. Training changes
            running statistics of batch normalisation.
        size: (C, height, width).
        mode: Forward passes, or whole updates.
        batch_size: B, 128 in the paper.
        rounds: How often, after one pass that is not counted.
    """
    device = _device(model)
    images = torch.randn(batch_size, *size, generator=torch.Generator().manual_seed(0)).to(device)
    was_training, before = model.training, [(p, p.grad) for p in model.parameters()]
    run = (forward_pass if mode == "inference" else update_step)(model, images)
    rates = []
    try:
        run()
        for _ in range(rounds):
            start = perf_counter()
            run()
            rates.append(batch_size / (perf_counter() - start))
    finally:
        model.train(was_training)
        for parameter, grad in before:
            parameter.grad = grad
    return Throughput(
        rates=tuple(rates),
        mode=mode,
        batch_size=batch_size,
        parameters=sum(p.numel() for p in model.parameters()),
        device=str(device),
    )


@dataclass(frozen=True, kw_only=True)
class Turns(InstrumentResult, kind="bench-throughput"):
    """Images a second of several models that took turns."""

    # model, million parameters, inference, training, the paper's inference
    throughput: tuple[tuple[str, float, float, float, float | None], ...]
    speed: tuple[Row, ...]  # each against the first: quartiles
    config: Mapping[str, Any]
    seconds: float


def by_turns(
    models: Mapping[str, nn.Module],
    sizes: Mapping[str, Sequence[int]],
    *,
    batch_size: int = 128,
    rounds: int = 5,
    progress: Callable[[str], object] = lambda stage: None,
) -> Turns:
    """Time forward passes and updates of several models in turns, on the device they are on.

    Args:
        models: By name; the others are compared with the first.
        sizes: (C, height, width) of each model's images.
        batch_size: B, 128 in the paper.
        rounds: Turns of each.
        progress: Called with "inference" and "training" when these begin.
    """
    start, (first, *others) = perf_counter(), models
    generator = torch.Generator().manual_seed(0)
    images = {
        name: torch.randn(batch_size, *sizes[name], generator=generator).to(_device(model))
        for name, model in models.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in models}
    speed: list[Row] = []
    for mode, work in (("inference", forward_pass), ("training", update_step)):
        progress(mode)
        runs = {name: work(model, images[name]) for name, model in models.items()}
        times = take_turns(runs, rounds=rounds, least_seconds=0.0, clock=perf_counter)
        for name in models:
            rates[name].append(batch_size / times.median(name))
        speed += [(f"{name} {mode} / {first}", *times.speed(name, first)) for name in others]
    rows = []
    for name, model in models.items():
        inference, training = rates[name]
        millions = sum(p.numel() for p in model.parameters()) / 1e6
        rows.append((name, millions, inference, training, PUBLISHED.get(name)))
    config = {
        "models": tuple(models),
        "batch_size": batch_size,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "size": {name: tuple(size) for name, size in sizes.items()},
        "device": str(_device(models[first])),
    }
    return Turns(
        throughput=tuple(rows), speed=tuple(speed), config=config, seconds=perf_counter() - start
    )


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
