"""Scales, ticks, labels and colours, and the figures written for papers."""

import itertools
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from vitascope.report.figures.comparison_paper import write_figures

from report_making import made_up
from vitascope.record import Record
from vitascope.report.figures.axes import spread
from vitascope.report.figures.figure import Lines, Series
from vitascope.report.figures.heat import BRIGHT
from vitascope.report.figures.lines import draw_lines, line_scales, x_marks
from vitascope.report.figures.scale import Scale, ticks
from vitascope.report.figures.style import COLOURS, Style, looks

PAGES = ("#ffffff", "#121417")  # the page's background, light and dark
# Machado et al. (2009), full strength, in linear RGB
VISIONS = {
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "full": np.eye(3).tolist(),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (first, second))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Oklab, in which distances are about how different colours look."""
    cone = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    mix = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(mix) @ np.cbrt(np.array(cone) @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_can_be_read_on_the_page(theme):
    for pair in COLOURS:
        assert contrast(pair[theme], PAGES[theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_the_first_models_are_told_apart_with_any_colour_vision(theme, vision):
    seen = [lab(np.array(VISIONS[vision]) @ linear(pair[theme])) for pair in COLOURS[:3]]
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(first - second) > 0.1


def test_looks_differ_for_many_models_and_a_kind_keeps_its_colour():
    many = looks((f"model {i}", "other") for i in range(24))
    assert len(set(many.values())) == 24
    assert looks([("a", "cnn"), ("b", "convit")])["b"] == looks([("c", "convit")])["c"]


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_few_round_and_within_the_scale(log):
    random = np.random.default_rng(0)
    for _ in range(300):
        low = 10 ** random.uniform(-3, 6)
        scale = Scale(low, low * 10 ** random.uniform(0.05, 4), log)
        found = ticks(scale, 5)
        assert 2 <= len(found) <= 9
        assert found == sorted(set(found))
        assert all(scale.low * (1 - 1e-9) <= value <= scale.high * (1 + 1e-9) for value in found)


def test_a_scale_holds_its_values_and_keeps_to_its_bounds():
    scale = Scale.around([91.0, 99.8], least=4, floor=0, ceiling=100)
    assert scale.low < 91
    assert scale.high == 100
    assert Scale.around([5.0], least=2).at(5.0) == pytest.approx(0.5)
    assert Scale.around([], log=True).log
    assert Scale.around([0.0, 100.0, math.nan], log=True, least=3).at(100.0) == pytest.approx(0.5)


def test_labels_are_spread_apart_in_order_and_within_bounds():
    random = np.random.default_rng(0)
    for _ in range(100):
        wanted = random.uniform(0, 100, 6).tolist()
        places = spread(wanted, 12, 0, 100)
        assert np.argsort(places).tolist() == np.argsort(wanted).tolist()
        assert np.diff(np.sort(places)).min() >= 12 - 1e-9
        assert min(places) >= -1e-9
        assert max(places) <= 100 + 1e-9


def test_figures_are_written_for_papers_with_their_fonts(tmp_path):
    made_up(fractions=(0.1, 1.0), labels=("A$^2$ <b>", "ViT", "CNN")).save(tmp_path / "compare")
    written = write_figures(tmp_path)
    names = {path.stem for path in written}
    assert {"efficiency", "cost", "learning_top1", "gates_model_0_10"} <= names
    assert {path.suffix for path in written} == {".png", ".svg", ".pdf"}
    for path in written:
        body = path.read_bytes()
        if path.suffix == ".svg":
            ElementTree.fromstring(body)
            assert b"<text" not in body  # outlines: no font needed
        elif path.suffix == ".pdf":
            assert b"/Type3" not in body


def test_figures_without_data_are_left_out(tmp_path):
    record = made_up(num_models=1, fractions=(1.0,), seeds=(0,), inside=False)
    bare = Record(kind="compare", values={**record.values, "curves": []})
    assert {path.stem for path in write_figures(tmp_path, bare)} == {"efficiency", "cost"}


def test_numbers_on_a_heat_map_can_be_read_on_every_colour():
    for share in np.linspace(0, 1, 101):
        colour = to_hex(colormaps["viridis"](share))
        ink = "#000000" if share > BRIGHT else "#ffffff"
        assert contrast(colour, ink) >= 4.45


def test_an_axis_of_whole_numbers_has_whole_ticks_alone():
    look = Style(0, "circle", "")
    whole = Lines(title="", x_label="layers", y_label="", series=(
        Series(label="a", x=(0, 1, 2, 3), y=(1.0, 2.0, 3.0, 4.0), style=look),))  # fmt: skip
    marks = x_marks(whole, line_scales(whole)[0], 8)
    assert marks == [0, 1, 2, 3]
    halves = replace(whole, series=(replace(whole.series[0], x=(0, 0.5, 2, 3)),))
    assert 0.5 in x_marks(halves, line_scales(halves)[0], 8)


def test_points_that_are_not_joined_have_no_line_between_them():
    look = Style(0, "circle", "")
    panel = Lines(title="", x_label="", y_label="", series=(
        Series(label="a", x=(0.0, 1.0), y=(1.0, 2.0), style=look),))  # fmt: skip
    joined, apart = draw_lines(panel), draw_lines(replace(panel, joined=False))
    assert joined.count("<circle") == 0
    assert apart.count("<circle") >= 2
    assert joined.count("<path") > apart.count("<path")
