"""When a measured contrast agrees with a paper's claim, on made-up numbers."""

from itertools import permutations
from math import e, inf, nan, sqrt

import pytest
from scipy import stats

from vitascope.studies.verdict import judge

A, B, C, D = (("convit", "10 %"), ("vit", "10 %"), ("convit", "100 %"), ("vit", "100 %"))
AHEAD = {A: 1, B: -1}


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([60.0, 61.0, 62.0], [50.0, 51.0, 52.0], "agrees"),
        ([50.0, 51.0, 52.0], [60.0, 61.0, 62.0], "disagrees"),
        ([60.0, 61.0, 62.0], [60.5, 61.5, 62.5], "within noise"),
        ([60.0, 61.0, 62.0], [60.0, 61.0, 62.0], "within noise"),
    ],
)
def test_the_interval_decides(first, second, verdict):
    assert judge({A: first, B: second}, AHEAD).verdict == verdict


def test_the_interval_is_students_with_the_pooled_spread():
    cells = {A: [60.0, 62.0], B: [50.0, 54.0]}  # variances 2 and 8 with one degree each: 5
    found = judge(cells, AHEAD)
    assert found.contrast == pytest.approx(9.0)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 2) * sqrt(5 / 2 + 5 / 2))
    assert found.why == ""


def test_cells_that_the_claim_does_not_name_lend_their_spread():
    two = judge({A: [60.0, 62.0], B: [50.0, 54.0]}, AHEAD)
    more = judge({A: [60.0, 62.0], B: [50.0, 54.0], C: [70.0, 72.0], D: [1.0, 3.0]}, AHEAD)
    assert more.contrast == two.contrast
    assert more.half_width == pytest.approx(stats.t.ppf(0.975, 4) * sqrt(14 / 4))
    assert more.half_width < two.half_width


def test_few_test_images_add_their_own_noise():
    cells = {A: [60.0, 60.0], B: [50.0, 50.0]}  # no spread at all
    found = judge(cells, AHEAD, num_test=100)
    assert found.half_width == pytest.approx(
        stats.t.ppf(0.975, 2) * 100 * sqrt((0.6 * 0.4 + 0.5 * 0.5) / 100)
    )
    assert found.verdict == "within noise"
    assert judge(cells, AHEAD, num_test=100_000).verdict == "agrees"


@pytest.mark.parametrize("value", [0.0, 100.0])
def test_an_accuracy_at_the_edge_is_not_certain(value):
    found = judge({A: [value] * 2, B: [value] * 2}, AHEAD, num_test=50)
    assert found.half_width is not None
    assert found.half_width > 0


def test_weights_scale_the_contrast_and_its_interval_alike():
    cells = {A: [60.0, 62.0], B: [50.0, 54.0]}
    one, half = judge(cells, AHEAD), judge(cells, {A: 0.5, B: -0.5})
    assert half.contrast == pytest.approx(one.contrast / 2)
    assert half.half_width == pytest.approx(one.half_width / 2)
    assert half.verdict == one.verdict


def test_a_difference_of_differences_has_the_noise_of_four_cells():
    cells = {A: [60.0, 62.0], B: [50.0, 52.0], C: [81.0, 83.0], D: [80.0, 82.0]}
    found = judge(cells, {A: 1, B: -1, C: -1, D: 1})
    assert found.contrast == pytest.approx(9.0)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 4) * sqrt(4 * 2 / 2))


def test_logarithms_compare_factors():
    cells = {A: [e, e**3], B: [1.0, 1.0]}
    found = judge(cells, AHEAD, logarithms=True)
    assert found.contrast == pytest.approx(2.0)
    scaled = {key: [1000 * v for v in values] for key, values in cells.items()}
    again = judge(scaled, AHEAD, logarithms=True)
    assert (again.contrast, again.half_width) == pytest.approx((found.contrast, found.half_width))


def test_a_logarithm_of_nothing_is_left_out():
    found = judge({A: [0.0, 0.0], B: [1.0, 2.0]}, AHEAD, logarithms=True)
    assert (found.verdict, found.contrast) == ("within noise", None)
    assert found.why == "no number for convit at 10 %"


def test_a_margin_moves_the_line():
    cells = {A: [60.0, 60.2, 60.4], B: [50.0, 50.2, 50.4]}
    assert [judge(cells, AHEAD, margin=m).verdict for m in (0, 5, 10, 15)] == [
        "agrees", "agrees", "within noise", "disagrees"]  # fmt: skip
    assert judge(cells, AHEAD, margin=5).contrast == pytest.approx(10.0)


def test_one_seed_without_test_images_says_nothing():
    found = judge({A: [60.0], B: [0.0]}, AHEAD)
    assert (found.verdict, found.contrast, found.half_width) == ("within noise", 60.0, None)
    assert found.why == "one seed: the noise is unknown"


def test_one_seed_leans_on_the_test_images_alone():
    found = judge({A: [60.0], B: [50.0]}, AHEAD, num_test=10_000)
    expected = stats.norm.ppf(0.975) * 100 * sqrt((0.24 + 0.25) / 10_000)
    assert found.half_width == pytest.approx(expected)
    assert found.verdict == "agrees"


@pytest.mark.parametrize("cells", [{A: [60.0]}, {A: [60.0], B: []}])
def test_an_empty_cell_is_named(cells):
    found = judge(cells, AHEAD, num_test=100)
    assert (found.verdict, found.contrast, found.half_width) == ("within noise", None, None)
    assert found.why == "no number for vit at 10 %"


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [nan, inf])
@pytest.mark.parametrize("place", [A, C])  # of the claim, and elsewhere in the table
def test_what_is_not_a_number_decides_nothing(value, place):
    cells = {A: [90.0, 91.0], B: [50.0, 51.0], C: [60.0, 61.0]}
    assert judge(cells, AHEAD).verdict == "agrees"
    cells[place] = [value, 60.0]
    assert judge(cells, AHEAD).verdict == "within noise"


@pytest.mark.parametrize("shift", [-20.0, -2.0, 0.0, 0.5, 20.0])
def test_the_opposite_claim_gets_the_opposite_verdict(shift):
    cells = {A: [50.0 + shift, 52.0 + shift], B: [50.0, 52.0]}
    opposite = {"agrees": "disagrees", "disagrees": "agrees", "within noise": "within noise"}
    found = judge(cells, AHEAD, num_test=1000)
    against = judge(cells, {key: -weight for key, weight in AHEAD.items()}, num_test=1000)
    assert against.verdict == opposite[found.verdict]
    assert against.contrast == pytest.approx(-found.contrast)
    assert against.half_width == pytest.approx(found.half_width)


def test_the_order_of_the_seeds_does_not_matter():
    first, second = [60.0, 61.5, 64.0], [55.0, 61.0, 58.0]
    found = {
        (judged.verdict, round(judged.contrast, 9), round(judged.half_width, 9))
        for order in permutations(range(3))
        if (judged := judge({A: [first[i] for i in order], B: second}, AHEAD, num_test=359))
    }
    assert len(found) == 1
