"""How large the models are: parameters and FLOPs, next to the paper's Table 1.

d'Ascoli et al. 2021, Table 1. The papers' "FLOPs" are multiply-adds; torch's counter counts two per
multiply-add, and sees attention only on the math path: fused kernels hide it. Models are built
without memory (on the meta device), so even the largest takes a moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitascope.errors import unknown
from vitascope.layers import ContextBroadcast, broadcast_cost
from vitascope.models import create_model, list_models
from vitascope.record import Record

PAPER = {  # millions of parameters, GFLOPs, ImageNet top-1
    "deit_tiny": (6, 1, 72.2),
    "convit_tiny": (6, 1, 73.1),
    "deit_tiny_plus": (10, 2, 75.9),
    "convit_tiny_plus": (10, 2, 76.7),
    "deit_small": (22, 4.3, 79.8),
    "convit_small": (27, 5.4, 81.3),
    "deit_small_plus": (48, 10, 79.0),
    "convit_small_plus": (48, 10, 82.2),
    "deit_base": (86, 17, 81.8),
    "convit_base": (86, 17, 82.4),
    "deit_base_plus": (152, 30, 77.5),
    "convit_base_plus": (152, 30, 82.5),
}


@dataclass(frozen=True)
class Size:
    """One row: ours, and the paper's where it has the model."""

    name: str
    parameters: int
    multiply_adds: int
    paper_parameters: float | None = None  # millions
    paper_flops: float | None = None  # 10^9 multiply-adds
    paper_top1: float | None = None


def names(pattern: str | None) -> list[str]:
    """The models that match, ours first; ours alone without a pattern. None is an error."""
    matches = list_models(pattern)
    if not matches:
        raise unknown("model", str(pattern), list_models("*"))
    return matches


def count(model: nn.Module, shape: Sequence[int]) -> tuple[int, int]:
    """Parameters, and multiply-adds for one image of ``shape`` (C, height, width)."""
    device = next(model.parameters()).device
    counter = FlopCounterMode(display=False)
    image = torch.zeros(1, *shape, device=device)
    was_training, learned = model.training, [p for p in model.parameters() if p.requires_grad]
    model.eval()
    for parameter in learned:  # the counter asks tensors that may learn for their gradient
        parameter.requires_grad_(False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model(image)
    for parameter in learned:
        parameter.requires_grad_(True)
    model.train(was_training)
    multiply_adds = counter.get_total_flops() // 2
    if any(isinstance(layer, ContextBroadcast) for layer in model.modules()):
        multiply_adds += broadcast_cost(model, image).multiply_adds or 0  # no product, so not seen
    return sum(p.numel() for p in model.parameters()), multiply_adds


def table1(
    names: Sequence[str] = tuple(PAPER), progress: Callable[[str], object] = lambda name: None
) -> list[Size]:
    """Count the models, by default all of Table 1."""
    rows = []
    for name in names:
        progress(name)
        with torch.device("meta"):
            model = create_model(name)
        shape = cast(dict[str, Any], model.pretrained_cfg)["input_size"]
        sizes = count(model, shape)
        rows.append(Size(name, *sizes, *PAPER.get(name, ())))
    return rows


def to_record(rows: Sequence[Size], started: float) -> Record:
    """The sizes as a record."""
    return Record(kind="table1", values={"rows": rows}, seconds=perf_counter() - started)
