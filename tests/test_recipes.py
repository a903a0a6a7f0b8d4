"""Every recipe trains every small model."""

from dataclasses import replace

import numpy as np
import pytest

from vitascope import data
from vitascope.models.registry import OURS
from vitascope.studies.session.models import build
from vitascope.train import RECIPES, recipe, train

SMALL = sorted(name for name in OURS if "micro" in name)


@pytest.fixture(scope="module")
def few():
    digits = data.load("digits")
    return replace(
        digits, train=digits.train.take(np.arange(48)), test=digits.test.take(np.arange(20))
    )


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_an_epoch_of_any_recipe_moves_any_small_model(name, model, few, tmp_path):
    plan = recipe(name, epochs=1, batch_size=16, warmup_epochs=0)
    subject = build(model, few, drop_path=plan.drop_path)
    before = {key: value.clone() for key, value in subject.model.state_dict().items()}
    run = train(subject.model, few, plan, tmp_path / "a", quiet=True, trackers=())
    assert run.final["step"] == len(few.train) // 16
    assert np.isfinite(run.final["train_loss"])
    assert 0 <= run.final["top1"] <= 1
    moved = [
        key for key, value in subject.model.state_dict().items() if not value.equal(before[key])
    ]
    assert moved
