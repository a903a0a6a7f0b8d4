"""Small image sets for the tests to work on, and limits that a test must keep."""

import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitascope.data import MemoryImages


def photo(seed, width=12, height=12, mode="RGB"):
    """An image with smooth shapes and every grey in it."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def photos(count, channels=3, side=12):
    """(count, channels, side, side) uint8"""
    mode = {1: "L", 3: "RGB"}[channels]
    arrays = [np.array(photo(i, side, side, mode)).reshape(side, side, -1) for i in range(count)]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def numbered(count, num_classes=4, side=4):
    """Images that say which they are: every pixel of image i is i, its class i % num_classes."""
    pixels = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, side, side)
    names = [f"c{i}" for i in range(num_classes)]
    return MemoryImages(pixels.contiguous(), np.arange(count) % num_classes, names)


def write_folder(root, classes, count=5, size=(12, 12), suffix="png"):
    """``root/class/NN.suffix``; a class is a name, or a name with its own count."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(count):
            photo(100 * number + i, *size).save(root / name / f"{i:02d}.{suffix}")
    return root


@contextmanager
def little_memory(megabytes):
    """Inside, the process may grow by so much; beyond it every allocation fails."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + megabytes * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def no_waiting(seconds=60, what="it"):
    """Inside, what computes for longer is stopped, and the test fails.

    So does what waits for ten times as long by the clock: on a busy machine everything waits.
    """

    def stop(*_):
        raise AssertionError(f"{what} is not done after {seconds} seconds of computing")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
