"""Experiment trackers (TensorBoard, W&B, MLflow, ...) through Accelerate."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

from vitascope.errors import UserError, unknown
from vitascope.settings import flat

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
            there = ", ".join(installed) or "none"
            raise UserError(
                f"tracker {name!r} is not installed (installed: {there}); "
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
    there = chosen(names)
    kinds = [name if isinstance(name, GeneralTracker) else _KINDS[name] for name in there]
    if any(hasattr(kind, "log_images") for kind in kinds):
        return
    takers = ", ".join(sorted(n for n, kind in _KINDS.items() if hasattr(kind, "log_images")))
    if there:
        given = ", ".join(name if isinstance(name, str) else name.name for name in there)
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
