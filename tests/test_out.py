"""Where results are written: devices stay devices, and a place that cannot be written is refused
before anything is computed."""

import os
import stat

import pytest

import vitascope
from vitascope.atomic import check_writable, replacing
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.record import Record


def test_a_pipe_is_written_through_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe) as written:
        written.write_text("answers")
    assert os.read(reader, 100) == b"answers"
    os.close(reader)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


@pytest.mark.timeout(30)
def test_a_pipe_that_nothing_reads_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with replacing(tmp_path / "pipe") as written:
        written.write_text("answers")
    assert (tmp_path / "pipe").read_text() == "answers"


@pytest.mark.timeout(30)
def test_a_report_passes_over_a_pipe(tmp_path, capsys):
    Record(kind="study", values={"study": "a", "title": "A"}).save(tmp_path / "study")
    os.mkfifo(tmp_path / "record.json")
    assert main(["report", str(tmp_path)]) == 0
    assert "not a regular file" in capsys.readouterr().out


def test_a_record_is_not_written_next_to_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe"):
        Record(kind="x").save(tmp_path / "pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_in_place_of_a_folder_is_refused_before_measuring(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "inside"
    with pytest.raises(UserError, match="not a folder"):
        check_writable(out)
    assert main(["inspect", "vit_micro", "--data", "digits", "--out", str(out)]) == 2
    assert "cannot write" in capsys.readouterr().err
    with pytest.raises(UserError, match="cannot write"):
        vitascope.inspect("vit_micro", data="digits", out=out)


def test_a_run_is_not_put_among_other_files(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("")
    words = ["train", "--model", "vit_micro", "--data", "digits", "--epochs", "1"]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert "thesis.txt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "options",
    [
        ["--epochs", "1", "--set", "epochs=2"],
        ["--model-args", "qkv_bias=maybe"],
        ["--model-args", "depth=0"],
        ["--recipe", "segmentation"],
    ],
)
def test_an_option_that_would_be_ignored_is_refused(options, tmp_path, capsys):
    words = ["train", "--model", "vit_micro", "--data", "digits", "--out", str(tmp_path / "run")]
    assert main([*words, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["os:system", "json:dumps", "sys:exit"])
def test_a_function_that_makes_no_model_is_one_line(name, capsys):
    assert main(["inspect", name, "--data", "digits"]) == 2
    assert capsys.readouterr().err.startswith(f"vitascope: {name}()")


def test_control_characters_do_not_reach_the_terminal(capsys):
    assert main(["inspect", "\x1b[31mred", "--data", "digits"]) == 2
    assert "\x1b" not in capsys.readouterr().err
