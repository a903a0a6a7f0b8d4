"""Compare run times: candidates take turns in one process.

A machine's clock, neighbours and temperature drift, so absolute times are
not comparable. Here the candidates take turns, round after round; each round gives one ratio to the
reference, and the median over the rounds is reported with its quartiles. On one thread they are
timed in processor time, which leaves out what others on the machine take.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, ClassVar

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from vitascope.measure.result import InstrumentResult

CLOCK = "processor time on one thread, wall clock on more"  # of `take_turns`
Row = tuple[str, float, float, float]  # what against what, lower quartile, median, upper quartile


@dataclass(frozen=True, kw_only=True)
class Benchmark(InstrumentResult):
    """Result of a benchmark, in the fields of its own class, with its settings."""

    subject: ClassVar[str]
    seed: ClassVar[int] = 0
    config: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __init_subclass__(cls, subject: str) -> None:
        super().__init_subclass__(kind=f"bench-{subject}")
        cls.subject = subject


@dataclass(frozen=True)
class TimedComparison:
    """Seconds of every candidate in every round."""

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        """Median seconds of one call."""
        return float(np.median(self.seconds[name]))

    def speed(self, name: str, reference: str) -> tuple[float, float, float]:
        """Return how many times faster than the reference: lower quartile, median, upper quartile.

        >>> TimedComparison({"a": (1.0, 1.0, 2.0), "b": (2.0, 2.0, 4.0)}).speed("a", "b")
        (2.0, 2.0, 2.0)
        """
        ratios = np.array(self.seconds[reference]) / np.array(self.seconds[name])
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        return float(low), float(middle), float(high)


def take_turns(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    warmup: int = 1,
    least_seconds: float = 0.1,
    clock: Callable[[], float] | None = None,
    progress: Callable[[], object] = lambda: None,
) -> TimedComparison:
    """Time the candidates in turn; quick ones are repeated to fill ``least_seconds`` per turn.

    The clock is `CLOCK` unless given; on a GPU give ``perf_counter``.
    """
    if clock is None:
        clock = process_time if torch.get_num_threads() == 1 else perf_counter
    repeats = {}
    for name, run in candidates.items():
        for _ in range(warmup):
            run()
        start = clock()
        run()
        repeats[name] = max(1, round(least_seconds / max(clock() - start, 1e-9)))
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for turn in range(rounds):
        for name in order if turn % 2 == 0 else reversed(order):  # alternate the order
            start = clock()
            for _ in range(repeats[name]):
                candidates[name]()
            seconds[name].append((clock() - start) / repeats[name])
        progress()
    return TimedComparison({name: tuple(values) for name, values in seconds.items()})


def peak_memory(run: Callable[[], object]) -> int:
    """The most bytes that ``run`` held on the CPU at once, beyond what was there before."""
    run()  # what is allocated once and kept is not its own
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    sizes = np.cumsum([event.nbytes() for event in events]) if events else np.zeros(1)
    return int(max(sizes.max(), 0))
