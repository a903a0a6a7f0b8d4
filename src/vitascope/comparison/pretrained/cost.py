"""What a network costs, here: parameters, multiply-adds, time and memory of one image.

Latency is the shortest of ten forward passes of one image after two to warm up, on the threads that
torch has: what else runs on the machine only adds to it. Plans go by the median, which has that in
it. Memory is that of the weights and the peak of the tensors that are alive at once while
one image goes through, as seen from Python; what a kernel allocates inside is not in it.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitascope.capture import evaluating
from vitascope.loading.model_sizes import count

WARM, TIMES = 2, 10


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Inference cost of one image."""

    parameters: int
    multiply_adds: int
    milliseconds: float  # shortest
    usual_milliseconds: float  # median
    megabytes: float


def cost_of(model: nn.Module, size: Sequence[int]) -> Cost:
    """Count and measure a model on images of ``size`` (C, H, W)."""
    parameters, multiply_adds = count(model, size)
    tensors = [*model.parameters(), *model.buffers()]
    weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    image = torch.zeros(1, *size, device=next(model.parameters()).device)
    times = []
    with evaluating(model):
        for _ in range(WARM + TIMES):
            began = perf_counter()
            model(image)
            times.append(perf_counter() - began)
        with _Alive() as alive:
            model(image)
    return Cost(
        parameters=parameters,
        multiply_adds=multiply_adds,
        milliseconds=1000 * min(times[WARM:]),
        usual_milliseconds=1000 * median(times[WARM:]),
        megabytes=(weights + alive.peak) / 1e6,
    )


class _Alive(TorchDispatchMode):
    """Counts the bytes of tensors made inside that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_place(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and _place(leaf) not in given | self.known:
                self._add(leaf)
        return made

    def _add(self, tensor: Tensor) -> None:
        storage, address = tensor.untyped_storage(), _place(tensor)
        self.known.add(address)
        self.held += storage.nbytes()
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._drop, address, storage.nbytes())

    def _drop(self, address: int, size: int) -> None:
        self.known.discard(address)
        self.held -= size


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
