"""What the command line says without loading torch, which takes seconds."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from vitascope.commands import main
code = main(sys.argv[1:])
print("loaded", *(name for name in ("torch", "timm", "sklearn") if name in sys.modules))
sys.exit(code)
"""


@pytest.fixture
def unfinished(tmp_path):
    folder = tmp_path / "unfinished"
    folder.mkdir()
    (folder / "config.yaml").write_text("format: 1\n")
    return folder


def answer(*words):
    """Exit code, output without the last line, and which libraries were loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)], capture_output=True, text=True
    )
    *_, last = done.stdout.splitlines()
    assert last.startswith("loaded"), done.stderr
    return done.returncode, done.stdout + done.stderr, last.split()[1:]


@pytest.mark.parametrize("words", [["models"], ["study", "--list"], ["--version"]])
def test_a_list_needs_no_torch(words):
    code, _, loaded = answer(*words)
    assert (code, loaded) == (0, [])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--seeds", "0", "1", "--budget", "5m"], "at least three seeds"),
        (["--budget", "soon"], "takes a time"),
        (["--probe-only"], "--pretrained"),
    ],
)
def test_a_comparison_is_refused_before_torch_is_loaded(words, problem, tmp_path):
    code, text, loaded = answer("compare", "--data", "digits", "--out", tmp_path / "out", *words)
    assert (code, loaded) == (2, [])
    assert problem in text


@pytest.mark.parametrize(
    "words", [["inspect"], ["evaluate"], ["export"], ["predict", "photo.jpg"]], ids=" ".join
)
def test_an_unfinished_run_is_refused_before_torch_is_loaded(words, unfinished):
    code, text, loaded = answer(words[0], unfinished, *words[1:])
    assert (code, loaded) == (2, [])
    assert "is not finished; resume it" in text


def test_a_used_folder_is_refused_before_torch_is_loaded(unfinished):
    words = ["train", "--model", "vit_micro", "--data", "digits", "--out", unfinished]
    code, text, loaded = answer(*words)
    assert (code, loaded) == (2, [])
    assert "already holds a run; resume it" in text
