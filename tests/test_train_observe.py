"""Observers see everything and change nothing."""

import vitascope  # noqa: F401 - mends torchvision before timm is imported

# isort: split
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model_making import small_vit
from vitascope import data
from vitascope.training import at_epochs, every, keep_weights, log_spaced, recipe, train


def go(folder, observers=(), **changes):
    digits = data.load("digits")
    few = {"train": digits.train.take(range(96)), "test": digits.test.take(range(40))}
    torch.manual_seed(5)
    model = small_vit(drop_path_rate=0.3)
    settings = recipe("laptop", **{"epochs": 3, "batch_size": 32, **changes})
    images = data.Dataset(**{**digits.__dict__, **few})
    return train(model, images, settings, folder, observers=observers, quiet=True, trackers=())


class Meddler:
    """Does what an instrument might: random numbers, gradients, modes."""

    def __init__(self):
        self.calls, self.modes = [], []

    def __call__(self, epoch, step, model, run_folder):
        self.calls.append((epoch, step))
        self.modes.append(any(m.training for m in model.modules()))
        assert run_folder.is_dir()
        torch.manual_seed(99)
        random.seed(99)
        np.random.seed(99)  # noqa: NPY002
        model(torch.randn(2, 1, 8, 8)).sum().backward()
        model.train()
        for parameter in model.parameters():
            parameter.requires_grad_(False)


def test_a_run_that_is_observed_ends_with_the_same_bits(tmp_path):
    meddler = Meddler()
    observed, alone = go(tmp_path / "a", [meddler]), go(tmp_path / "b")
    assert meddler.calls == [(0, 0), (1, 3), (2, 6), (3, 9)]
    assert not any(meddler.modes)
    a, b = load_file(observed.weights), load_file(alone.weights)
    assert all(torch.equal(a[name], b[name]) for name in b)


def test_generators_of_the_caller_are_left_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    digits = data.load("digits")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    torch.set_rng_state(state)
    train(model, digits, recipe("laptop", epochs=1), tmp_path / "a", quiet=True, trackers=())
    assert torch.equal(torch.rand(3), expected)


def test_weights_are_kept_at_chosen_epochs(tmp_path):
    run = go(tmp_path / "a", [keep_weights([0, 2])], keep_epochs=(3,), keep_best=True)
    names = sorted(p.name for p in (tmp_path / "a" / "weights").iterdir())
    assert names == [f"epoch-{epoch:04d}.safetensors" for epoch in (0, 2, 3)]
    last = load_file(tmp_path / "a" / "weights" / "epoch-0003.safetensors")
    final = load_file(run.weights)
    assert all(torch.equal(last[name], final[name]) for name in final)
    assert run.best["top1"] == max(row["top1"] for row in run.metrics)
    assert (tmp_path / "a" / "best.safetensors").exists()


def test_a_run_may_finish_with_its_best_epoch(tmp_path):
    """A learning rate that grows spoils what the first epochs have learned."""
    changes = {"epochs": 4, "warmup_epochs": 4, "warmup_lr": 3e-3, "lr": 1.0, "clip_grad": None}
    how = {**changes, "explode": 1e9, "keep_epochs": (1, 2, 3, 4)}
    last = go(tmp_path / "a", **how)
    best = go(tmp_path / "b", **how, finish="best")
    losses = [row["test_nll"] for row in best.metrics]
    assert losses == [row["test_nll"] for row in last.metrics]
    assert last.final["epoch"] == 4
    assert best.final == best.metrics[losses.index(min(losses))]
    assert best.final["epoch"] < 4
    kept = load_file(tmp_path / "b" / "weights" / f"epoch-{best.final['epoch']:04d}.safetensors")
    final = load_file(best.weights)
    assert all(torch.equal(kept[name], final[name]) for name in final)
    assert best.predictions.correct.mean() == pytest.approx(best.final["top1"])
    assert not (tmp_path / "b" / "lowest.safetensors").exists()


def test_epochs_are_chosen_by_list_by_step_or_by_ratio():
    seen = []

    def observer(epoch, step, model, run_folder):
        seen.append(epoch)

    for when in ([1, 4], every(3), log_spaced(8, 5)):
        for epoch in range(9):
            at_epochs(when, observer)(epoch, 0, None, None)
        seen.append(None)
    assert seen == [1, 4, None, 0, 3, 6, None, 0, 1, 2, 4, 8, None]


def test_metrics_are_measured_when_due_and_at_the_end(tmp_path):
    run = go(tmp_path / "a", eval_every=2)
    assert [row["top1"] is None for row in run.metrics] == [True, False, False]
