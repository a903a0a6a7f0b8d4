"""Training and evaluating from the command line, as a user does."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import torch

from vitascope.commands import main
from vitascope.record import load
from vitascope.report.page import KINDS, compose
from vitascope.report.records import find
from vitascope.settings import COMMAND
from vitascope.training import load_run
from vitascope.training.run_folder.run import differences

WORDS = ["train", "--data", "digits", "--recipe", "laptop", "--epochs", "1", "--fraction", "0.2"]
WORDS += ["--set", "scale_epochs=false", "batch_size=32", "--no-tracking"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    assert (
        main([*WORDS, "--model", "convit_micro", "--seed", "3", "--out", str(out), "--quiet"]) == 0
    )
    return out


def test_a_run_folder_holds_what_it_should(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "model.safetensors", "record.json"} <= names


def test_a_run_keeps_the_line_that_was_typed(run):
    made = load(run / "record").made
    assert made["command"].startswith("vitascope train --data digits --recipe laptop --epochs 1 ")
    assert made["command"].endswith(
        f"--seed 3 --out {run} --quiet --threads {torch.get_num_threads()}"
    )
    assert made["command"] == load_run(run).config["made"]["command"]
    assert COMMAND not in os.environ


@pytest.mark.slow
def test_the_kept_line_gives_the_same_weights_whatever_the_threads_are_then(tmp_path):
    words = [*WORDS, "--model", "vit_micro", "--quiet", "--threads", "2", "--fraction", "0.05"]
    try:
        assert main([*words, "--out", str(tmp_path / "a")]) == 0
        made = load(tmp_path / "a" / "record").made
        assert made["machine"]["threads"] == 2
        torch.set_num_threads(1)
        _, *again = shlex.split(made["command"].replace(str(tmp_path / "a"), str(tmp_path / "b")))
        assert main(again) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert (
        load_run(tmp_path / "b").weights.read_bytes()
        == load_run(tmp_path / "a").weights.read_bytes()
    )


@pytest.mark.parametrize("count", ["0", "-1", "100000000000000000000", "two"])
def test_threads_that_cannot_be_are_one_line(count, tmp_path, capsys):
    words = [*WORDS, "--model", "vit_micro", "--out", str(tmp_path / "a"), "--threads", count]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "threads" in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "a").exists()


def test_weights_that_nobody_released_are_one_line(tmp_path, capsys):
    words = [*WORDS, "--model", "resnet_micro", "--pretrained", "--out", str(tmp_path / "a")]
    assert main(words) == 2
    assert "no pretrained weights for resnet_micro" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_without_that_line_the_pages_command_makes_the_same_run(run, tmp_path, capsys):
    words = ["--model", "convit_micro", "--model-args", "embed_dim=36", "num_heads=4"]
    words += ["--set", "batch_size=16", "scale_epochs=false", "augmentation.mixup=0.2"]
    words += ['travel=["*gating_param"]', "--fraction", "0.1", "--epochs", "1", "--seed", "5"]
    words += ["--data", "digits", "--image-size", "8", "--no-tracking", "--quiet"]
    assert main(["train", *words, "--out", str(tmp_path / "a")]) == 0
    path = tmp_path / "a" / "record.json"
    body = json.loads(path.read_text())
    del body["made"]["command"]
    path.write_text(json.dumps(body))
    (section,) = compose(find([tmp_path / "a"], KINDS)).sections
    _, *again = shlex.split(section.agains[0].command)
    assert again[-2:] == ["--out", str(tmp_path / "a")]
    assert main([*again[:-1], str(tmp_path / "b"), "--no-tracking", "--quiet"]) == 0
    first, second = (load_run(tmp_path / name) for name in "ab")
    assert differences(first.config, second.config) == []
    assert first.weights.read_bytes() == second.weights.read_bytes()


def test_resuming_a_finished_run_gives_it_back(run, capsys):
    words = [*WORDS, "--model", "convit_micro", "--seed", "3", "--out", str(run)]
    assert main(words) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 1


def test_evaluating_a_run_gives_the_numbers_it_was_left_with(run, capsys, tmp_path):
    assert main(["evaluate", str(run), "--json", "--out", str(tmp_path / "e")]) == 0
    found = json.loads(capsys.readouterr().out)
    final = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["top1"] == pytest.approx(final["top1"])
    assert found["nll"] == pytest.approx(final["test_nll"], rel=1e-5)
    assert (tmp_path / "e.json").exists()
    assert main(["evaluate", str(run), "--split", "train"]) == 0
    assert "Top-1 (%)" in capsys.readouterr().out


def test_weights_can_be_given_by_file(run, capsys):
    weights = ["--weights", str(run / "model.safetensors")]
    assert main(["evaluate", "convit_micro", "--data", "digits", *weights]) == 2
    assert "does not fit the model" in capsys.readouterr().err


def test_distilling_from_an_earlier_run(run, tmp_path):
    words = [*WORDS, "--model", "convit_micro_distilled", "--teacher", str(run)]
    words += ["--distillation", "hard", "--out", str(tmp_path / "d"), "--quiet"]
    assert main(words) == 0
    assert (tmp_path / "d" / "record.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "--model", "vit_micro", "--data", "digits"], "out"),
        (
            [*WORDS, "--model", "vit_micro", "--set", "epoch=3", "--out", "x"],
            "recipe field 'epoch'",
        ),
        ([*WORDS, "--model", "vit_micro", "--model-args", "a", "--out", "x"], "NAME=VALUE"),
        ([*WORDS, "--model", "vit_micro", "--distillation", "hard", "--out", "x"], "no teacher"),
        (
            [*WORDS, "--model", "vit_micro", "--weights", "none.safetensors", "--out", "x"],
            "no weights",
        ),
        (["evaluate", "vit_micro"], "--data"),
        (["evaluate", "nowhere/at/all"], "there is no folder 'nowhere/at/all'"),
        (["evaluate", "vit_micro", "--data", "nowhere/at/all"], "nowhere/at/all"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    err = capsys.readouterr().err.strip()
    assert says in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_processes_of_torchrun_train_one_run(tmp_path):
    """Launched as the help says; the run must know that it has two processes."""
    words = [*WORDS, "--model", "vit_micro", "--out", str(tmp_path / "a"), "--device", "cpu"]
    words += ["--fraction", "0.05"]
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517"]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, "-m", "vitascope", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "a" / "record.json").read_text())["values"]["world_size"] == 2
    assert done.stdout.count("top-1") == 1  # one process speaks
