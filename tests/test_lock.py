"""constraints.txt pins all that is installed, and `make` installs no more than is needed."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from lock import canonical, on_gpu, pins
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

LOCKED_ON = {  # where `make lock` was run: elsewhere a few other packages are asked for
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
    "sys_platform": "linux",
}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def asked_by(name: str, extras: set[str]) -> list[Requirement]:
    """What a package with these extras asks for; nothing is known of one that is not installed."""
    if name == "vitascope":
        optional = project()["optional-dependencies"]
        lines = [*project()["dependencies"], *(line for e in extras for line in optional[e])]
        return [Requirement(line) for line in lines]
    try:
        found = [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:
        return []
    return [
        asked
        for asked in found
        if asked.marker is None
        or any(asked.marker.evaluate({**LOCKED_ON, "extra": extra}) for extra in {"", *extras})
    ]


def closure(name: str, extras: set[str]) -> set[str]:
    """All packages that installing ``name[extras]`` brings, itself left out."""
    waiting, seen = [(name, frozenset(extras))], set()
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        for asked in asked_by(package[0], set(package[1])):
            if not on_gpu(asked.name):
                waiting.append((canonical(asked.name), frozenset(asked.extras)))
    return {package for package, _ in seen} - {name}


def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_every_package_that_the_tests_install_is_pinned():
    installed = closure("vitascope", {"test"})
    assert {"torch", "sympy", "pyarrow", "markupsafe"} <= installed
    assert installed <= {line.partition("==")[0] for line in constraints()}


def test_pins_are_plain_versions_and_hold_wherever_torch_comes_from():
    for line in constraints():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)
        assert not on_gpu(line.partition("==")[0])


def test_a_pin_forgets_the_build_and_gpu_packages_are_left_out():
    found = {
        "vitascope": "0.1.0",
        "torch": "2.13.0+cpu",
        "PyYAML": "6.0",
        "triton": "3.1",
        "nvidia-cublas": "13.0",
        "cuda-toolkit": "13.0",
        "tritonclient": "2.0",
    }
    report = {"install": [{"metadata": {"name": n, "version": v}} for n, v in found.items()]}
    assert pins(report) == ["pyyaml==6.0", "torch==2.13.0", "tritonclient==2.0"]


def planned(target: str, folder: Path) -> str:
    """What make would do on a bare checkout."""
    words = ["make", "--dry-run", "-C", str(ROOT), target, f"VENV={folder / 'venv'}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_the_package_alone_and_the_tests_their_tools(tmp_path):
    demo, setup = planned("demo", tmp_path), planned("setup", tmp_path)
    assert demo.count("pip install") == setup.count("pip install") == 1
    assert "-e ." in demo
    assert "[test]" not in demo
    assert "-e '.[test]'" in setup


def test_an_environment_for_the_tests_also_serves_the_demo(tmp_path):
    (tmp_path / "venv").mkdir()
    for stamp in (".ready", ".ready-run"):
        (tmp_path / "venv" / stamp).touch()
    assert ".ready-run" in planned("setup", tmp_path / "bare")  # the tests' stamp sets both
    assert "pip install" not in planned("demo", tmp_path) + planned("setup", tmp_path)
