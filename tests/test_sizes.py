"""Counting parameters and multiply-adds."""

import pytest

from benchmarks.training import random_images
from vitascope import create_model
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import build


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", ["vit_micro", "convit_micro"])
def test_multiply_adds_are_those_counted_by_hand(device, name):
    """Fused attention hides its products from the counter: they must not be missed."""
    dim, depth, patches, classes = 72, 4, 64, 10
    model = create_model(name, num_classes=classes, device=device)
    parameters, found = count(model, (3, 32, 32))
    gpsa = 3 if name == "convit_micro" else 0
    total = patches * dim * 3 * 4 * 4 + dim * classes
    for block in range(depth):
        tokens = patches if block < gpsa else patches + 1
        total += tokens * dim * dim * (3 + 1 + 8) + 2 * tokens**2 * dim
        total += 2 * patches * 8 * dim if block < gpsa else 0  # two windows of 8 x 8 a head
    assert found == pytest.approx(total, rel=1e-3)
    assert parameters == sum(p.numel() for p in model.parameters())
    assert model.training


@pytest.mark.parametrize("side", [32, 64])
def test_mini_models_cost_the_same_at_every_image_size(side):
    images = random_images(16, side)
    sizes = [
        count(build(f"{family}_mini", images).model, (3, side, side))
        for family in ("vit", "convit", "resnet", "alternet")
    ]
    for parameters, multiply_adds in sizes:
        assert parameters == pytest.approx(1.05e6, rel=0.05)
        assert multiply_adds == pytest.approx(320e6, rel=0.07)


def test_micro_and_mini_models_keep_their_own_grid():
    images = random_images(16, 64)
    grids = {
        name: build(name, images).model.patch_embed.grid_size for name in ("vit_micro", "vit_mini")
    }
    assert grids == {"vit_micro": (8, 8), "vit_mini": (16, 16)}
