"""The explorer within a page: right after the answer, in the page's colours, its script allowed."""

import base64
import hashlib
import re

import pytest

from explorer_making import explorer_record
from report_making import made_up, report_of, write_page
from report_records import write_inspection, write_run
from vitascope.report.explorer.data import data_of
from vitascope.report.explorer.page import EXPLORER_SCRIPT
from vitascope.report.page import KINDS, compose, render_page
from vitascope.report.records import find


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison with the maps of two models, as ``vitascope compare`` leaves them."""
    out = tmp_path_factory.mktemp("compare")
    made_up().save(out / "compare")
    for model in ("vit_micro", "convit_micro"):
        explorer_record(model).save(out / "explorer" / model)
    return out


def test_a_comparisons_page_holds_its_explorer_right_after_the_answer(folder):
    html = write_page(folder).read_text(encoding="utf-8")
    places = [html.index(words) for words in ("<h1>", 'id="explorer"', 'id="figure-1"')]
    assert places == sorted(places)
    assert len(html.encode()) < 5_000_000


def test_the_explorer_opens_on_the_recommended_model_next_to_the_runner_up(tmp_path):
    record = made_up()
    record.save(tmp_path / "compare")
    (section,) = report_of(tmp_path).sections
    best = record.values["recommendation"]["model"]
    entries = record.values["table"][-1]["entries"]
    others = [entry for entry in entries if entry["model"] != best]
    assert section.explored == (best, max(others, key=lambda entry: entry["mean"])["model"])
    records = [explorer_record(name) for name in ("vit_micro", "convit_micro", "resnet_micro")]
    data = data_of(records, first=("resnet_micro", "vit_micro"))
    shown = [data["models"][index]["label"] for index in data["shown"]]
    assert shown == ["resnet_micro", "vit_micro"]


def test_every_script_of_the_page_is_allowed_by_its_hash_and_no_other(folder):
    html = write_page(folder).read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert EXPLORER_SCRIPT in scripts
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    policy = re.search(r"script-src([^;]*);", html)
    assert policy is not None
    assert policy.group(1).split() == [f"'sha256-{each}'" for each in hashes]


def test_the_explorer_uses_the_colours_of_the_page(tmp_path):
    explorer_record("convit_micro").save(tmp_path / "a" / "explorer")
    for model in ("resnet_micro", "alternet_micro", "convit_micro"):
        write_run(tmp_path / model, model)
    report = compose(find([tmp_path], KINDS))
    look = report.styles.of("convit_micro")
    (section,) = report.sections
    line = section.figures[0].panels[0].series[1]
    assert (line.label, line.style) == ("convit_micro", look)
    assert f'"css": "{look.css}"' in render_page(report).replace('"css":"', '"css": "')


def test_explorers_alone_make_a_page_and_inspections_keep_theirs(tmp_path):
    explorer_record("vit_micro").save(tmp_path / "explorer")
    (section,) = compose(find([tmp_path], KINDS)).sections
    assert section.kind == "explorer"
    html = render_page(compose(find([tmp_path / "explorer.json"], KINDS)))
    assert 'id="explorer"' in html
    write_inspection(tmp_path, "vit_micro", gated=False)
    report = compose(find([tmp_path], KINDS))
    assert [part.kind for part in report.sections] == ["inspection"]
    assert len(report.explorers) == 1
