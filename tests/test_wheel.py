"""The built wheel works from an empty folder, without the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import vitascope

ROOT = Path(__file__).parents[1]
MADE = {"PKG-INFO", "setup.cfg"}  # by setuptools
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*words: str, cwd: Path) -> str:
    """A command as a user types it there: without our PYTHONPATH, with their settings of pip."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    words = ["-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return folder


def test_the_packages_have_what_they_need_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert package <= set(names)
    assert "vitascope/report/templates/page.html" in names
    assert "vitascope/py.typed" in names
    assert all(name.startswith(("vitascope/", "vitascope-")) for name in names)
    assert wheel.stat().st_size < 2_000_000
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        rooms = {Path(name).parts[1] for name in source.getnames() if len(Path(name).parts) > 1}
    assert rooms == {"src", "README.md", "LICENSE", "pyproject.toml", *MADE, "MANIFEST.in"}


def test_a_comparison_runs_from_the_wheel_in_an_empty_folder(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "env"), cwd=tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    pins = str(ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "-q", "-c", pins, str(wheel), cwd=tmp_path)
    command = str(tmp_path / "env" / "bin" / "vitascope")
    assert run(command, "--version", cwd=tmp_path).strip() == f"vitascope {vitascope.__version__}"
    words = ["--data", "digits", "--epochs", "1", "--fractions", "1", "--out", "first"]
    run(command, "compare", *words, cwd=tmp_path)
    page = (tmp_path / "first" / "report.html").read_text(encoding="utf-8")
    assert "convit_micro" in page
