"""Scales, ticks, labels and colours, and figures in both renderers."""

import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex

from vitascope.errors import UserError
from vitascope.figure import (
    Dots,
    DotSeries,
    Figure,
    Lines,
    Maps,
    Series,
    Surface,
    restored,
    stored,
)
from vitascope.report.figures.axes import AxisScale, spread, ticks
from vitascope.report.figures.heat import BRIGHT, draw_surface, smooth
from vitascope.report.figures.lines import draw_lines, line_scales, x_marks
from vitascope.report.figures.maps import lit
from vitascope.report.figures.page_renderer import draw_panel
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.report.figures.style import COLOURS, styles_of

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


def test_styles_differ_for_many_models_and_a_kind_keeps_its_colour():
    many = styles_of((f"model {i}", "other") for i in range(24))
    assert len(set(many.values())) == 24
    assert styles_of([("a", "cnn"), ("b", "convit")])["b"] == styles_of([("c", "convit")])["c"]


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_few_round_and_within_the_scale(log):
    random = np.random.default_rng(0)
    for _ in range(300):
        low = 10 ** random.uniform(-3, 6)
        scale = AxisScale(low, low * 10 ** random.uniform(0.05, 4), log)
        found = ticks(scale, 5)
        assert 2 <= len(found) <= 9
        assert found == sorted(set(found))
        assert all(scale.low * (1 - 1e-9) <= value <= scale.high * (1 + 1e-9) for value in found)


def test_a_scale_holds_its_values_and_keeps_to_its_bounds():
    scale = AxisScale.around([91.0, 99.8], least=4, floor=0, ceiling=100)
    assert scale.low < 91
    assert scale.high == 100
    assert AxisScale.around([5.0], least=2).at(5.0) == pytest.approx(0.5)
    assert AxisScale.around([], log=True).log
    assert AxisScale.around([0.0, 100.0, math.nan], log=True, least=3).at(100.0) == pytest.approx(
        0.5
    )


def test_labels_are_spread_apart_in_order_and_within_bounds():
    random = np.random.default_rng(0)
    for _ in range(100):
        wanted = random.uniform(0, 100, 6).tolist()
        places = spread(wanted, 12, 0, 100)
        assert np.argsort(places).tolist() == np.argsort(wanted).tolist()
        assert np.diff(np.sort(places)).min() >= 12 - 1e-9
        assert min(places) >= -1e-9
        assert max(places) <= 100 + 1e-9


def test_numbers_on_a_heat_map_can_be_read_on_every_colour():
    for share in np.linspace(0, 1, 101):
        colour = to_hex(colormaps["viridis"](share))
        ink = "#000000" if share > BRIGHT else "#ffffff"
        assert contrast(colour, ink) >= 4.45


def test_an_axis_of_whole_numbers_has_whole_ticks_alone():
    whole = Lines(
        title="",
        x_label="layers",
        y_label="",
        series=(Series(label="a", x=(0, 1, 2, 3), y=(1.0, 2.0, 3.0, 4.0)),),
    )
    marks = x_marks(whole, line_scales(whole)[0], 8)
    assert marks == [0, 1, 2, 3]
    halves = replace(whole, series=(replace(whole.series[0], x=(0, 0.5, 2, 3)),))
    assert 0.5 in x_marks(halves, line_scales(halves)[0], 8)


def places(drawn: str, kind: str) -> list[tuple[float, ...]]:
    """Where elements of a class stand: points of paths, centres of circles."""
    root = ElementTree.fromstring(f"<div>{drawn}</div>")
    found = []
    for group in root.iter():
        words = (group.get("class") or "").split()
        if kind in words and group.tag == "path":
            found += [tuple(map(float, p.split(","))) for p in group.get("d", "")[1:].split()]
        for part in (group, *group) if kind in words else ():
            if part.tag == "circle":
                found.append((float(part.get("cx")), float(part.get("cy"))))
    return found


def lines_of(*series: Series, **more) -> Lines:
    return Lines(title="", x_label="x", y_label="y", series=series, **more)


