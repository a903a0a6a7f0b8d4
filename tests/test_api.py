"""The API reference says what the docstrings say, about every public name."""

import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import get_type_hints

import make_recipes
import pytest

from vitascope.commands import COMMANDS, options_of
from vitascope.training import recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def make_api():
    spec = spec_from_file_location("make_api", ROOT / "scripts" / "make_api.py")
    assert spec is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(make_api):
    return make_api.pages()


@pytest.mark.parametrize("package", ["layers", "models", "data", "training", "measure", "capture"])
def test_every_public_name_of_a_package_has_its_heading(package, pages):
    page = pages[f"{package}.md"]
    headings = set(re.findall(r"^#+ `(\w+)`$", page, re.MULTILINE))
    modules = set(re.findall(rf"`vitascope\.{package}\.(\w+)`", page))
    theirs = set(re.findall(r"^`(\w+)` is `", page, re.MULTILINE))
    assert set(import_module(f"vitascope.{package}").__all__) <= headings | modules | theirs


def test_the_commands_page_has_every_option_of_every_command(make_api):
    text = make_api.commands()
    parts = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert set(COMMANDS) <= set(parts)
    parts["study"] = parts.pop("study convit-table-2")  # the options of any study of a paper
    for name, part in parts.items():
        last = name.split()[-1]  # a command, or a study of its own
        hints = get_type_hints(options_of(last), include_extras=True)
        named = [name for name, hint in hints.items() if "Positional" not in repr(hint)]
        options = [f"--{name.replace('_', '-')}" for name in named]
        assert not [option for option in options if not re.search(rf"{option}\b", part)]


def test_docstrings_become_markdown(make_api):
    said = make_api.markdown("See :class:`~a.Map`.\n\n>>> f(1)\n2\n>>> g()\n\nThen ``x``.")
    assert said == "See `a.Map`.\n\n```pycon\n>>> f(1)\n2\n>>> g()\n```\n\nThen `x`."


def test_a_signature_keeps_stars_defaults_and_types(make_api, tmp_path):
    (tmp_path / "made.py").write_text("def f(a, b: int = 2, *, c='x', **d: float) -> str: ...\n")
    function = make_api.griffe.load("made", search_paths=[tmp_path])["f"]
    assert make_api.signature(function, "f") == "f(a, b: int = 2, *, c='x', **d: float) -> str"


def test_every_recipe_setting_is_described_with_its_values():
    page = make_recipes.page()
    for name, value in make_recipes.settings(recipe("laptop")):
        assert f"| `{name}` |" in page
        assert f" {make_recipes.shown(value)} |" in page


def test_a_recipe_setting_without_a_description_is_an_error(monkeypatch):
    fewer = {title: dict(section) for title, section in make_recipes.DESCRIPTIONS.items()}
    del fewer["How far and how fast"]["epochs"]
    monkeypatch.setattr(make_recipes, "DESCRIPTIONS", fewer)
    with pytest.raises(ValueError, match="epochs"):
        make_recipes.page()
