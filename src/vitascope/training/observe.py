"""Observers: functions called with the model while it trains.

An observer is called as ``observer(epoch, step, model, run_folder)`` before the first step
(epoch 0) and after every epoch, on the main process, in eval mode. Whatever it does to random
generators, modes and gradients is undone: a run with observers gives the same weights, bit for
bit. Pictures that it returns, by name, go to the run's trackers. After a kill, the epochs since the
last checkpoint are run and observed again.

    >>> sorted(log_spaced(300, 6))
    [0, 1, 4, 17, 72, 300]

Experiment trackers (TensorBoard, W&B, MLflow, ...) run through Accelerate.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers
from torch import nn

from vitascope.capture import evaluating
from vitascope.errors import UserError, unknown
from vitascope.settings import flat
from vitascope.training.run_folder.lock import save_tensors

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


PROJECT = "vitascope"  # what services file the runs under

USUAL = "tensorboard"

_KINDS: Mapping[str, Any] = {str(name): kind for name, kind in LOGGER_TYPE_TO_CLASS.items()}


def chosen(names: Sequence[str | GeneralTracker] | None) -> list[str | GeneralTracker]:
    """Checked trackers; None means TensorBoard where it is installed.

    Raises:
        UserError: For an unknown tracker, or one that is not installed.
    """
    installed = [str(name) for name in get_available_trackers()]
    if names is None:
        return [USUAL] if USUAL in installed else []
    for name in names:
        if isinstance(name, GeneralTracker):
            continue
        if name not in LOGGER_TYPE_TO_CLASS:
            raise unknown("tracker", name, sorted(LOGGER_TYPE_TO_CLASS))
        if name not in installed:
            available = ", ".join(installed) or "none"
            raise UserError(
                f"tracker {name!r} is not installed (installed: {available}); "
                f"pip install {name.replace('_', '-')}"
            )
    return list(names)


def flat_config(config: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Nested settings as one level of plain values, which is all that trackers take.

    >>> flat_config({"recipe": {"lr": 0.1, "ema": None}, "seed": 3})
    {'recipe.lr': 0.1, 'recipe.ema': 'None', 'seed': 3}
    """
    return {
        name: value if isinstance(value, (int, float, str)) else str(value)
        for name, value in flat(config).items()
    }


def require_pictures(names: Sequence[str | GeneralTracker] | None) -> None:
    """Check that one of the trackers takes pictures, before anything is trained.

    Raises:
        UserError: If none does.
    """
    trackers = chosen(names)
    kinds = [name if isinstance(name, GeneralTracker) else _KINDS[name] for name in trackers]
    if any(hasattr(kind, "log_images") for kind in kinds):
        return
    takers = ", ".join(sorted(n for n, kind in _KINDS.items() if hasattr(kind, "log_images")))
    if trackers:
        given = ", ".join(name if isinstance(name, str) else name.name for name in trackers)
        raise UserError(f"{given} takes no pictures; give --trackers with one of {takers}")
    raise UserError(
        f"pictures go to a tracker and there is none; leave --no-tracking out, or install one of "
        f"{takers}"
    )


def log_pictures(
    trackers: Iterable[GeneralTracker], pictures: Mapping[str, np.ndarray], step: int
) -> None:
    """Hand pictures (height, width, 3) to every tracker that takes them.

    Accelerate passes them on in the form that each service asks for: TensorBoard a batch and the
    order of its axes, Aim and ClearML one array, the others a list.
    """
    if not pictures:
        return
    for tracker in trackers:
        if not hasattr(tracker, "log_images"):
            continue
        if tracker.name == "tensorboard":
            batches = {name: picture[None] for name, picture in pictures.items()}
            tracker.log_images(batches, step=step, dataformats="NHWC")
        elif tracker.name in ("aim", "clearml"):
            tracker.log_images(dict(pictures), step=step)
        else:
            tracker.log_images({name: [picture] for name, picture in pictures.items()}, step=step)