def test_a_known_point_lands_at_its_place_in_both_renderers():
    line = Series(label="", x=(0.0, 10.0, 20.0), y=(0.0, 100.0, 50.0))
    panel = lines_of(line, floor=0.0, ceiling=100.0, marks=False)
    _, y = line_scales(panel)
    assert (y.low, y.high) == (0.0, 100.0)
    drawn = places(draw_lines(panel, width=420, height=300), "line")
    left, right, top, foot = drawn[0][0], drawn[2][0], drawn[1][1], drawn[0][1]
    assert (top, foot) == (30.0, 256.0)  # the margins of the plot
    assert drawn[1][0] == pytest.approx((left + right) / 2, abs=0.1)
    assert drawn[2][1] == pytest.approx((top + foot) / 2, abs=0.1)
    axis = draw_figure(Figure(name="a", title="", reading="", panels=(panel,))).axes[0]
    assert axis.lines[0].get_xydata().tolist() == [[0, 0], [10, 100], [20, 50]]
    assert axis.get_ylim() == (y.low, y.high)


def test_what_a_point_is_the_mean_of_is_drawn_at_its_height():
    line = Series(label="a", x=(0, 1), y=(5.0, 5.0), each=[[0.0, 10.0], [5.0]])
    panel = lines_of(line, marks=False)
    drawn = draw_lines(panel)
    (x, low), (_, high), (_, middle) = places(drawn, "seed")
    assert x == places(drawn, "line")[0][0]
    assert middle == pytest.approx((low + high) / 2, abs=0.1)
    axis = draw_figure(Figure(name="a", title="", reading="", panels=(panel,))).axes[0]
    assert axis.lines[1].get_xydata().tolist() == [[0, 0], [0, 10], [1, 5]]


def test_points_that_are_not_joined_have_marks_and_no_line():
    panel = lines_of(Series(label="a", x=(0.0, 1.0), y=(1.0, 2.0)), marks=False)
    apart = replace(panel, joined=False)
    assert places(draw_lines(panel), "line")
    assert not places(draw_lines(apart), "line")
    figure = Figure(name="a", title="", reading="", panels=(panel, apart))
    first, second = (axis.lines[0] for axis in draw_figure(figure).axes)
    assert (first.get_linewidth() > 0, first.get_marker()) == (True, "")
    assert (second.get_linewidth(), second.get_marker()) == (0, "o")


def test_names_stand_where_they_are_put_along_a_logarithmic_axis():
    line = Series(label="a", x=(100, 1000, 10_000), y=(1.0, 2.0, 3.0))
    panel = lines_of(line, x_log=True, x_at=line.x, x_names=("few\n1 %", "some", "all"))
    root = ElementTree.fromstring(f"<div>{draw_lines(panel)}</div>")
    at = {text.text: float(text.get("x")) for text in root.iter("text") if text.get("x")}
    assert at["few"] == at["1 %"]
    assert at["some"] == pytest.approx((at["few"] + at["all"]) / 2, abs=0.11)
    axis = draw_figure(Figure(name="a", title="", reading="", panels=(panel,))).axes[0]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["few\n1 %", "some", "all"]


def bowl(side: int = 11) -> Surface:
    axis = np.linspace(-1, 1, side)
    return Surface(title="", x=axis, y=axis, values=np.add.outer(4 * axis**2, axis**2))


@pytest.mark.parametrize("log", [False, True])
def test_a_surface_is_interpolated_smoothly_and_keeps_its_numbers(log):
    x, y, found = smooth(replace(bowl(), log=log, values=bowl().values + 1e-3))
    assert len(x) > 50
    np.testing.assert_allclose(found, np.add.outer(4 * x**2, y**2) + 1e-3, atol=1e-6)
    holed = bowl()
    holed.values[0, 0] = np.nan
    _, _, found = smooth(holed)
    assert np.isnan(found[0, 0])
    assert np.nanmax(found) <= 5 + 1e-9
    np.testing.assert_allclose(
        found[30:-30, 30:-30], np.add.outer(4 * x**2, y**2)[30:-30, 30:-30], atol=0.02
    )


def test_contours_of_a_bowl_are_narrow_where_it_is_steep():
    drawn = draw_surface(bowl())
    first = re.search(r'd="M([^"]*)" class="contour"', drawn)  # the lowest: 4 x² + y² is constant
    assert first is not None
    inner = [tuple(map(float, point.strip("Z").split(","))) for point in first[1].split()]
    centre = [sum(p) / 2 for p in zip(*places(drawn, "centre")[:2], strict=True)]
    wide, high = (max(abs(p[i] - centre[i]) for p in inner) for i in (0, 1))
    assert high / wide == pytest.approx(2, rel=0.05)


