"""The API reference says what the docstrings say, about every public name."""

import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "api"


@pytest.fixture(scope="module")
def make_api():
    spec = spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    assert spec is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(make_api):
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    made = make_api.pages()
    stale = [name for name in {*made, *stored} if made.get(name) != stored.get(name)]
    assert not stale, "run `make api` and commit docs/api"


@pytest.mark.parametrize("package", ["layers", "models", "data", "train", "measure", "capture"])
def test_every_public_name_of_a_package_has_its_heading(package):
    page = (FOLDER / f"{package}.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ `(\w+)`$", page, re.MULTILINE))
    modules = set(re.findall(rf"`vitascope\.{package}\.(\w+)`", page))
    theirs = set(re.findall(r"^`(\w+)` is `", page, re.MULTILINE))
    assert set(import_module(f"vitascope.{package}").__all__) <= headings | modules | theirs


@pytest.mark.parametrize("package", ["studies", "report"])
def test_every_module_that_gathers_names_lists_them(package):
    page = (FOLDER / f"{package}.md").read_text(encoding="utf-8")
    lines = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert len(lines) > 10
    for text in lines:
        (module,) = re.findall(r"\A\[`([\w.]+)`\]", text)
        listed = re.findall(r"^- `(\w+)`", text, re.MULTILINE)
        assert listed == list(import_module(module).__all__)


def test_docstrings_become_markdown(make_api):
    said = make_api.markdown("See :class:`~a.Map`.\n\n>>> f(1)\n2\n>>> g()\n\nThen ``x``.")
    assert said == "See `a.Map`.\n\n```pycon\n>>> f(1)\n2\n>>> g()\n```\n\nThen `x`."


def test_a_signature_keeps_stars_defaults_and_types(make_api, tmp_path):
    (tmp_path / "made.py").write_text("def f(a, b: int = 2, *, c='x', **d: float) -> str: ...\n")
    function = make_api.griffe.load("made", search_paths=[tmp_path])["f"]
    assert make_api.signature(function, "f") == "f(a, b: int = 2, *, c='x', **d: float) -> str"
