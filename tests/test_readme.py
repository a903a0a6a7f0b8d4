"""What the README and the guides show works."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitascope
from page_reading import blocks, understand
from vitascope.commands import main

ROOT = Path(__file__).parents[1]
GUIDES = [
    page
    for folder in ("tutorials", "explanation")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *GUIDES]


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
    names: dict[str, object] = {}
    for code in blocks(ROOT / "README.md", "python"):
        exec(compile(code, "README.md", "exec"), names)  # the README's own words
    out = capsys.readouterr().out
    assert "blocks.0.attn" in out
    assert "share of position" in out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder as the guides take it for granted: photos of two classes and a run on them."""
    folder = tmp_path_factory.mktemp("guide")
    for kind, (name, number) in enumerate([("ants", 1), ("bees", 7)]):
        (folder / "photos" / name).mkdir(parents=True)
        for index in range(10):
            pixels = np.random.default_rng(index).integers(kind * 99, kind * 99 + 99, (16, 16, 3))
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(folder / "photos" / name / f"{number + index}.jpg")
    words = ["--model", "convit_micro", "--image-size", "16", "--epochs", "1", "--quiet"]
    places = ["--data", str(folder / "photos"), "--out", str(folder / "runs" / "a")]
    assert main(["train", *words, *places]) == 0
    return folder


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_the_python_of_a_guide_runs_from_top_to_bottom(page, trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    names: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)  # the page's own words
    printed = capsys.readouterr().out
    assert printed.strip()
    assert not re.search(r"<[^>]*(method|function|object)\b|\bnan\b|\bFalse\b", printed), printed


def test_the_readmes_table_has_the_numbers_of_the_records():
    def median(subject: str, words: str) -> float:
        record = json.loads((ROOT / "benchmarks" / "records" / f"{subject}.json").read_text())
        (row,) = [row for row in record["values"]["speed"] if row[0].startswith(words)]
        return row[2]

    sizes = [
        median("gpsa", f"convit_{size} inference / timm's ConViT, 1 thread")
        for size in ("tiny", "small", "base")
    ]
    eigen = median("hessian", "five eigenvalues to 1 % / PyHessian")
    corrupted = median("corruptions", "whole set, 224 px")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| {:.1f}, {:.1f} and {:.1f} times as fast |".format(*sizes) in text
    assert f"| PyHessian | {eigen:.1f} times as fast |" in text
    assert f"| imagecorruptions-imaug | {corrupted:.1f} times as fast |" in text


def test_every_instrument_is_in_the_readmes_table_with_its_question():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "instruments").glob("*.md"):
        question = page.read_text(encoding="utf-8").splitlines()[2]
        assert f"| [{page.stem}](docs/instruments/{page.stem}.md) | {question} |" in text


def test_links_between_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            made = "api/" in target  # written by the build of the site, which checks these links
            assert made or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_short_and_has_few_intervals():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|^\|.*$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    assert len(prose.split()) < 700
    assert not re.findall(r"\[[+−-]?\d", prose)


def test_the_readme_does_not_promise_a_package_that_no_index_has():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install vitascope" not in text


def test_the_citation_has_the_version_of_the_package():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == vitascope.__version__
