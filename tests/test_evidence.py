"""From accuracies to an answer, on made-up numbers."""

import numpy as np
import pytest

from vitascope.studies.evidence import Cell, crossings, tabulate
from vitascope.studies.noise import half_width
from vitascope.studies.recommendation import recommend

COST = {"vit": 2.0, "convit": 3.0, "cnn": 1.0}


def cells(table, num_images=(100, 1000)):
    """{model: [[top-1 of each seed] at each fraction]} as runs."""
    return [
        Cell(model, fraction, seed, images, top1)
        for model, rows in table.items()
        for fraction, images, row in zip((0.1, 1.0), num_images, rows, strict=True)
        for seed, top1 in enumerate(row)
    ]


CLEAR = {"vit": [[40, 41], [80, 81]], "convit": [[60, 61], [84, 85]], "cnn": [[50, 51], [70, 71]]}


def test_the_gain_is_relative_to_the_reference_as_in_table_2():
    few, all_images = tabulate(cells(CLEAR), "vit", num_test=100_000)
    entry = few.entry("convit")
    assert entry.mean == 60.5
    assert entry.std == pytest.approx(np.std([60, 61], ddof=1))
    assert entry.gain == pytest.approx(100 * (60.5 - 40.5) / 40.5)
    assert few.entry("vit").verdict == "reference"
    assert few.entry("vit").gain is None
    assert (few.num_images, all_images.num_images) == (100, 1000)


def test_who_is_ahead_depends_on_the_spread_and_on_the_test_set():
    rows = tabulate(cells(CLEAR), "vit", num_test=100_000)
    assert [rows[1].entry(m).verdict for m in ("convit", "cnn")] == ["ahead", "behind"]
    few_tests = tabulate(cells(CLEAR), "vit", num_test=50)
    assert few_tests[1].entry("convit").verdict == "within noise"
    noisy = {"vit": [[30, 50], [70, 90]], "convit": [[50, 70], [74, 94]]}
    assert tabulate(cells(noisy), "vit", 100_000)[1].entry("convit").verdict == "within noise"


def test_the_interval_holds_the_true_difference_as_often_as_it_says():
    """Simulated runs with a known difference: seeds and test sets drawn many times."""
    rng, hits, trials, tests = np.random.default_rng(0), 0, 600, 400
    for _ in range(trials):
        groups = [
            [100 * rng.binomial(tests, (mean + rng.normal(0, 2)) / 100) / tests for _ in range(3)]
            for mean in (60, 63)
        ]
        made = [
            Cell(model, 1.0, seed, 10, top1)
            for model, group in zip(("a", "b"), groups, strict=True)
            for seed, top1 in enumerate(group)
        ]
        entry = tabulate(made, "a", tests)[0].entry("b")
        base = float(np.mean(groups[0]))
        low, high = (entry.gain_low * base / 100, entry.gain_high * base / 100)
        hits += low <= 3 <= high
    assert hits / trials >= 0.95


def test_one_seed_leaves_only_the_error_of_the_test_set():
    one = cells({"vit": [[40], [80]], "convit": [[60], [84]]})
    entry = tabulate(one, "vit", num_test=1000)[1].entry("convit")
    assert entry.std is None
    p = 0.82
    expected = 1.96 * 100 * np.sqrt(2 * p * (1 - p) / 1000)
    assert half_width(84, 80, (1, 1), (0.0, 0), 1000) == pytest.approx(expected, rel=1e-3)
    advice = recommend(one, 1000, COST, "vit")
    assert any("One seed" in sentence for sentence in advice.sentences)


def test_curves_that_cross_are_said_to_cross_where_they_do():
    crossed = cells({"vit": [[40], [80]], "cnn": [[50], [70]]})
    (crossing,) = crossings(crossed, 1000)
    assert (crossing["first"], crossing["second"]) == ("cnn", "vit")
    assert crossing["fraction"] == pytest.approx(10**-0.5)  # half-way on a logarithmic axis
    assert crossing["text"] == "cnn leads below about 316 images, vit above"
    assert crossings(crossed, 20)[0]["text"].endswith("within the noise")
    assert not crossings(cells({"a": [[1], [2]], "b": [[3], [4]]}), 10)


def test_a_clear_winner_is_recommended():
    advice = recommend(cells(CLEAR), 100_000, COST, "vit")
    assert (advice.model, advice.confidence) == ("convit", "clear")
    assert "84.5 %" in advice.headline
    assert any("grows with fewer images" in s for s in advice.sentences)
    assert len(advice.evidence) == 2


def test_among_equals_the_cheapest_is_recommended_and_called_so():
    equal = {
        "vit": [[40, 44], [80, 84]],
        "convit": [[41, 45], [81, 85]],
        "cnn": [[20, 22], [50, 52]],
    }
    advice = recommend(cells(equal), 200, COST, "vit")
    assert (advice.model, advice.confidence) == ("vit", "within noise")
    assert "cannot be told apart" in advice.sentences[0]


def test_perfect_scores_do_not_break_the_arithmetic():
    perfect = {"vit": [[100, 100], [100, 100]], "convit": [[100, 100], [100, 100]]}
    for row in tabulate(cells(perfect), "vit", 50):
        entry = row.entry("convit")
        assert entry.verdict == "within noise"
        assert all(np.isfinite([entry.gain, entry.gain_low, entry.gain_high]))
    zero = {"vit": [[0, 0], [0, 0]], "convit": [[10, 10], [10, 10]]}
    assert np.isfinite(tabulate(cells(zero), "vit", 50)[0].entry("convit").gain)
