"""Every test runs on one thread and starts from the same seed."""

import pytest
import torch

import vitascope  # noqa: F401  (before timm: it mends torchvision beside a CPU-only torch)

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