def test_a_figure_that_was_stored_comes_back_whole():
    maps = Maps(
        title="m",
        rows=("a",),
        columns=("b", "c"),
        values=np.ones((1, 2, 3, 3)),
        photographs=np.ones((2, 4, 4, 3)) / 2,
    )
    dots = Dots(
        title="d", y_label="%", groups=("g",), series=(DotSeries(label="s", values=[[1.0]]),)
    )
    line = Series(label="l", x=[1, 2], y=[3.0, None], model="vit", each=[[1.0], [2.0]])
    panels = (lines_of(line, x_log=True, levels=(("u", 2.0),)), dots, bowl(3), maps)
    item, arrays = stored(Figure(name="f", title="t", reading="r.", panels=panels))
    found = restored(json.loads(json.dumps(item, default=np.ndarray.tolist)), arrays)
    assert (found.name, found.title, found.reading) == ("f", "t", "r.")
    assert found.panels[0] == panels[0]
    assert found.panels[1] == dots
    assert found.panels[2].x == [-1.0, 0.0, 1.0]
    np.testing.assert_array_equal(found.panels[2].values, panels[2].values)
    np.testing.assert_array_equal(found.panels[3].values, maps.values)
    np.testing.assert_array_equal(found.panels[3].photographs, maps.photographs)
    arrays["f/3/photographs"] = arrays["f/3/photographs"][:1]
    with pytest.raises(UserError, match=r"photographs must be of the shape .2, height"):
        restored(json.loads(json.dumps(item, default=np.ndarray.tolist)), arrays)


def test_a_map_lights_the_photograph_where_it_is_high():
    """A map of a bright left half: there the pixels stay, on the right a tenth is left."""
    half = np.zeros((1, 1, 8, 8))
    half[..., :4] = 0.02
    photographs = np.full((1, 32, 32, 3), 0.8)
    panel = Maps(
        title="", rows=("a",), columns=("1",), values=half, log=False, photographs=photographs
    )
    plain, bright = lit(panel)[:, 0, :, :, 0].astype(int)
    assert (plain == 204).all()
    assert (abs(bright[:, :12] - 204) <= 2).all()
    assert (abs(bright[:, 20:] - 20) <= 2).all()
    drawing = str(draw_panel(panel, "wide"))
    assert drawing.count("data:image/jpeg") == 2
    figure = draw_figure(Figure(name="f", title="", reading="", panels=(panel,)))
    pixels = figure.axes[0].images[0].get_array()
    assert pixels.shape[2] == 3
    np.testing.assert_array_equal(pixels[:32, :32], lit(panel)[0, 0])


@pytest.fixture
def one_of_each():
    """A panel of lines and one of dots, with two series each."""
    series = [Series(label=name, x=(0, 1), y=(1.0, 2.0)) for name in ("first", "second")]
    dots = [DotSeries(label=name, values=[[1.0, 2.0]]) for name in ("first", "second")]
    return lines_of(*series), Dots(title="", y_label="", groups=("g",), series=tuple(dots))


def test_both_renderers_name_the_same_series(one_of_each):
    figure = Figure(name="a", title="", reading="", panels=one_of_each)
    for panel, axis in zip(figure.panels, draw_figure(figure).axes, strict=True):
        legend = axis.get_legend()
        texts = legend.get_texts() if legend else axis.texts
        on_page = "".join(ElementTree.fromstring(f"<div>{draw_panel(panel)}</div>").itertext())
        for line in panel.series:
            assert line.label in on_page
            assert line.label in {text.get_text() for text in texts}


def test_a_panel_without_a_number_says_so_in_both_renderers():
    line = Series(label="a", x=[1.0], y=[None])
    panel = Lines(title="empty", x_label="x", y_label="y", series=(line,))
    (axis,) = draw_figure(Figure(name="f", title="", reading="", panels=(panel,))).axes
    (words,) = [text.get_text() for text in axis.texts]
    assert words in draw_panel(panel)
    assert words.startswith("No number")
    assert not axis.axison


def test_a_map_of_a_tokens_own_attention_has_no_ring_where_no_patch_looks():
    rows = ("layer 1", "layer 1, class token")
    values = np.ones((2, 3, 2, 2))
    panel = Maps(title="", rows=rows, columns=tuple("abc"), values=values, query=(0.0, 1.0))
    assert str(draw_panel(panel)).count('class="query"') == 6
    one = replace(panel, unringed=rows[1:])
    assert str(draw_panel(one)).count('class="query"') == 3
    assert (
        len(draw_figure(Figure(name="a", title="", reading="", panels=(one,))).axes[0].lines) == 3
    )
