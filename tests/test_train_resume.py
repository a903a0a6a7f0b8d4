"""What must hold when a run is killed, stopped, or its disk is damaged or full."""

import vitascope  # noqa: F401 - mends torchvision before timm is imported

# isort: split
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from model_making import small_vit
from vitascope import data
from vitascope.errors import Interrupted, UserError
from vitascope.training import Diverged, load_run, recipe, train
from vitascope.training.run_folder.checkpoints import Checkpoint, latest, load, save
from vitascope.training.run_folder.lock import save_tensors

# Compared with processes of their own, which run without noise.
pytestmark = pytest.mark.bit_exact("a resumed run has the bits of one that was not stopped")

STEPS = 6  # per epoch
RECIPE = {
    "epochs": 3,
    "batch_size": 16,
    "ema": 0.9,
    "checkpoint_steps": 3,
    "augmentation.mixup": 0.2,
    "augmentation.random_erasing": 0.5,
    "augmentation.repeats": 2,
}


class Watched(nn.Module):
    """A small ViT that does something of its own before a chosen forward pass in training."""

    def __init__(self, at=None, action=lambda: None):
        super().__init__()
        torch.manual_seed(5)
        self.vit = small_vit(drop_path_rate=0.3, proj_drop_rate=0.1)
        self.at, self.action, self.count = at, action, 0

    def forward(self, x):
        if self.training:
            self.count += 1
            if self.count == self.at:
                self.action()
        return self.vit(x)


def digits():
    images = data.load("digits")
    few = {"train": images.train.take(range(100)), "test": images.test.take(range(50))}
    return data.Dataset(**{**images.__dict__, **few})


def go(folder, *, resume=False, at=None, action=lambda: None, **changes):
    settings = recipe("laptop", **{**RECIPE, **changes})
    model = Watched(at, action)
    return train(
        model,
        digits(),
        settings,
        folder,
        seed=3,
        resume=resume,
        quiet=True,
        device="cpu",
        trackers=(),
    )


def everything(folder):
    """All that two equal runs share: tensors bit for bit, and the metrics that are not times."""
    names = ["model", "ema", f"checkpoint/step-{3 * STEPS:09d}/optimizer"]
    tensors = {
        f"{name}:{key}": value
        for name in names
        for key, value in load_file(Path(folder) / f"{name}.safetensors").items()
    }
    rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    times = ("seconds", "images_per_second")
    return tensors, [{k: v for k, v in row.items() if k not in times} for row in rows]


def assert_same(folder, other):
    (tensors, rows), (others, other_rows) = everything(folder), everything(other)
    assert tensors.keys() == others.keys()
    for name, value in tensors.items():
        assert torch.equal(value, others[name]), name
    assert rows == other_rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    go(folder)
    return folder


def child(folder, body, check=True):
    """Run ``body`` in a process of its own, with the functions of this file."""
    lines = f"from test_train_resume import *\nfolder = {str(folder)!r}\n{body}"
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    return subprocess.run(
        [sys.executable, "-c", lines], env=environment, capture_output=True, text=True, check=check
    )


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def test_a_run_killed_twice_ends_with_the_bits_of_one_that_was_not(whole, tmp_path):
    folder = tmp_path / "run"
    # just before the checkpoint of step 6 takes its name
    inside_a_checkpoint = (
        "sys.addaudithook(lambda event, args: "
        f"event == 'os.rename' and 'step-000000006' in str(args[1]) and {KILL})\n"
        "go(folder)"
    )
    assert child(folder, inside_a_checkpoint, check=False).returncode == -signal.SIGKILL
    steps = sorted(p.name for p in (folder / "checkpoint").iterdir())
    assert steps == [".writing-step-000000006", "step-000000000", "step-000000003"]
    # from step 3, the 8th pass is inside the second epoch
    inside_an_epoch = f"go(folder, resume=True, at=8, action=lambda: {KILL})"
    assert child(folder, inside_an_epoch, check=False).returncode == -signal.SIGKILL
    steps = sorted(p.name for p in (folder / "checkpoint").iterdir())
    assert steps == ["step-000000006", "step-000000009"]
    go(folder, resume=True)
    assert_same(folder, whole)
    assert [row["epoch"] for row in load_run(folder).metrics] == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(whole, tmp_path, number):
    folder = tmp_path / "run"
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="--resume continues from step 8") as stopped:
        go(folder, at=8, action=lambda: signal.raise_signal(number))
    assert stopped.value.folder == folder
    assert signal.getsignal(number) is before
    assert (folder / "checkpoint" / "step-000000008").is_dir()
    go(folder, resume=True)
    assert_same(folder, whole)


