"""Which way imports point, and what importing costs."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from make_architecture import ANYWHERE, PAGE, SOURCE, package_imports, page

from vitascope.commands import COMMANDS

MAY_IMPORT = {
    "errors": set(),
    "atomic": set(),
    "hub_access": set(),
    "reliability": set(),
    "figure": set(),
    "formatting": set(),
    "table": {"figure"},
    "settings": set(),
    "option_types": set(),
    "processes": set(),
    "progress": set(),
    "threads": set(),
    "_imports": set(),
    "capture": set(),
    "record": set(),
    "layers": {"capture"},
    "models": {"layers", "record"},
    "data": set(),
    "training": {"record", "data", "capture"},
    "measure": {"capture", "figure", "formatting", "record", "table"},
    "stats": set(),
    "loading": {"capture", "record", "layers", "models", "data", "training"},
    "explorer": {"loading", "training", "measure", "models", "capture", "record", "data"},
    "inspection": {"explorer", "loading", "stats", "measure"}
    | {"training", "data", "models", "layers", "capture", "record"},
    "runs": {"inspection", "loading", "measure", "training", "data", "models", "capture", "record"},
    "comparison": {"runs", "inspection", "explorer", "loading", "stats"}
    | {"training", "data", "models", "capture", "record"},
    "papers": {"runs", "inspection", "loading", "stats", "measure"}
    | {"training", "data", "models", "capture", "record", "figure"},
    "report": {"figure", "formatting", "measure", "record", "table"},
    "deploy": {"loading", "training", "data", "capture", "record"},
    "overlay": {"data"},
    "commands": {"papers", "comparison", "runs", "inspection", "explorer", "loading"}
    | {"training", "report", "record", "deploy", "measure", "data", "models", "table"},
}


def test_imports_follow_the_arrows():
    found = package_imports()
    wrong = {package: found[package] - ANYWHERE - MAY_IMPORT[package] for package in found}
    assert not {package: others for package, others in wrong.items() if others}


def test_every_package_has_its_arrows():
    assert set(package_imports()) == set(MAY_IMPORT)


def test_the_table_of_imports_is_current():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run `make docs` and commit docs/architecture.md"


def test_every_file_that_the_architecture_names_exists():
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 10
    homes = (SOURCE, PAGE.parents[1])
    assert not [name for name in named if not any((home / name).exists() for home in homes)]


def scripts():
    """Those beside the package, which no test runs as a whole."""
    folders = (Path(__file__).parents[1] / name for name in ("benchmarks", "scripts"))
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.name)
def test_a_script_imports_what_there_is(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitascope"):
            module = importlib.import_module(str(node.module))
            for name in (each.name for each in node.names if not hasattr(module, each.name)):
                assert importlib.util.find_spec(f"{node.module}.{name}"), name


def test_no_file_is_called_after_nothing():
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "common", "helpers", "misc"}


def test_a_class_name_exists_once():
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert not twice


def run(code: str) -> str:
    """What ``code`` prints in a fresh interpreter; it must get to its end."""
    words = [sys.executable, "-c", f"{code}\nprint('done')"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_or_all_of_reports_does_not_import_torch():
    out = run(
        "import pkgutil, sys, vitascope, vitascope.measure, vitascope.report\n"
        "path, prefix = vitascope.report.__path__, 'vitascope.report.'\n"
        "for module in pkgutil.walk_packages(path, prefix): __import__(module.name)\n"
        "print('torch' in sys.modules)"
    )
    assert out.startswith("False")


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_does_not_import_torch(words):
    out = run(
        "import sys; from vitascope.commands import main\n"
        f"try: main({words})\nexcept SystemExit: pass\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    assert out.endswith("set()\ndone\n")


@pytest.mark.parametrize(
    "first",
    [
        "vitascope",
        *(pytest.param(f"vitascope.{x}", marks=pytest.mark.slow) for x in ("layers", "data")),
    ],
)
def test_whatever_is_imported_first_timm_knows_our_models_and_torchvision_is_whole(first):
    """Beside a CPU-only torch: with declared operators, and transforms that work."""
    out = run(
        f"import {first}, timm, torch, torchvision\n"
        "from torchvision.transforms import v2\n"
        "torch.ops.torchvision.nms\n"
        "print(timm.is_model('vs_convit_tiny'))\n"
        "print(v2.functional.hflip(torch.arange(3)[None, None]).tolist())"
    )
    assert out == "True\n[[[2, 1, 0]]]\ndone\n"
