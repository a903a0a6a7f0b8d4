"""Which way imports point, and what importing costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from vitascope.cli import COMMANDS

SOURCE = Path(__file__).parents[1] / "src" / "vitascope"

MAY_IMPORT = {
    "errors": set(),
    "atomic": set(),
    "figure": set(),
    "settings": set(),
    "_imports": set(),
    "capture": set(),
    "record": set(),
    "layers": {"capture"},
    "models": {"layers", "record"},
    "data": set(),
    "train": {"record", "data", "capture"},
    "measure": {"capture", "record"},
    "bench": {"capture", "record", "layers", "models", "data", "train", "measure"},
    "studies": {"capture", "record", "figure", "layers", "models", "data", "train", "measure"},
    "report": {"figure", "record"},
    "cli": {"studies", "report", "bench"},
}
ANYWHERE = {"errors", "settings", "atomic"}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The packages of ours that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module]
            if node.module == "vitascope":
                names = [f"vitascope.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("vitascope.")}
    return found


def test_imports_follow_the_arrows():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        package = package_of(path)
        if package in ("__init__", "__main__"):
            continue
        for other in imports_of(path) - {package, "__version__"} - ANYWHERE:
            if other not in MAY_IMPORT[package]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert not wrong


def test_every_package_has_its_arrows():
    packages = {package_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert packages == set(MAY_IMPORT)


def test_no_file_is_called_after_nothing():
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "common", "helpers", "misc"}


def run(code: str) -> str:
    """What ``code`` prints in a fresh interpreter; it must get to its end."""
    words = [sys.executable, "-c", f"{code}\nprint('done')"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_or_reports_does_not_import_torch():
    out = run(
        "import sys, vitascope, vitascope.record\n"
        "import vitascope.report.tables.terminal, vitascope.report.page\n"
        "print('torch' in sys.modules)"
    )
    assert out.startswith("False")


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_does_not_import_torch(words):
    out = run(
        "import sys; from vitascope.cli import main\n"
        f"try: main({words})\nexcept SystemExit: pass\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    assert out.endswith("set()\ndone\n")


@pytest.mark.parametrize("first", ["vitascope.layers", "vitascope.models", "vitascope.data"])
def test_any_package_can_be_imported_first(first):
    assert run(f"import {first}, timm, torchvision") == "done\n"


def test_our_models_are_in_timms_registry_however_it_is_imported():
    for first in ("vitascope", "vitascope.layers"):
        assert run(f"import {first}, timm; print(timm.is_model('vs_convit_tiny'))").startswith(
            "True"
        )


def test_torchvision_beside_a_cpu_torch_has_declared_operators_and_whole_transforms():
    out = run(
        "import vitascope, torch, torchvision\n"
        "from torchvision.transforms import v2\n"
        "torch.ops.torchvision.nms\n"
        "print(v2.functional.hflip(torch.arange(3)[None, None]).tolist())"
    )
    assert out.startswith("[[[2, 1, 0]]]")