def test_ctrl_c_in_the_last_step_of_an_epoch_keeps_the_epoch(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted, match="from step 6"):
        go(folder, at=6, action=lambda: signal.raise_signal(signal.SIGINT))
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    go(folder, resume=True)
    assert_same(folder, whole)


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_checkpoint(whole, tmp_path):
    folder = tmp_path / "run"
    done = child(
        folder,
        "import resource\n"
        "limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try:\n    go(folder, at=8, action=limit)\n"
        "except UserError as error:\n    print(error)",
    )
    assert "could not write" in done.stdout
    assert "step-000000009" in done.stdout
    assert "MB needed" in done.stdout
    assert "checkpoint is intact" in done.stdout
    steps = sorted(p.name for p in (folder / "checkpoint").iterdir())
    assert steps == ["step-000000003", "step-000000006"]
    go(folder, resume=True)
    assert_same(folder, whole)


def stopped_at_step_8(folder):
    with pytest.raises(Interrupted):
        go(folder, at=8, action=lambda: signal.raise_signal(signal.SIGINT))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def test_a_truncated_checkpoint_is_passed_over_for_the_one_before(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    stopped_at_step_8(folder)
    truncate(folder / "checkpoint" / "step-000000008" / "model.safetensors")
    settings = recipe("laptop", **RECIPE)
    train(Watched(), digits(), settings, folder, seed=3, resume=True, device="cpu", trackers=())
    said = capsys.readouterr().err
    assert "step-000000008 is damaged (model.safetensors is not what was written)" in said
    assert "from step 6" in said
    assert_same(folder, whole)


def test_with_every_checkpoint_damaged_the_error_says_so(tmp_path):
    folder = tmp_path / "run"
    stopped_at_step_8(folder)
    truncate(folder / "checkpoint" / "step-000000008" / "state.json")
    (folder / "checkpoint" / "step-000000006" / "optimizer.safetensors").unlink()
    with pytest.raises(UserError, match="no whole checkpoint"):
        go(folder, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 7},
        {"files": []},
        {"values": {"rows": [], "seconds": 2.0}},
        {"values": None},
        {"crc": 1},
    ],
)
def test_a_changed_state_is_passed_over_for_the_checkpoint_before(tmp_path, change):
    for step in (6, 8):
        save(tmp_path, Checkpoint(step, {"model": {"w": torch.ones(2)}}, {"rows": [step]}))
    path = tmp_path / "step-000000008" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert latest(tmp_path)[0] == 6


def test_a_state_without_a_checksum_is_read_as_the_first_version_left_it(tmp_path):
    save(tmp_path, Checkpoint(6, {"model": {"w": torch.ones(2)}}, {"rows": [1.5]}))
    path = tmp_path / "step-000000006" / "state.json"
    state = json.loads(path.read_text())
    del state["crc"]
    path.write_text(json.dumps(state))
    assert load(tmp_path, 6).values == {"rows": [1.5]}


def test_a_finished_run_comes_back_at_once_with_its_weights(whole):
    model = Watched(at=1, action=lambda: pytest.fail("it trained"))
    settings, written = recipe("laptop", **RECIPE), (whole / "record.json").stat().st_mtime_ns
    run = train(model, digits(), settings, whole, seed=3, resume=True, quiet=True, trackers=())
    assert run == load_run(whole)
    assert (whole / "record.json").stat().st_mtime_ns == written
    assert torch.equal(model.vit.head.weight, load_file(run.weights)["vit.head.weight"])


def test_a_folder_with_a_run_is_neither_overwritten_nor_continued_otherwise(whole):
    with pytest.raises(UserError, match="already holds a run; resume it"):
        go(whole)
    with pytest.raises(UserError, match=r"recipe\.lr was 0\.002, now 0\.5; resume with the same"):
        go(whole, resume=True, lr=0.5)


def poison(model):
    with torch.no_grad():
        model.vit.head.weight.fill_(float("nan"))


def test_a_loss_that_is_no_number_stops_the_run_and_the_last_good_weights_stay(tmp_path):
    folder, box = tmp_path / "run", {}
    model = box["model"] = Watched(at=8, action=lambda: poison(box["model"]))
    settings = recipe("laptop", **RECIPE)
    with pytest.raises(Diverged, match=r"step 8 with lr .*try a lower lr.*step-000000006"):
        train(model, digits(), settings, folder, quiet=True, trackers=())
    kept = load_file(folder / "checkpoint" / "step-000000006" / "model.safetensors")
    assert all(value.isfinite().all() for value in kept.values())
    assert not (folder / "checkpoint" / "step-000000008").exists()


def test_an_exploding_loss_stops_the_run(tmp_path):
    with pytest.raises(Diverged, match="is above"):
        go(tmp_path / "run", lr=1e4, clip_grad=None, optimizer="sgd", ema=None)


def test_resuming_an_empty_folder_starts_from_the_beginning(whole, tmp_path):
    go(tmp_path / "new", resume=True)
    assert_same(tmp_path / "new", whole)


def test_a_folder_in_the_place_of_weights_is_one_line(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(UserError, match="a folder is in its place") as caught:
        save_tensors(tmp_path / "model.safetensors", {"weight": torch.ones(2)})
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
