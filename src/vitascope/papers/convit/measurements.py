"""What is read off the record of a ConViT: gates and nonlocality, numbers over its epochs.

A GPSA layer counts as positional while the mean of its gates is above 0.1; the paper says that 4, 5
and 6 of the 10 layers still pay attention to position (Ti, S, B), and no threshold.
"""

from collections.abc import Callable, Sequence

import numpy as np

from vitascope.papers.figures import CURVES, attention_trace
from vitascope.papers.plan import Measurement
from vitascope.papers.scale import Scale
from vitascope.record import Record

ALL = slice(None)  # layers


def _nearest(epochs: Sequence[float], share: float) -> int:
    """The index of the epoch nearest to a share of the training; some training is not none.

    >>> [_nearest([0, 1, 2, 3, 5], share) for share in (0.0, 0.05, 0.4, 1.0)]
    [0, 1, 2, 4]
    """
    candidates = [i for i, epoch in enumerate(epochs) if epoch > 0 or share == 0]
    return min(candidates, key=lambda i: abs(epochs[i] - share * epochs[-1]))


def head_mean(
    quantity: str, share: float = 1.0, layers: slice = ALL
) -> Callable[[Record], float | None]:
    """Gates or nonlocality: the mean over some layers and all heads at a share of the training."""

    def key(record: Record) -> float | None:
        values = record.arrays.get(quantity)
        if values is None:
            return None
        return float(np.nanmean(values[_nearest(record.values["epochs"], share), layers]))

    return key


def nonlocality(scale: Scale, share: float = 1.0, layers: slice = ALL) -> Measurement:
    """The mean distance of attention at a share of the training."""
    key = head_mean("nonlocality", share, layers)
    return Measurement(key, "nonlocality, patches", attention_trace(scale), digits=2)


def gate(scale: Scale, share: float = 1.0, layers: slice = ALL) -> Measurement:
    """The mean gate at a share of the training."""
    return Measurement(head_mean("gates", share, layers), "gate", attention_trace(scale), digits=3)


def positional_layers(record: Record) -> float:
    """The share of GPSA layers whose gates are above 0.1 on average at the end."""
    return float((np.nanmean(record.arrays["gates"][-1], axis=-1) > 0.1).mean())


def top1_at(share: float) -> Measurement:
    """Top-1 at the measured epoch nearest to a share of the training."""
    return Measurement(_on_curve("top1", share), reading=CURVES)


def test_loss_at(share: float) -> Measurement:
    """The loss on the test images at the measured epoch nearest to a share of the training."""
    return Measurement(_on_curve("test_nll", share), "NLL, nats", CURVES, digits=3)


def _on_curve(name: str, share: float) -> Callable[[Record], float | None]:
    def key(record: Record) -> float | None:
        return record.values[name][_nearest(record.values["epoch"], share)]

    return key
