"""The stopwatch itself."""

import time

import pytest
import torch

from vitascope.bench.timing import peak_memory, take_turns


def test_the_slower_candidate_has_the_smaller_speed():
    times = take_turns(
        {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)},
        rounds=3,
        least_seconds=0.0,
    )
    low, middle, high = times.speed("short", "long")
    assert low <= middle <= high
    assert middle > 2
    assert len(times.seconds["short"]) == 3


def test_peak_memory_counts_what_lives_at_once():
    def at_once():
        a = torch.zeros(1000, 1000)
        b = torch.zeros(1000, 1000)
        return a, b

    def one_after_the_other():
        a = torch.zeros(1000, 1000)
        del a
        torch.zeros(1000, 1000)

    assert peak_memory(at_once) == pytest.approx(8e6, rel=0.05)
    assert peak_memory(one_after_the_other) == pytest.approx(4e6, rel=0.05)
