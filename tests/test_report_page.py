"""The page of a comparison: one file, whole, safe and right for small and large records."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from report_making import made_up, write_page, write_record_figures
from report_records import EVIL, Page
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.figures.page_renderer import draw_panel
from vitascope.report.sections.comparison_figures import (
    comparison_figures,
    efficiency_reading,
    learning_reading,
    trace_reading,
)
from vitascope.report.sections.comparison_record import ComparisonRecord

SHAPES = {
    "the default": {},
    "one seed": {"seeds": (0,)},
    "nothing inside": {"inside": False},
    "one fraction": {"fractions": (1.0,)},
    "one of everything": {"num_models": 1, "fractions": (1.0,), "seeds": (0,), "num_epochs": 1},
    "twelve models": {"num_models": 12, "fractions": (0.05, 0.1, 0.3, 0.5, 1.0)},
    "long names": {"labels": ("a very long model name " * 5, "模型" * 30, "x" * 200)},
}


def page_of(folder: Path, **shape) -> tuple[str, Page]:
    made_up(**shape).save(folder / "compare")
    html = write_page(folder).read_text(encoding="utf-8")
    return html, Page(html)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_any_comparison_gives_a_whole_small_page(tmp_path, shape):
    html, page = page_of(tmp_path, **shape)
    assert len(html.encode()) < 1_000_000
    assert not re.search(r"\b(nan|inf|NaN|None|undefined)\b", html.split("</style>")[1])
    charts = page.all("svg")
    assert charts
    assert all(chart["role"] == "img" and chart["aria-label"] for chart in charts)
    assert all(header.get("scope") in ("row", "col") for header in page.all("th"))
    assert [path.name for path in tmp_path.glob(".*")] == []  # nothing left of the writing
    targets = {attributes.get("id") for _, attributes in page.tags}
    inner = [a["href"] for a in page.all("a") if (a["href"] or "").startswith("#")]
    assert {href[1:] for href in inner} <= targets


def test_the_page_loads_nothing(tmp_path):
    html, page = page_of(tmp_path)
    loading = [a for tag, a in page.tags if tag != "a" and ({"src", "href", "data"} & set(a))]
    assert loading == [{"rel": "icon", "href": "data:,"}]
    assert "url(" not in html
    assert "@import" not in html
    policy = next(a for a in page.all("meta") if a.get("http-equiv"))["content"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_what_comes_from_outside_stays_text(tmp_path):
    record = made_up(labels=(EVIL, "ViT", EVIL), data_name=EVIL, classes=(EVIL, "b"))
    values = dict(record.values)
    values["data"] = {**values["data"], "notes": [EVIL, "</script><script>alert(2)</script>"]}
    values["command"] = values["question"] = EVIL
    values["recipe"] = {EVIL: EVIL}
    values["models"] = [{**model, "locality": EVIL} for model in values["models"]]
    values["crossings"] = [{**crossing, "text": EVIL} for crossing in values["crossings"]]
    for trace in (*values["gates"], *values["nonlocality"]):
        trace["layers"] = ['"><script>alert(3)</script>'] * len(trace["layers"])
    evil = Record(kind="compare", values=values, arrays=record.arrays)
    page = Page(write_page(tmp_path, evil).read_text(encoding="utf-8"))
    assert page.all("img") == []
    assert len(page.all("script")) == 1
    assert not any(name.startswith("on") for _, a in page.tags for name in a)
    assert page.words.count(EVIL) > 8


def figures_of(**shape):
    return {
        figure.name: figure for figure in comparison_figures(ComparisonRecord(made_up(**shape)))
    }


def test_a_model_has_one_colour_in_every_figure():
    models = ComparisonRecord(made_up(num_models=7)).models.values()
    found = figures_of(num_models=7)
    for name in ("efficiency", "cost", "learning"):
        for panel in found[name].panels:
            assert {line.label: line.style for line in panel.series} == {
                model.label: model.style for model in models
            }


def test_line_charts_name_every_model_at_its_line_without_overlap():
    (panel,) = figures_of(num_models=12)["efficiency"].panels
    chart = draw_panel(panel, "wide")
    heights = sorted(
        float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" class="label"', chart)
    )
    assert len(heights) == 12
    assert min(after - before for before, after in pairwise(heights)) >= 12


def test_sample_efficiency_shows_means_spreads_seeds_and_crossings():
    record = made_up()
    (panel,) = figures_of()["efficiency"].panels
    line, entry = panel.series[0], record.values["table"][0]["entries"][0]
    assert line.x == [row["num_images"] for row in record.values["table"]]
    assert line.y[0] == entry["mean"]
    assert (line.low[0], line.high[0]) == (entry["low"], entry["high"])
    assert line.each[0] == tuple(cell["top1"] for cell in record.values["cells"][:2])
    told = [crossing for crossing in record.values["crossings"] if crossing["fraction"]]
    assert [words for *_, words in panel.rings] == [crossing["text"] for crossing in told]
    for x, _, words in panel.rings:
        assert panel.x_at[0] <= x <= panel.x_at[-1]
        assert words in figures_of()["efficiency"].how


def test_attention_over_training_has_a_panel_per_layer_and_a_line_per_head():
    record = made_up(fractions=(0.1, 1.0))
    panels = figures_of(fractions=(0.1, 1.0))["gates"].panels
    shares = ("10 % (143 images)", "all (1,437 images)")
    layers = [f"layer {i}, ConViT, {share}" for share in shares for i in (1, 2, 3)]
    assert [panel.title for panel in panels] == layers
    heads = record.arrays[record.values["gates"][0]["array"]][:, 1]
    (line,) = panels[1].series
    np.testing.assert_allclose(line.y, heads.mean(1), rtol=1e-6)
    np.testing.assert_allclose(np.array(line.strands), heads.T, rtol=1e-6)
    assert draw_panel(panels[1]).count('class="strand') == heads.shape[1]


def test_attention_over_training_of_many_layers_has_a_line_per_layer(monkeypatch):
    monkeypatch.setattr("vitascope.report.sections.comparison_figures._MOST_PANELS", 5)
    panels = figures_of(fractions=(0.1, 1.0))["gates"].panels
    titles = [panel.title for panel in panels]
    assert titles == ["ConViT, 10 % (143 images)", "ConViT, all (1,437 images)"]
    assert [line.label for line in panels[0].series] == ["layer 1", "layer 2", "layer 3"]


@pytest.mark.slow
def test_figures_of_a_comparison_are_written_for_papers_with_their_fonts(tmp_path):
    record = made_up(fractions=(0.1, 1.0), labels=("A$^2$ <b>", "ViT", "CNN"))
    written = write_record_figures(tmp_path, {"compare": record}, ("png", "svg", "pdf"))
    names = {path.stem for path in written}
    assert names == {"efficiency", "cost", "learning", "gates", "nonlocality"}
    for path in written:
        body = path.read_bytes()
        if path.suffix == ".svg":
            ElementTree.fromstring(body)
            assert b"<text" not in body  # outlines: no font needed
        elif path.suffix == ".pdf":
            assert b"/Type3" not in body


def test_figures_without_data_are_left_out():
    record = made_up(num_models=1, fractions=(1.0,), seeds=(0,), inside=False)
    bare = Record(kind="compare", values={**record.values, "curves": []})
    found = comparison_figures(ComparisonRecord(bare))
    assert [figure.name for figure in found] == ["efficiency", "cost"]


def test_the_reading_says_who_leads_with_the_fewest_images_and_with_all():
    sentence = efficiency_reading(ComparisonRecord(made_up()))
    assert sentence.startswith("With 143 images ConViT is ")
    assert "above ViT" in sentence
    assert "; with all 1,437 images " in sentence


def test_the_reading_of_gates_names_the_layer_that_moved_most():
    record = made_up(fractions=(1.0,))
    gates = np.full((30, 3, 4), 0.73, np.float32)
    gates[:, 1] = np.linspace(0.73, 0.43, 30)[:, None]
    name = record.values["gates"][0]["array"]
    changed = Record(kind="compare", values=record.values, arrays={**record.arrays, name: gates})
    sentence = trace_reading(ComparisonRecord(changed).traces("gates"), "gates")
    assert sentence == (
        "ConViT's gates fell from 0.73 to 0.63 on average; layer 2 moved most (0.73 to 0.43)."
    )


def test_gates_that_hardly_moved_are_said_to():
    record = made_up(fractions=(1.0,))
    for array in record.arrays.values():
        array[:] = 0.73
    sentence = trace_reading(ComparisonRecord(record).traces("gates"), "gates")
    assert sentence == "ConViT's gates hardly moved (0.73 to 0.73)."


def test_learning_curves_are_averaged_over_the_epochs_all_seeds_have():
    record = made_up(num_models=1, fractions=(1.0,))
    first, second = record.values["curves"]
    first.update(epochs=[1, 2, 3], top1=[10.0, 20.0, None], train_nll=[2.0, 1.0, 0.5])
    second.update(epochs=[1, 2, 3], top1=[20.0, 40.0, 50.0], train_nll=[2.0, 1.0, 0.5])
    (curve,) = ComparisonRecord(record).curves(1.0, "top1")
    assert curve.epochs == [1, 2]
    assert curve.mean == [15.0, 30.0]
    assert curve.seeds == [[10.0, 20.0], [20.0, 40.0]]
    assert learning_reading(ComparisonRecord(record)) == "With 1,437 images it ends at 30.0 %."


def test_a_model_that_diverged_is_left_out_of_the_figure_and_a_dash_in_the_table(tmp_path):
    record = made_up()
    record.values["table"][0]["entries"][2].update(mean=None, std=None, gain=None)
    for cell in record.values["cells"][4:6]:
        cell["top1"] = None
    html = write_page(tmp_path, record).read_text(encoding="utf-8")
    assert "<span>–</span>" in html
    assert "None" not in html.split("</style>")[1]


def test_heads_a_layer_lacks_do_not_count(tmp_path):
    record = made_up(fractions=(1.0,))
    for array in record.arrays.values():
        array[:, 2, 3] = np.nan
    html = write_page(tmp_path, record).read_text(encoding="utf-8")
    assert "nan" not in html.split("</style>")[1].lower()


@pytest.mark.slow
def test_a_very_large_comparison_is_thinned_to_stay_small(tmp_path):
    shape = {"num_models": 12, "fractions": (0.05, 0.1, 0.3, 0.5, 1.0), "seeds": (0, 1, 2)}
    html, _ = page_of(tmp_path, **shape, num_layers=10, num_heads=9, num_epochs=300)
    assert len(html.encode()) < 1_000_000


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record(kind="compare"), "lacks data, models, recommendation, table"),
        (Record(kind="compare", values=made_up().values), "no array 'gates/model_0/0.1' of 30"),
    ],
)
def test_a_record_of_something_else_is_refused_clearly(tmp_path, record, words):
    with pytest.raises(UserError, match=words):
        write_page(tmp_path, record)
    assert not (tmp_path / "report.html").exists()
