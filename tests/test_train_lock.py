"""One process at a time in a folder."""

import subprocess
import sys

import pytest

from vitascope.errors import UserError
from vitascope.training.run_folder.lock import lock_folder

HOLD = """
import sys
from vitascope.training.run_folder.lock import lock_folder
with lock_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_first_ones_number_until_that_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"in use by process {holder.pid} on "):
            lock_folder(tmp_path).__enter__()
        holder.kill()
        holder.wait()
    assert (tmp_path / ".lock").exists()  # left behind, and nobody's
    with lock_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_the_same_process_is_refused_too(tmp_path):
    with lock_folder(tmp_path), pytest.raises(UserError, match="in use"):
        lock_folder(tmp_path / "x" / "..").__enter__()


def test_folders_made_for_nothing_are_gone_and_others_stay(tmp_path):
    with lock_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / ".lock").exists()
    assert not list(tmp_path.iterdir())
    with lock_folder(tmp_path / "a"):
        (tmp_path / "a" / "result").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["result"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(UserError, match="is a file"):
        lock_folder(tmp_path / "a").__enter__()
