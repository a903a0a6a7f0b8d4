"""Experiment trackers (TensorBoard, W&B, MLflow, ...) through Accelerate."""

from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

from vitascope.errors import UserError, unknown
from vitascope.settings import flat

__all__ = ["PROJECT", "chosen", "flat_config"]

PROJECT = "vitascope"  # what services file the runs under
USUAL = "tensorboard"


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
