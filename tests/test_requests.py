"""Requests: one for the command line and Python."""

import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from vitascope.commands.buildup import Buildup
from vitascope.commands.compare import Compare
from vitascope.commands.evaluate import Evaluate
from vitascope.commands.inspect import Inspect
from vitascope.commands.models import Models
from vitascope.commands.parsing import from_python, needed, parse, typed_line
from vitascope.commands.report import Report
from vitascope.commands.spectra import Spectra
from vitascope.commands.study import StudyOptions
from vitascope.commands.train import Train
from vitascope.errors import UserError

LEAST = {
    "train": (Train, "--out runs/a"),
    "evaluate": (Evaluate, "runs/a"),
    "inspect": (Inspect, "runs/a"),
    "compare": (Compare, "--data digits"),
    "study sample-efficiency": (StudyOptions, ""),
    "study buildup": (Buildup, "--data digits"),
    "study spectra": (Spectra, "runs/a runs/b"),
    "models": (Models, ""),
    "report": (Report, "runs/a"),
}


@pytest.mark.parametrize("command", LEAST)
def test_what_is_left_out_has_the_requests_default(command):
    kind, line = LEAST[command]
    made = parse(kind, command, line.split())
    for field in fields(kind):
        if field.name not in needed(kind):
            assert getattr(made, field.name) == field.default, field.name


@pytest.mark.parametrize("command", LEAST)
def test_every_option_has_a_help_text(command, capsys):
    kind, _ = LEAST[command]
    with pytest.raises(SystemExit):
        parse(kind, command, ["--help"])
    shown = capsys.readouterr().out
    for field in fields(kind):
        option = f"--{field.name.replace('_', '-')}"
        assert option in shown or field.name in ("model", "paths", "pattern", "runs", "subject")
    assert "None" not in kind.__doc__
    undocumented = [part for part in shown.split("│") if part.strip().startswith("(default:")]
    assert not undocumented


@pytest.mark.parametrize(
    ("kind", "words", "line"),
    [
        (
            Compare,
            {"data": "my photos", "models": ["vit_micro"], "seeds": (0, 1, 2), "out": "c"},
            "--data 'my photos' --models vit_micro --seeds 0 1 2 --out c",
        ),
        (
            Inspect,
            {"model": "runs/a", "measures": "cka", "query": [0, 1], "double": True},
            "runs/a --measures cka --query 0 1 --double",
        ),
        (
            Evaluate,
            {"model": Path("runs/a"), "on": ["fgsm"], "epsilons": ["1/255"], "images": 8},
            "runs/a --on fgsm --epsilons 1/255 --images 8",
        ),
    ],
)
def test_python_and_the_command_line_make_the_same_request(kind, words, line):
    made = from_python(kind, words)
    assert made == parse(kind, "it", shlex.split(line))
    again = shlex.split(typed_line("it", made))[2:]
    assert parse(kind, "it", again) == made


@pytest.mark.parametrize(
    ("kind", "words", "says"),
    [
        (Compare, {}, "compare needs data"),
        (Compare, {"data": "digits", "model": "a"}, "unknown argument 'model'; did you mean"),
        (Compare, {"data": "digits", "seeds": [-1]}, "seeds must be from 0 to"),
        (Inspect, {"model": "a", "along": "x"}, "unknown along 'x'; there are: eigenvectors"),
    ],
)
def test_a_mistake_in_python_is_one_line(kind, words, says):
    with pytest.raises(UserError) as error:
        from_python(kind, words)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "words", "says"),
    [
        (Train, "--model a", "Required options were not provided: --out"),
        (Inspect, "", "Required options were not provided: MODEL"),
        (Models, "--rounds many", "--rounds takes a whole number, not 'many'"),
        (Models, "--rounds", "--rounds takes a whole number, not nothing"),
        (Models, "--round 2", "Unrecognized options: --round 2; did you mean '--rounds'?"),
        (Inspect, "a --query 1 x", "--query takes 2 numbers, not '1 x'"),
        (Inspect, "a --along x", "--along takes random, input or eigenvectors, not 'x'"),
        (Inspect, "a b", "Unrecognized options: b"),
        (Report, "a --formats gif", "--formats takes png, svg or pdf, not 'gif'"),
    ],
)
def test_a_mistake_on_the_command_line_says_what_the_option_takes(kind, words, says, capsys):
    with pytest.raises(UserError) as error:
        parse(kind, "vitascope it", words.split())
    assert says in str(error.value)
    assert str(error.value).endswith("(vitascope it --help tells more)")
    assert capsys.readouterr() == ("", "")
