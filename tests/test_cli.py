"""The command line as a user meets it."""

import json

import pytest

from vitascope.cli import COMMANDS, main
from vitascope.record import load


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"  vitascope {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["modles"], "unknown command 'modles'; did you mean 'models'?"),
        (["models", "--tabel"], "Unrecognized options: --tabel"),
        (["models", "convit_tyni"], "unknown model 'convit_tyni'; did you mean 'convit_tiny'"),
        (["models", "--attention-map", "a.gif"], "ends in .png, .svg or .pdf"),
        (["bench", "gpsa", "--models", "resnet18"], "resnet18 is not a ConViT of ours"),
        (["bench", "gpsa", "--rounds", "many"], "many"),
        (["bench", "nothing"], "nothing"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("vitascope: ")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_no_command_prints_the_usage(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.count("usage: vitascope") == 2
    assert main(["--version"]) == 0


def test_models_lists_ours_and_with_a_pattern_timms(capsys):
    assert main(["models", "--json"]) == 0
    assert "convit_tiny" in json.loads(capsys.readouterr().out)
    assert main(["models", "resnet18*"]) == 0
    assert "resnet18" in capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_the_table_counts_what_the_paper_counts(capsys, tmp_path):
    assert main(["models", "--table", "--json", "--out", str(tmp_path / "t")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 12
    for row in rows:
        assert row["parameters"] / 1e6 == pytest.approx(row["paper_parameters"], rel=0.06)
        assert abs(row["multiply_adds"] / 1e9 - row["paper_flops"]) <= max(
            0.5, 0.08 * row["paper_flops"]
        )
    assert load(tmp_path / "t").kind == "table1"
    assert main(["models", "convit_micro", "--table"]) == 0
    assert "convit_micro" in capsys.readouterr().out


def test_a_first_attention_map_is_drawn(tmp_path, capsys):
    assert main(["models", "--attention-map", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_bench_prints_ratios_and_keeps_a_record(tmp_path, capsys):
    words = ["bench", "gpsa", "--models", "convit_tiny", "--grids", "4", "--rounds", "1"]
    assert main([*words, "--threads", "1", "--batch-size", "1", "--out", str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "same-width ViT" in out
    record = load(tmp_path / "b")
    assert record.config["threads"] == [1]
    peers = {row[0].split(" / ")[1].split(",")[0] for row in record.values["speed"]}
    assert peers == {"timm's ConViT", "same-width ViT", "timm's GPSA"}
    assert all(ours > 0 and theirs > 0 for _, ours, theirs in record.values["memory"])


@pytest.mark.slow
def test_bench_training_times_our_loop_beside_its_peers(capsys, tmp_path):
    from vitascope.bench.training import time_training

    one = {"ViT": "vit_micro"}
    result = time_training(batch_size=8, steps=2, rounds=1, shares_of=one)
    assert [row[0] for row in result.shares] == ["ViT"]
    assert [row[0].split(" / ")[1] for row in result.speed] == ["bare steps", "timm steps"] * 2
    assert all(rate > 0 for rate in result.images_per_second.values())
    assert load(result.to_record().save(tmp_path / "t")).kind == "bench-training"
