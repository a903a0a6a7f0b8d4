"""Every test starts from the same seeds, on OMP_NUM_THREADS threads or on one."""

import os
import random

import numpy as np
import pytest
import torch

import vitascope  # noqa: F401  (before timm: it mends torchvision beside a CPU-only torch)

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def same_seeds():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


same_seeds()  # for what modules draw when they are imported


@pytest.fixture(autouse=True)
def seed():
    same_seeds()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    """What several tests share is the same whichever of them runs first."""
    if fixturedef.scope != "function":
        same_seeds()
