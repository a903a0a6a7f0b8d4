"""The exponential moving average of a model's weights.

    average <- decay * average + (1 - decay) * weights       after every update

The same numbers as timm's ``ModelEmaV3`` (a test holds them together). Ours keeps named tensors
instead of a copied module, because a sharded (FSDP) module cannot be copied: a shard's average is
a shard of the average.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Running average of every floating-point entry of a model's state; others follow along."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in _state(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one more set of weights into the average."""
        averages, weights = [], []
        for name, value in _state(model).items():
            if value.is_floating_point():
                averages.append(self.state[name])
                weights.append(value)
            else:
                self.state[name].copy_(value)
        torch._foreach_lerp_(averages, weights, 1.0 - self.decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, bit for bit."""
        own = {name: value.detach().clone() for name, value in _state(model).items()}
        _copy(model, self.state)
        try:
            yield
        finally:
            _copy(model, own)


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}


@torch.no_grad()
def _copy(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, value in _state(model).items():
        value.copy_(values[name])
