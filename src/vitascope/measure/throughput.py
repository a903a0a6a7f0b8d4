"""Throughput of a model: images per second, in inference or in training.

ConViT Table 1 (d'Ascoli et al. 2021): forward passes of batches of 128 images at 224 x 224 on a
Quadro GP100. Park and Kim 2022, appendix A: training throughputs on CIFAR-100, so an update here is
a forward pass, the backward pass and a step of AdamW. The images are noise already on the device;
loading is not timed. The median over rounds is given with its quartiles. Numbers of different
machines cannot be compared, ratios of models on one machine can.

Shapes: B images of (C, height, width).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import evaluating, logits_of
from vitascope.record import Record

__all__ = ["PUBLISHED", "Mode", "Throughput", "forward_pass", "throughput", "update_step"]

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
class Throughput:
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

    def to_record(self) -> Record:
        """Median, quartiles and how they were measured."""
        low, high = np.quantile(self.rates, [0.25, 0.75])
        values = {"images_per_second": self.median, "quartiles": [float(low), float(high)]}
        values |= {"mode": self.mode, "batch_size": self.batch_size}
        values |= {"parameters": self.parameters, "device": self.device}
        return Record(kind="throughput", values=values)


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
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
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
