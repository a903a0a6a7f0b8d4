"""How much of the machine a model's training uses: its arithmetic against a large matrix product.

    share = (floating-point operations of a step / its seconds) / (2 x 1024^3 / seconds of A B)

with A and B of 1024 x 1024 in float32, which take turns with the steps in one process. A step is
forward and backward and counts as three forward passes; two operations a multiply-add. What is left
of 1 goes to normalisation, softmax, activations, small products and moving memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitascope.capture import logits_of
from vitascope.measure.timing import take_turns
from vitascope.models import create_model

SIDE = 1024
SMALL_MODELS: dict[str, str] = {  # label -> name
    f"{name}, {grid}": name + suffix
    for name in ("vit_micro", "convit_micro", "vit_mini", "convit_mini")
    for grid, suffix in (("8 x 8 grid", "+patch4"), ("16 x 16 grid", "+patch2"))
} | {name: name for name in ("resnet_micro", "alternet_micro", "resnet_mini", "alternet_mini")}


def training_flops(model: nn.Module, images: torch.Tensor) -> int:
    """Floating-point operations of forward and backward for these images."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model(images[:1])
    return 3 * counter.get_total_flops() * len(images)


def machine_shares(
    models: Mapping[str, str] = SMALL_MODELS,
    *,
    batch_size: int = 64,
    rounds: int = 5,
    progress: Callable[[str], object] = lambda stage: None,
) -> list[tuple[Any, ...]]:
    """Label, images a second, Gflop/s, and lower quartile, median and upper quartile of the share.

    Args:
        models: Name by label; for images of 32 x 32.
        batch_size: Images of a step.
        rounds: Turns of each.
    """
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    images, labels = torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
    rows = []
    for label, name in models.items():
        progress(label)
        model = create_model(name, num_classes=10)
        flops = training_flops(model.eval(), images)
        model.train()

        def step(model: nn.Module = model) -> None:
            model.zero_grad()
            F.cross_entropy(logits_of(model(images)), labels).backward()

        times = take_turns({"step": step, "product": lambda: a @ b}, rounds=rounds)
        factor = flops / (2 * SIDE**3)
        shares = [factor * ratio for ratio in times.speed("step", "product")]
        seconds = times.median("step")
        rows.append((label, batch_size / seconds, flops / seconds / 1e9, *shares))
    return rows
