"""Observers: functions called with the model while it trains.

An observer is called as ``observer(epoch, step, model, run_folder)`` before the first step
(epoch 0) and after every epoch, on the main process, in eval mode. Whatever it does to random
generators, modes and gradients is undone: a run with observers gives the same weights, bit for
bit. Pictures that it returns, by name, go to the run's trackers. After a kill, the epochs since the
last checkpoint are run and observed again.

    >>> sorted(log_spaced(300, 6))
    [0, 1, 4, 17, 72, 300]
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import nn

from vitascope.capture import evaluating
from vitascope.training.run_folder.files import save_tensors

__all__ = [
    "Observer",
    "Pictures",
    "at_epochs",
    "every",
    "keep_weights",
    "log_spaced",
    "restoring_state",
]

Pictures = Mapping[str, np.ndarray]  # name -> (height, width, 3), uint8


class Observer(Protocol):
    """A function called with a model in training."""

    def __call__(
        self, epoch: int, step: int, model: nn.Module, run_folder: Path
    ) -> Pictures | None:
        """Look at ``model`` after ``epoch`` epochs and ``step`` steps; pictures may be returned."""


def at_epochs(when: Collection[int] | Callable[[int], bool], observer: Observer) -> Observer:
    """``observer``, called only at these epochs."""
    chosen = when if callable(when) else set(when).__contains__

    def observe(epoch: int, step: int, model: nn.Module, run_folder: Path) -> Pictures | None:
        return observer(epoch, step, model, run_folder) if chosen(epoch) else None

    return observe


def every(epochs: int) -> Callable[[int], bool]:
    """True at 0, ``epochs``, twice that, and so on."""
    return lambda epoch: epoch % epochs == 0


def log_spaced(last: int, count: int) -> set[int]:
    """0, ``last`` and epochs between them at equal ratios, about ``count`` in all."""
    return {0, *(int(e) for e in np.rint(np.geomspace(1, last, max(1, count - 1))))}


def keep_weights(epochs: Collection[int]) -> Observer:
    """An observer that writes ``weights/epoch-0003.safetensors`` at the given epochs."""

    def keep(epoch: int, step: int, model: nn.Module, run_folder: Path) -> None:
        save_tensors(run_folder / "weights" / f"epoch-{epoch:04d}.safetensors", model.state_dict())

    return at_epochs(epochs, keep)


@contextmanager
def restoring_state(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; modes, gradients and random generators are restored after it.

    Gradients are enabled inside, and discarded at the end.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    gradients = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), evaluating(model), torch.enable_grad():
        try:
            for p, _, _ in gradients:
                p.grad = None
            yield
        finally:
            for p, gradient, required in gradients:
                p.grad = gradient
                p.requires_grad_(required)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
