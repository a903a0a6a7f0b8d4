"""What the corruptions cost: against imagecorruptions-imaug.

Both make all 15 corruptions at all 5 severities, with ImageNet-C's constants (the peer has no
others), of the same pieces of a photograph, taking turns in one process; ours batch by batch, the
peer image by image, its only way. Rates are images per second, median over the rounds. The
mean rate is that of the whole set: images made over seconds taken.
"""

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor

from vitascope.errors import UserError
from vitascope.measure.robustness.corruptions import CORRUPTIONS, corrupt
from vitascope.measure.timing import CLOCK, Benchmark, Row, TimedComparison, take_turns
from vitascope.threads import running_on

PEER = "imagecorruptions-imaug"
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class CorruptionBenchmark(Benchmark, subject="corruptions"):
    """Ratios above 1 mean faster than the peer."""

    speed: tuple[Row, ...]
    rates: tuple[tuple[str, float, float], ...]  # corruption and size, our images/s, the peer's


def pieces(count: int, side: int) -> Tensor:
    """Square pieces of a photograph. (count, 3, side, side) uint8"""
    photograph = load_sample_image("china.jpg")
    rng = np.random.default_rng(0)
    corners = zip(*(rng.integers(0, n - side, count) for n in photograph.shape[:2]), strict=True)
    cut = [photograph[top : top + side, left : left + side] for top, left in corners]
    return torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).contiguous()


def ours(images: Tensor, name: str) -> None:
    """Every severity, a batch at a time."""
    for severity in SEVERITIES:
        corrupt(images, name, severity, constants="imagenet")


def theirs(change: Callable[..., Any], arrays: list[np.ndarray], name: str) -> None:
    """Every severity, an image at a time."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints when sizes do not fit
        for severity in SEVERITIES:
            for array in arrays:
                change(array, severity, name)


def summed(comparisons: list[TimedComparison]) -> TimedComparison:
    """The whole set: seconds of each round added up."""
    names = comparisons[0].seconds
    return TimedComparison(
        {n: tuple(np.sum([c.seconds[n] for c in comparisons], axis=0).tolist()) for n in names}
    )


def time_corruptions(
    *,
    sides: tuple[int, ...] = (32, 224),
    batch_size: int = 4,
    rounds: int = 5,
    threads: int = 1,
    corruptions: tuple[str, ...] = CORRUPTIONS,
    progress: Callable[[str], object] = lambda stage: None,
) -> CorruptionBenchmark:
    """Time every corruption at every size.

    Args:
        sides: Of the images, in pixels.
        batch_size: Images at 224 pixels; below 100 pixels 16 times as many.
        rounds: Turns that each candidate takes.
        threads: Of torch.
        corruptions: Which to time.
        progress: Called with the corruption about to be timed.
    """
    try:
        from imagecorruptions import corrupt as change
    except ImportError:
        raise UserError("the peer is missing: pip install 'vitascope[test]'") from None
    start = perf_counter()
    speed: list[Row] = []
    rates: list[tuple[str, float, float]] = []
    counts = {side: batch_size * (16 if side < 100 else 1) for side in sides}
    with running_on(threads):
        for side, count in counts.items():
            images = pieces(count, side)
            arrays = list(images.permute(0, 2, 3, 1).contiguous().numpy())
            times = {}
            for name in corruptions:
                progress(f"{name}, {side} px")
                runs = {"ours": partial(ours, images, name)}
                runs["peer"] = partial(theirs, change, arrays, name)
                times[name] = take_turns(runs, rounds=rounds, least_seconds=0.0)
            _report(times, side, count * len(SEVERITIES), speed, rates)
    config = {"images": counts, "rounds": rounds, "threads": threads, "clock": CLOCK}
    config |= {"constants": "imagenet"}
    return CorruptionBenchmark(
        tuple(speed), tuple(rates), config=config, seconds=perf_counter() - start
    )


def _report(
    times: dict[str, TimedComparison],
    side: int,
    made: int,
    speed: list[Row],
    rates: list[tuple[str, float, float]],
) -> None:
    """Add the rows of one size: the whole set, the slowest of ours, then each corruption."""
    whole = summed(list(times.values()))
    slowest = max(times, key=lambda name: times[name].median("ours"))
    speed.append((f"whole set, {side} px / {PEER}", *whole.speed("ours", "peer")))
    pair = f"slowest of ours ({slowest}), {side} px / {PEER}"
    speed.append((pair, *times[slowest].speed("ours", "peer")))
    both = ("ours", "peer")
    mine, peer = (len(times) * made / whole.median(who) for who in both)
    rates.append((f"mean, {side} px", mine, peer))
    mine, peer = (made / max(t.median(who) for t in times.values()) for who in both)
    rates.append((f"slowest of each, {side} px", mine, peer))
    for name, time in times.items():
        mine, peer = (made / time.median(who) for who in both)
        rates.append((f"{name}, {side} px", mine, peer))
