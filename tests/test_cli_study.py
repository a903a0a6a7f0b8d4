"""``vitascope study`` as a user meets it."""

import json
import shlex

import pytest
from PIL import Image

from vitascope.commands import main
from vitascope.commands.parsing import parse
from vitascope.commands.train import Train
from vitascope.papers.catalog import catalog
from vitascope.record import load


def test_the_list_has_a_line_for_every_study(capsys):
    assert main(["study", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for study in catalog().values():
        (line,) = (line for line in lines if line.split()[:1] == [study.name])
        assert study.title in line
        assert all(part in line for part in study.covers)
        assert " min)" in line


def test_a_machine_can_read_the_list(capsys):
    assert main(["study", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(catalog())
    assert {"smoke", "laptop", "desk", "paper"} == set(rows[0]["time"])


def test_a_study_prints_its_table_and_verdicts_and_keeps_its_record(tmp_path, capsys):
    words = [
        "study",
        "convit-fig-9",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path),
        "--processes",
        "1",
    ]
    assert main([*words, "--quiet"]) == 0
    first = capsys.readouterr().out
    for word in ("plain ViT", "GPSA", "undecided", "4 claims", "report.html"):
        assert word in first
    assert "Is the gate needed?" in (tmp_path / "report.html").read_text(encoding="utf-8")
    record = load(tmp_path / "gating")
    assert record.values["command"].startswith("vitascope study gating --scale smoke")
    runs = sorted(tmp_path.glob("runs/*/*/record.json"))
    written = [path.stat().st_mtime_ns for path in runs]
    assert main([*words, "--json"]) == 0  # again: every finished cell is used
    assert json.loads(capsys.readouterr().out)["tables"] == record.values["tables"]
    assert [path.stat().st_mtime_ns for path in runs] == written


def test_a_plan_runs_nothing_and_shows_commands_that_train_understands(tmp_path, capsys):
    out = str(tmp_path / "none")
    assert main(["study", "distillation", "--scale", "paper", "--plan", "--out", out]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("A100-hours" in line for line in lines)
    assert any("--engine slurm" in line for line in lines)
    trains = [line.split("vitascope train ")[1] for line in lines if "vitascope train" in line]
    assert len(trains) == 6
    asked = [parse(Train, "train", shlex.split(line)) for line in trains]
    assert {"regnety_160", None} == {args.teacher for args in asked}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "no study 'nonsense'; there are: sample-efficiency"),
        (["gating", "--scale", "huge"], "huge"),
        (["gating", "--scale", "paper"], "say where the images are: --data imagenet:PATH"),
        (["landscape", "--scale", "paper"], "say where the images are: --data cifar100:PATH"),
        (["gating", "--data", "nowhere/at/all"], "nowhere/at/all"),
        (
            ["gating", "--scale", "smoke", "--seeds", "0", "0"],
            "seeds must be one or more different",
        ),
        (["gating", "--scale", "smoke", "--engine", "slurm", "--slurm", "partition"], "NAME=VALUE"),
        (["gating", "--scale", "smoke", "--gpus", "2"], "--engine slurm"),
        (["--list", "all"], "--list takes --json alone"),
    ],
)
def test_a_mistake_is_one_line(words, says, capsys, tmp_path):
    assert main(["study", *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_test_sets_that_are_read_later_must_be_there_before_the_start(tmp_path, capsys):
    for part in ("train", "val"):
        for name in ("n01440764", "n01443537"):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / "ILSVRC2012_val_00000001.JPEG")
    words = ["study", "broadcasting", "--scale", "paper", "--data", f"imagenet:{tmp_path}/imagenet"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert f"broadcasting has no images imagenet-v2:{tmp_path}/imagenet-v2: " in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_figure_in_parts_opens_every_study_of_it(tmp_path, capsys):
    assert main(["study", "convit-fig-12", "--scale", "smoke", "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begun = [line.partition(":")[0] for line in lines if line[:1].isalpha()]
    assert begun == ["ablation", "locality-strength"]
    words = ["study", "convit-fig-12", "--records", str(tmp_path)]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "name one of them: ablation, locality-strength" in capsys.readouterr().err
