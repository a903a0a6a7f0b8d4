"""Several processes must be one run."""

import vitascope  # noqa: F401 - mends torchvision before timm is imported

# isort: split
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model_making import small_vit
from vitascope import data
from vitascope.errors import Interrupted
from vitascope.training import load_run, recipe, train


class StopAt:
    """Asks the last process, and it alone, to stop at its n-th forward pass in training."""

    def __init__(self, pass_number):
        self.left = pass_number if os.environ.get("RANK", "0") != "0" else -1

    def __call__(self, model, _inputs):
        self.left -= model.training
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)


def go(folder, fsdp=False, resume=False, stop_at=-1, **changes):
    """The same short run, on however many processes there are."""
    digits = data.load("digits")
    few = {"train": digits.train.take(range(100)), "test": digits.test.take(range(51))}
    torch.manual_seed(5)
    model = small_vit()
    model.register_forward_pre_hook(StopAt(stop_at))
    # plain SGD: where a gradient is nearly zero, Adam makes rounding into a step
    settings = recipe(
        "laptop",
        epochs=2,
        batch_size=16,
        eval_batch=13,
        optimizer="sgd",
        lr=0.1,
        **{"augmentation.mixup": 0.2, "ema": 0.9, **changes},
    )
    images = data.Dataset(**{**digits.__dict__, **few})
    return train(
        model, images, settings, folder, resume=resume, device="cpu", fsdp=fsdp, trackers=()
    )


def stopped(folder, **options):
    with pytest.raises(Interrupted, match="from step 8"):
        go(folder, **options)


def two(body):
    """Run ``body`` in two gloo processes."""
    # leaving at once: gloo's threads now and then abort an interpreter that takes itself apart
    leave = "sys.stderr.flush(); torch.distributed.destroy_process_group(); os._exit(0)"
    lines = f"from test_train_distributed import *\n{body}\n{leave}"
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, "--no-python", sys.executable, "-c", lines],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def assert_close(folder, other):
    """The same run to rounding: weights, average and every number that is not a time."""
    for name in ("model", "ema"):
        a = load_file(Path(folder) / f"{name}.safetensors")
        b = load_file(Path(other) / f"{name}.safetensors")
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=1e-4, atol=1e-5)
    for row, other_row in zip(load_run(folder).metrics, load_run(other).metrics, strict=True):
        for key in (
            "epoch",
            "step",
            "lr",
            "train_loss",
            "test_nll",
            "top1",
            "top5",
            "ema_test_nll",
        ):
            assert row[key] == pytest.approx(other_row[key], rel=1e-4), key
    kept, others = load_run(folder).predictions, load_run(other).predictions
    np.testing.assert_array_equal(kept.label, others.label)
    np.testing.assert_array_equal(kept.predicted, others.predicted)
    np.testing.assert_allclose(kept.probability, others.probability, rtol=1e-3, atol=1e-5)


SHARDED = {"sam": 0.05, "clip_grad": 0.5, "keep_epochs": (1,)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of two processes, one after the other: starting them takes longer than the runs."""
    home = tmp_path_factory.mktemp("runs")
    plain, sharded, left = (str(home / name) for name in ("plain", "sharded", "left"))
    done = two(
        f"go({plain!r}, accumulation=2, sam=0.05)\n"
        f"stopped({left!r}, stop_at=7)\n"
        f"stopped({sharded!r}, fsdp=True, stop_at=14, **{SHARDED})"
    )
    return home, done.stderr


def test_two_processes_give_the_loss_curve_of_one(runs, tmp_path):
    home, said = runs
    assert load_run(home / "plain").world_size == 2
    assert "on 2 processes" in said
    assert said.count("epoch 2/2") == 1  # one of them talks
    assert go(tmp_path / "one", sam=0.05).world_size == 1
    assert_close(home / "plain", tmp_path / "one")


@pytest.mark.slow
def test_a_sharded_model_trains_like_a_whole_one_and_resumes(runs, tmp_path):
    folder = runs[0] / "sharded"
    assert [p.name for p in sorted((folder / "checkpoint").iterdir())][-1] == "step-000000008"
    two(f"go({str(folder)!r}, fsdp=True, resume=True, **{SHARDED})")
    go(tmp_path / "one", **SHARDED)
    assert load_run(folder).world_size == 2
    assert_close(folder, tmp_path / "one")
    kept = load_file(folder / "weights" / "epoch-0001.safetensors")
    assert kept.keys() == load_file(folder / "model.safetensors").keys()


@pytest.mark.bit_exact("begun by processes of their own, which run without noise")
def test_a_run_begun_by_two_processes_goes_on_in_one(runs, tmp_path):
    folder = runs[0] / "left"
    assert go(folder, resume=True).world_size == 1
    go(tmp_path / "one")
    assert_close(folder, tmp_path / "one")
