"""A result comes back from the disk whole, or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vitascope.atomic import replacing, sweep
from vitascope.errors import UserError
from vitascope.record import Record, atomic_write, load, threads, write_text
from vitascope.threads import running_on


def test_a_record_comes_back_as_it_was(tmp_path):
    record = Record(
        kind="gates",
        values={"layers": ["a", "b"], "mean": np.float32(0.5)},
        arrays={"gate": np.arange(6.0).reshape(2, 3)[:, ::-1]},
        config={"model": "convit_micro"},
        seed=3,
        seconds=1.5,
    )
    path = record.save(tmp_path / "deep" / "gates")
    again = load(path)
    assert again.values == {"layers": ["a", "b"], "mean": 0.5}
    np.testing.assert_array_equal(again.arrays["gate"], record.arrays["gate"])
    assert (again.seed, again.seconds, again.config) == (3, 1.5, {"model": "convit_micro"})
    assert load(tmp_path / "deep" / "gates").made == again.made


def test_it_says_how_to_get_it_again(tmp_path):
    made = json.loads(Record(kind="x").save(tmp_path / "x").read_text())["made"]
    assert made["versions"]["torch"]
    assert made["machine"]["cores"] == os.cpu_count()
    assert made["time"].endswith("+00:00")
    assert "commit" in made


def test_it_keeps_the_command_if_there_was_one(monkeypatch):
    monkeypatch.delenv("VITASCOPE_COMMAND", raising=False)
    assert "command" not in Record(kind="x").made
    monkeypatch.setenv("VITASCOPE_COMMAND", "vitascope train --seed 1")
    assert Record(kind="x").made["command"] == "vitascope train --seed 1"


def test_numbers_that_are_not_finite_become_null_not_broken_json(tmp_path):
    path = Record(kind="x", values={"a": float("nan"), "b": np.inf}).save(tmp_path / "x")
    assert json.loads(path.read_text())["values"] == {"a": None, "b": None}


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "a.txt") as stream:
        stream.write(b"half of the n")
        raise RuntimeError
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"kind": "x"}', '{"arrays": {"a": [1]}, "kind": "x"}']
)
def test_what_is_not_a_record_is_one_clear_error(tmp_path, text):
    with pytest.raises(UserError, match="no record at"):
        load(tmp_path / "a")
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match="is not a record|no record at"):
        load(tmp_path / "a")


def test_the_threads_in_force_are_kept():
    with running_on(2):
        assert Record(kind="x").made["machine"]["threads"] == 2


@pytest.mark.parametrize(("said", "found"), [("3", 3), ("4,2", 4), ("", None), ("many", None)])
def test_threads_are_known_without_torch_too(monkeypatch, said, found):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.delitem(sys.modules, "torch")
    assert threads() == (found or os.cpu_count())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": 3}, "its kind is '3'"),
        ({"values": []}, "its values is"),
        ({"made": None}, "its made is"),
        ({"seed": 1.5}, "its seed is"),
        ({"seconds": True}, "its seconds is"),
        ({"values": {"a": [{"b": 1e200}]}}, "a number in it is 1e+200"),
        ({"values": {"a": 10**400}}, "a number in it is 1000"),
        ({"arrays": {"a": [3]}}, "its arrays are"),
    ],
)
def test_a_record_is_checked_where_it_is_read(tmp_path, change, words):
    path = Record(kind="x", arrays={"a": np.ones(2)}).save(tmp_path / "x")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match="x.json is not a record: ") as caught:
        load(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 5000])
def test_a_number_that_is_none_is_refused(tmp_path, number):
    path = Record(kind="x", values={"a": 12345}).save(tmp_path / "x")
    path.write_text(path.read_text().replace("12345", number))
    with pytest.raises(UserError, match="is not a record"):
        load(path)


def killed_while_writing(path: Path) -> None:
    """A process that dies in the middle of a write."""
    code = (
        "import os, sys\nfrom vitascope.atomic import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_bytes(b'half')\n    (temporary.parent / '.tmpAbC123').touch()\n"
        "    os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9


def test_the_next_write_removes_what_a_killed_one_left_and_nothing_else(tmp_path):
    killed_while_writing(tmp_path / "a.txt")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".a.txt.")
    others = {".mine.part", ".tmpAbC123", ".a.txt.backup.part", "b.12345678.part"}
    for name in others:
        (tmp_path / name).touch()
    write_text(tmp_path / "b.txt", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"b.txt", *others}


def test_what_another_is_writing_stays(tmp_path):
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("slow")
        sweep(tmp_path)
        write_text(tmp_path / "b.txt", "quick")
    assert (tmp_path / "a.txt").read_text() == "slow"
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.txt"}


def test_what_is_written_can_be_read_by_those_the_umask_lets(tmp_path):
    path = Record(kind="x", arrays={"a": np.ones(2)}).save(tmp_path / "x")
    (tmp_path / "plain").touch()
    expected = (tmp_path / "plain").stat().st_mode
    assert path.stat().st_mode == expected
    assert path.with_suffix(".safetensors").stat().st_mode == expected
