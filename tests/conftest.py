"""Every test starts from the same seeds, on OMP_NUM_THREADS threads or on one.

Without AMX: virtual machines that announce it and do not run it end a process that uses it.
"""

import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # before torch's first product
import torch

import vitascope  # noqa: F401  (before timm: it mends torchvision beside a CPU-only torch)
from commands import COMPARE
from vitascope.commands import main

pytest_plugins = ["rounding_noise"]  # --rounding-noise SEED

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def same_start():
    torch.set_num_threads(THREADS)  # a command with --threads has changed it
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background; tests use it,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and processes would inherit that

same_start()  # for what modules draw when they are imported


@pytest.fixture(autouse=True)
def seed():
    same_start()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    """What several tests share is the same whichever of them runs first."""
    if fixturedef.scope != "function":
        same_start()


@pytest.fixture(scope="session")
def comparison(tmp_path_factory) -> Path:
    """A real, short comparison, made once for all processes; who changes it takes a copy."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    out = shared / "comparison"
    with FileLock(shared / "comparison.lock"):
        if not (out / "report.html").exists():
            assert main([*COMPARE, "--out", str(out), "--processes", "1", "--quiet"]) == 0
    return out
