"""The command line as a user meets it."""

import json
from typing import get_type_hints

import pytest
from tyro.conf import Positional

from vitascope.commands import COMMANDS, main, options_of
from vitascope.record import load


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"  vitascope {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_option_and_no_default_that_says_nothing(command, capsys):
    with pytest.raises(SystemExit):
        main([*(("study", "ablation") if command == "study" else (command,)), "--help"])
    text = capsys.readouterr().out
    assert "(default: )" not in text
    assert "(default: None)" not in text
    hints = get_type_hints(options_of(command), include_extras=True)
    flags = [
        name for name, hint in hints.items() if Positional not in getattr(hint, "__metadata__", ())
    ]
    assert not [name for name in flags if f"--{name.replace('_', '-')}" not in text]


def test_further_options_come_after_the_common_ones(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    common, further = capsys.readouterr().out.split("further options")
    assert "--data" in common
    assert "--match" in further


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["modles"], "unknown command 'modles'; did you mean 'models'?"),
        (["models", "--tabel"], "Unrecognized options: --tabel"),
        (["models", "convit_tyni"], "unknown model 'convit_tyni'; did you mean 'convit_tiny'"),
        (["models", "--attention-map", "a.gif"], "ends in .png, .svg or .pdf"),
        (["models", "--speed", "vit_micro", "--rounds", "many"], "many"),
        (["bench", "nothing"], "bench"),
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


def test_models_take_turns_and_are_compared_with_the_first(tmp_path, capsys):
    words = ["models", "--speed", "vit_micro", "convit_micro", "--batch-size", "2", "--rounds", "1"]
    assert main([*words, "--threads", "1", "--out", str(tmp_path / "speed"), "--quiet"]) == 0
    assert "convit_micro" in capsys.readouterr().out
    record = load(tmp_path / "speed")
    assert record.kind == "bench-throughput"
    assert [row[0] for row in record.values["throughput"]] == ["vit_micro", "convit_micro"]
    assert all(min(row[1:4]) > 0 for row in record.values["throughput"])
    ratios = [row[0] for row in record.values["speed"]]
    assert ratios == [f"convit_micro {mode} / vit_micro" for mode in ("inference", "training")]
    assert main(["report", str(tmp_path), "--quiet"]) == 0
    assert main(["models", "--speed", "vit_micro", "vit_micro"]) == 2
    assert main(["models", "--speed", "vit_micr"]) == 2
