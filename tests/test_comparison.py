"""From the runs of a comparison to an answer, on made-up runs."""

import numpy as np
import pytest

from vitascope.studies.comparison.advice import advise, cautions
from vitascope.studies.comparison.evidence import RunResult, crossings, tabulate

COST = {"vit": 2.0, "convit": 3.0, "cnn": 1.0}


def cells(table, num_test=20_000, num_images=(100, 1000)):
    """{model: [[top-1 of each seed] at each fraction]} as runs; hard images are hard for all."""
    return [
        RunResult(model, fraction, seed, images, np.arange(num_test) < round(top1 * num_test / 100))
        for model, rows in table.items()
        for fraction, images, row in zip((0.1, 1.0), num_images, rows, strict=True)
        for seed, top1 in enumerate(row)
    ]


CLEAR = {"vit": [[40, 41], [80, 81]], "convit": [[70, 71], [90, 91]], "cnn": [[50, 51], [60, 61]]}


def test_the_lead_is_in_points_and_the_gain_relative_as_in_table_2():
    few, all_images = tabulate(cells(CLEAR), "vit")
    entry = few.entry("convit")
    assert entry.mean == pytest.approx(70.5)
    assert entry.std == pytest.approx(np.std([70, 71], ddof=1))
    assert entry.points == pytest.approx(30)
    assert entry.gain == pytest.approx(100 * (70.5 - 40.5) / 40.5)
    assert entry.gain_low == pytest.approx(100 * entry.points_low / 40.5)
    assert few.entry("vit").verdict == "reference"
    assert few.entry("vit").points is None
    assert (few.num_images, all_images.num_images) == (100, 1000)


def test_who_is_ahead_depends_on_the_spread_between_seeds():
    rows = tabulate(cells(CLEAR), "vit")
    assert [rows[1].entry(m).verdict for m in ("convit", "cnn")] == ["ahead", "behind"]
    noisy = {"vit": [[30, 50], [70, 90]], "convit": [[50, 70], [74, 94]]}
    assert tabulate(cells(noisy), "vit")[1].entry("convit").verdict == "within noise"


def test_pairing_by_images_sees_what_two_test_sets_would_not():
    """2 points on 1,000 images: every image that the first gets right the second does too."""
    close = {"vit": [[80] * 5, [80] * 5], "convit": [[82] * 5, [82] * 5]}
    entry = tabulate(cells(close, num_test=1000), "vit")[1].entry("convit")
    assert entry.verdict == "ahead"
    alone = 1.96 * 100 * np.sqrt(2 * 0.81 * 0.19 / 1000)  # two sets of 1,000 images
    assert entry.points_high - entry.points < alone / 2


def test_one_run_each_is_never_ahead_and_says_so():
    one = cells({"vit": [[40], [80]], "convit": [[60], [90]]})
    entry = tabulate(one, "vit")[1].entry("convit")
    assert (entry.std, entry.verdict) == (None, "within noise")
    advice = advise(one, COST, "vit")
    assert (advice.model, advice.confidence) == ("convit", "undecided")
    assert "One seed" in advice.cautions[0]
    assert set(advice.cautions) <= set(advice.sentences)


def test_curves_that_cross_are_said_to_cross_where_they_do():
    crossed = {"vit": [[40, 41], [80, 81]], "cnn": [[60, 61], [60, 61]]}
    (crossing,) = crossings(cells(crossed))
    assert (crossing["first"], crossing["second"]) == ("cnn", "vit")
    assert crossing["fraction"] == pytest.approx(10**-0.5)  # half-way on a logarithmic axis
    assert crossing["text"] == "cnn leads below about 316 images, vit above"
    assert crossings(cells(crossed, num_test=20))[0]["text"].endswith("within the noise")
    assert not crossings(cells({"a": [[1], [2]], "b": [[3], [4]]}))


def test_a_clear_winner_is_recommended():
    advice = advise(cells(CLEAR), COST, "vit")
    assert (advice.model, advice.confidence) == ("convit", "clear")
    assert "90.5 %" in advice.headline
    assert any("grows with fewer images" in s for s in advice.sentences)
    assert len(advice.evidence) == 2
    assert not advice.cautions


def test_the_cheaper_of_equals_is_recommended_only_where_that_is_shown():
    equal = {"vit": [[40, 41], [80, 80.2]], "convit": [[41, 42], [80.1, 80.3]]}
    advice = advise(cells(equal), COST, "vit", margin=3.0)
    assert (advice.model, advice.confidence) == ("vit", "equivalent")
    noisy = {"vit": [[40, 44], [76, 84]], "convit": [[41, 45], [80, 88]]}
    advice = advise(cells(noisy, num_test=200), COST, "vit")
    assert (advice.model, advice.confidence) == ("convit", "undecided")
    assert advice.headline.startswith("Undecided between convit and vit")


def test_training_that_had_not_ended_and_accuracy_that_falls_are_cautions():
    rows = tabulate(cells(CLEAR), "vit")
    rising = [("vit", [10, 20, 30, 40, 50, 60, 70, 80]), ("cnn", [10, 50, 60, 60, 60, 60, 60, 60])]
    (said,) = cautions(rows, rising, 1.0)
    assert said.startswith("Not converged: vit gained")
    falling = tabulate(cells({"vit": [[80, 81], [40, 41]], "cnn": [[50, 51], [60, 61]]}), "vit")
    (said,) = cautions(falling, [], 1.0)
    assert said.startswith("vit is worse with 1,000 images than with 100")


def test_perfect_scores_do_not_break_the_arithmetic():
    perfect = {"vit": [[100, 100], [100, 100]], "convit": [[100, 100], [100, 100]]}
    for row in tabulate(cells(perfect, num_test=50), "vit"):
        entry = row.entry("convit")
        assert entry.verdict == "within noise"
        assert all(np.isfinite([entry.gain, entry.gain_low, entry.gain_high]))
    zero = {"vit": [[0, 0], [0, 0]], "convit": [[10, 10], [10, 10]]}
    assert np.isfinite(tabulate(cells(zero, num_test=50), "vit")[0].entry("convit").gain)
