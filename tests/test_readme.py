"""What the README and the guides show works."""

import re
from pathlib import Path

import pytest

from page_reading import blocks, understand

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in blocks(page, "bash"):
            joined = block.replace("\\\n", " ")
            lines = (line.split("  #")[0].strip() for line in joined.splitlines())
            found += [line for line in lines if line.startswith("vitascope") and "..." not in line]
    return found


def test_the_readme_names_its_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("line", commands())
def test_every_command_that_is_shown_is_understood(line):
    understand(line)


def test_the_python_example_runs(capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    exec(compile(code, "README.md", "exec"), {})  # the README's own words
    out = capsys.readouterr().out
    assert "blocks.0.attn" in out
    assert "GatePruning" in out


def test_links_between_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
