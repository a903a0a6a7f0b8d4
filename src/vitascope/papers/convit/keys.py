"""Numbers that are read off the records of a ConViT: gates and nonlocality, accuracy over epochs.

A GPSA layer counts as positional while the mean of its gates is above 0.1; the paper says that 4, 5
and 6 of the 10 layers still pay attention to position (Ti, S, B), and no threshold.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitascope.record import Record


def _nearest(epochs: Sequence[float], share: float) -> int:
    """The place of the epoch nearest to a share of the training; some training is not none.

    >>> [_nearest([0, 1, 2, 3, 5], share) for share in (0.0, 0.05, 0.4, 1.0)]
    [0, 1, 2, 4]
    """
    places = [i for i, epoch in enumerate(epochs) if epoch > 0 or share == 0]
    return min(places, key=lambda i: abs(epochs[i] - share * epochs[-1]))


def head_mean(what: str, share: float = 1.0, layers: slice = slice(None)) -> Any:
    """Gates or nonlocality: the mean over some layers and all heads at a share of the training."""

    def key(record: Record) -> float | None:
        found = record.arrays.get(what)
        if found is None:
            return None
        return float(np.nanmean(found[_nearest(record.values["epochs"], share), layers]))

    return key


def positional_layers(record: Record) -> float:
    """The share of GPSA layers whose gates are above 0.1 on average at the end."""
    return float((np.nanmean(record.arrays["gates"][-1], axis=-1) > 0.1).mean())


def value_at(what: str, share: float) -> Any:
    """A number of the learning curves at the measured epoch nearest to a share of the training."""

    def key(record: Record) -> float | None:
        return record.values[what][_nearest(record.values["epoch"], share)]

    return key
