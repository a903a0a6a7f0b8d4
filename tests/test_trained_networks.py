"""The pages on trained networks have the numbers of their records."""

import re
from pathlib import Path

import make_imagenet
import make_sam2_figures
import pytest

from vitascope.record import load

DOCS = Path(__file__).parents[1] / "docs"
RECORDS = DOCS / "records" / "trained"


def text(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_the_tables_on_sam2_are_those_of_the_record():
    record = load(RECORDS / "attention")
    page = text("what-sam2-looks-at")
    assert make_sam2_figures.far_table(record, "1024", make_sam2_figures.NAME) in page
    assert make_sam2_figures.steps_table(record) in page


def test_the_sentences_on_sam2_are_those_of_the_record():
    values = load(RECORDS / "attention").values
    trained, random = (
        values["224"]["models"][name]
        for name in ("sam2_hiera_tiny", "sam2_hiera_tiny, random weights")
    )
    page = " ".join(text("what-sam2-looks-at").split())
    far = make_sam2_figures.interval(trained["nonlocality"])[0][4:10]
    assert f"look {min(far):.1f} to {max(far):.1f} patches far instead of 7.3" in page
    assert trained["even"][4] == pytest.approx(7.28, abs=0.01)
    tiny = make_sam2_figures.interval(values["224"]["models"]["tiny_vit_5m_224"]["nonlocality"])[0]
    assert f"{min(tiny[2:8]):.1f} to {max(tiny[2:8]):.1f} patches" in page
    assert max(trained["norms"]["high"]) < 0.003
    first, last = (each["cka"]["similarity"][0][-1] for each in (trained, random))
    assert f"unit is {first:.2f} (random weights: {last:.2f})" in page


def test_the_table_on_imagenet_is_that_of_the_record():
    page = text("imagenet")
    for table in make_imagenet.tables(load(RECORDS / "imagenet")):
        assert table in page
    assert re.search(r"2,000", page)
