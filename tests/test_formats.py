"""Stored records of every kind are shown; damaged and later ones are refused in one line."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.record import FORMAT, Record, load, load_config
from vitascope.report.page import KINDS
from vitascope.training import load_run

RECORDS = Path(__file__).parent / "fixtures" / "records"


def test_there_is_a_small_record_of_every_kind_in_the_current_format():
    kept = [json.loads(path.read_text()) for path in RECORDS.rglob("*.json")]
    assert {body["format"] for body in kept} == {FORMAT}
    assert {body["kind"] for body in kept} >= set(KINDS)


def test_a_report_shows_records_of_every_kind(tmp_path, capsys):
    out = str(tmp_path / "page")
    everything = [str(folder) for folder in sorted(RECORDS.iterdir())]
    assert main(["report", *everything, "--out", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["left_out"] == []
    shown = {part["kind"] for part in told["sections"]}
    assert shown > {"compare", "study", "buildup", "spectra", "inspection", "evaluation", "run"}
    assert "explorer" in (tmp_path / "page" / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(RECORDS / "run", tmp_path / "run")


def test_a_stored_run_is_evaluated_to_the_number_it_ended_with(run, capsys):
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["top1"] == pytest.approx(load_run(run).final["top1"], abs=0.006)  # 2 of 359


def test_a_stored_run_is_inspected_to_the_same_numbers(run, tmp_path, capsys):
    words = ["inspect", str(run), "--images", "8", "--measures", "gates", "trajectory"]
    assert main([*words, "--out", str(tmp_path / "inside"), "--quiet"]) == 0
    now, then = (load(folder / "gates") for folder in (tmp_path / "inside", RECORDS / "inside"))
    assert now.values["per_layer"] == pytest.approx(then.values["per_layer"])


def test_inspect_and_report_write_the_same_pictures_to_the_same_names(run, tmp_path):
    out = tmp_path / "inside"
    words = ["inspect", str(run), "--images", "8", "--quiet", "--out", str(out)]
    assert main([*words, "--measures", "norms", "gates", "masking"]) == 0
    before = {path.name: path.read_bytes() for path in (out / "figures").iterdir()}
    assert len(before) == 6
    assert main(["report", str(out), "--formats", "png", "svg", "--quiet"]) == 0
    assert {path.name: path.read_bytes() for path in (out / "figures").iterdir()} == before


def test_figures_of_several_models_do_not_take_the_name_of_one_models(tmp_path):
    for name in ("a", "a/b"):
        shutil.copytree(
            RECORDS / "inside",
            tmp_path / name,
            ignore=lambda _, names: [n for n in names if not n.startswith("gates")],
        )
    assert main(["report", str(tmp_path / "a"), "--formats", "png", "--quiet"]) == 0
    assert [p.name for p in (tmp_path / "a" / "figures").iterdir()] == ["gates-2-models.png"]


def test_what_is_written_now_says_its_format(tmp_path):
    body = json.loads(Record(kind="x").save(tmp_path / "x").read_text())
    assert body["format"] == FORMAT == 1


def test_a_record_of_a_later_format_is_one_clear_line(tmp_path, capsys):
    path = Record(kind="study").save(tmp_path / "x")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT + 1, "new": []}))
    assert main(["report", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"x.json is a record of format {FORMAT + 1}; this vitascope reads formats up to" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", [["evaluate"], ["inspect"], ["report"]])
def test_a_run_of_a_later_format_is_one_clear_line(run, command, capsys):
    config = yaml.safe_load((run / "config.yaml").read_text()) | {"format": FORMAT + 1}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "record.json").unlink() if command == ["report"] else None
    assert main([*command, str(run)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "format" in said or "no record to report on" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a run's config: it holds 'None'"),
        (b"- a\n- b\n", "is not a run's config: it holds \"['a', 'b']\""),
        (b"\xff\xfe\x00r", "cannot read"),
        (b"recipe: [", "cannot read"),
        (b"model: {}\ndata: {}\n", "its recipe is None"),
    ],
)
def test_a_config_that_is_none_is_one_clear_line(run, content, words, capsys):
    (run / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match="cannot read|is not a run's config") as caught:
        load_config(run)
    assert words in str(caught.value)
    assert main(["evaluate", str(run)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_line_of_metrics_is_named_and_the_last_may_be_half_written(run, capsys):
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text + '{"epoch": 3, "to')
    assert [row["epoch"] for row in load_run(run).metrics] == [1, 2]
    (run / "metrics.jsonl").write_text("?" + text)
    with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl is damaged"):
        load_run(run).metrics  # noqa: B018
    assert main(["report", str(run)]) == 0
    assert "left out: line 1 of" in capsys.readouterr().out


@pytest.mark.parametrize("keep", [None, 0, 5, 5000])
def test_weights_that_are_missing_or_cut_are_one_clear_line(run, keep, capsys):
    weights = run / "model.safetensors"
    if keep is None:
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:keep])
    for words in (["evaluate", str(run)], ["inspect", str(run), "--measures", "gates"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "model.safetensors" in said


@pytest.mark.parametrize("name", ["epoch-0000", "epoch-0001"])
def test_kept_weights_that_are_cut_are_one_clear_line(run, name, capsys):
    weights = run / "weights" / f"{name}.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    assert main(["inspect", str(run), "--measures", "trajectory", "--images", "4"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert name in said
