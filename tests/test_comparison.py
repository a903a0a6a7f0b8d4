"""From the runs of a comparison to an answer, on made-up runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from vitascope.comparison.advice import advise
from vitascope.comparison.cautions import Trainings
from vitascope.comparison.evidence import Evidence, RunResult, crossings, tabulate
from vitascope.stats import accuracy, difference

COST = {"vit": 2.0, "convit": 3.0, "cnn": 1.0}


def cells(table, num_test=20_000, num_images=(100, 1000), name="test"):
    """{model: [[top-1 of each seed] at each fraction]} as runs; hard images are hard for all."""
    runs = [
        RunResult(model, fraction, seed, images, np.arange(num_test) < round(top1 * num_test / 100))
        for model, rows in table.items()
        for fraction, images, row in zip((0.1, 1.0), num_images, rows, strict=True)
        for seed, top1 in enumerate(row)
    ]
    return Evidence(name=name, runs=tuple(runs))


def advised(table, margin=1.0, trainings=None, tests=None, num_test=20_000, **images):
    """Advice by validation images, and by test images on which all is the same or ``tests``."""
    chosen = cells(table, num_test=num_test, name="validation")
    reported = cells(tests or table, num_test=num_test)
    return advise(chosen, reported, COST, "vit", margin=margin, trainings=trainings, **images)


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
    one = {"vit": [[40], [80]], "convit": [[60], [90]]}
    entry = tabulate(cells(one), "vit")[1].entry("convit")
    assert (entry.std, entry.verdict) == (None, "within noise")
    advice = advised(one)
    assert (advice.model, advice.confidence) == ("convit", "undecided")
    assert "one seed" in advice.cautions[0]
    assert "--seeds 0 1 2`" in advice.cautions[0]  # with the command
    assert set(advice.cautions) <= set(advice.sentences)
    assert advice.badge == "With caution: one seed"


def test_curves_that_cross_are_said_to_cross_where_they_do():
    crossed = {"vit": [[40, 41], [80, 81]], "cnn": [[60, 61], [60, 61]]}
    (crossing,) = crossings(cells(crossed))
    assert (crossing["first"], crossing["second"]) == ("cnn", "vit")
    assert crossing["fraction"] == pytest.approx(10**-0.5)  # half-way on a logarithmic axis
    assert crossing["text"] == "cnn leads below about 316 images, vit above"
    assert crossings(cells(crossed, num_test=20))[0]["text"].endswith("within the noise")
    assert not crossings(cells({"a": [[1], [2]], "b": [[3], [4]]}))


def test_a_clear_winner_is_recommended():
    advice = advised(CLEAR)
    assert (advice.model, advice.confidence) == ("convit", "clear")
    assert re.fullmatch(r"Use convit: 9[01] % correct", advice.headline)
    level = accuracy(cells(CLEAR).correct(1.0)["convit"])
    lead = difference(*(cells(CLEAR).correct(1.0)[name] for name in ("convit", "vit")))
    interval, other = (f"(95 % interval {e.low:.1f} to {e.high:.1f})" for e in (level, lead))
    assert advice.sentences[0] == (
        f"Right on 90.5 % {interval} of 20,000 test images; "
        f"10.0 points ahead of the next, vit {other}."
    )
    assert advice.badge == "A clear result"
    assert any("grows with fewer images" in s for s in advice.sentences)
    assert len(advice.evidence) == 2
    assert not advice.cautions


def test_the_cheaper_of_equals_is_recommended_only_where_that_is_shown():
    equal = {"vit": [[40, 41], [80, 80.2]], "convit": [[41, 42], [80.1, 80.3]]}
    advice = advised(equal, margin=3.0)
    assert (advice.model, advice.confidence) == ("vit", "equivalent")
    noisy = {"vit": [[40, 44], [76, 84]], "convit": [[41, 45], [80, 88]]}
    advice = advised(noisy, num_test=200)
    assert (advice.model, advice.confidence) == ("convit", "undecided")
    assert advice.headline.startswith("Undecided between convit and vit; for now use convit: 8")


def test_too_few_images_are_said_to_tell_nothing():
    few = {"vit": [[50, 50], [50, 50]], "convit": [[50, 50], [75, 75]]}
    assert "(too few images to tell)" in advised(few, num_test=4).sentences[0]
    assert "100.0" not in advised(few, num_test=4).sentences[0]


def close():
    """Two models that these runs cannot tell apart, and a third far behind."""
    return {"vit": [[40, 44], [78, 82]], "convit": [[41, 45], [79, 83]], "cnn": [[50, 51]] * 2}


def test_training_that_had_not_ended_is_in_the_badge():
    rising = [("vit", [10, 20, 30, 40, 50, 60, 70, 80]), ("cnn", [10, 50, 60, 60, 60, 60, 60, 60])]
    advice = advised(close(), trainings=Trainings(curves=rising))
    assert advice.badge == "With caution: not converged (vit)"
    (caution,) = advice.cautions
    assert "added 20.0 points" in caution
    assert not advised(close(), margin=21.0, trainings=Trainings(curves=rising)).cautions


def test_a_loser_that_had_not_converged_does_not_cloud_a_clear_result():
    rising = [("vit", [10, 20, 30, 40, 50, 60, 70, 80])]
    advice = advised(CLEAR, trainings=Trainings(curves=rising, never={"cnn": ["3"]}))
    assert advice.badge == "A clear result"
    assert not advice.cautions
    assert "vit had not converged" in advice.sentences[-1]
    winner = [("convit", [10, 20, 30, 40, 50, 60, 70, 80])]
    assert advised(CLEAR, trainings=Trainings(curves=winner)).cautions


@pytest.mark.parametrize("curve", [[40.0], [10.0, 40.0], [10.0, 20.0, 40.0]])
def test_one_to_three_epochs_with_a_steep_end_are_in_the_badge(curve):
    flat = ("cnn", [60.0, 60.0, 60.0])
    advice = advised(close(), trainings=Trainings(curves=[("vit", curve), flat]))
    assert advice.badge == "With caution: not converged (vit)"


def test_accuracy_that_falls_with_more_images_is_in_the_badge():
    advice = advised({"vit": [[80, 81], [40, 41]], "cnn": [[10, 11], [20, 21]]})
    assert advice.badge == "With caution: worse with more images (vit)"
    assert advice.cautions[0].startswith("vit is worse with 1,000 images than with 100")


def test_classes_that_are_never_predicted_are_in_the_badge():
    advice = advised(close(), trainings=Trainings(never={"vit": ["3", "8"], "cnn": ["1"]}))
    assert advice.badge == "With caution: classes never predicted (vit)"
    assert advice.cautions[0].startswith("vit never predicts 3, 8:")


def test_several_cautions_are_all_in_the_badge():
    one = {"vit": [[80], [40]], "cnn": [[50], [60]]}
    badge = advised(one, trainings=Trainings(never={"cnn": ["3"]})).badge
    assert badge == (
        "With caution: one seed; classes never predicted (cnn); worse with more images (vit)"
    )


def test_the_images_that_choose_are_not_those_that_measure():
    """Validation images say convit; its accuracy and leads are those of the test images."""
    tests = {"vit": [[40, 41], [94, 95]], "convit": [[70, 71], [82, 83]], "cnn": [[50, 51]] * 2}
    advice = advised(CLEAR, tests=tests)
    assert advice.model == "convit"
    assert "82.5 % (95 % interval" in advice.sentences[0]
    assert any(
        "test images, which were not used for selection, convit is" in s for s in advice.sentences
    )
    assert advice.accuracy["mean"] == pytest.approx(82.5)
    assert any("90.5 %" in said and "validation" in said for said in advice.sentences)
    (said,) = advice.cautions  # and the test images say otherwise
    assert said.startswith("On the 20,000 test images vit is ahead of convit by +12.0 points")
    assert advice.badge == "With caution: the test images disagree"


def test_of_many_models_groups_are_told_and_not_each_lead():
    first = {"a": (89, 91), "b": (88.8, 91), "c": (89, 90.8), "d": (69, 71), "e": (59, 61)}
    table = {name: [pair, pair] for name, pair in first.items()}
    chosen, reported = cells(table, name="validation"), cells(table)
    advice = advise(chosen, reported, dict.fromkeys(table, 1.0), "a")
    assert advice.headline.startswith("Undecided between a, b and c; for now use a")
    (why,) = (s for s in advice.sentences if s.startswith("Chosen by"))
    assert ": a 90.0 %, b 89.9 %, 3 others down to 60.0 %." in why
    (leads,) = (s for s in advice.sentences if "not used for selection" in s)
    assert re.search(
        r"a is ahead of 2 others by 20\.0 points \[\+\d+\.\d, \+\d+\.\d\] or more; "
        r"level with 2 others \(\+0\.1 points \[.*\] to \+0\.1 points \[.*\]\)\.$",
        leads,
    )
    worse = {**table, "e": [(99, 99.6), (99, 99.6)]}
    leads = next(
        s
        for s in advise(chosen, cells(worse), dict.fromkeys(table, 1.0), "a").sentences
        if "not used for selection" in s
    )
    assert re.search(r"; behind e by 9\.3 points \[-", leads)


def test_what_a_finer_grid_brings_and_costs_is_said_of_each_network():
    top1 = {"vit+patch4": (80, 80.5), "vit+patch2": (85, 85.5), "vit+patch8": (60, 60.5)}
    top1 |= {"convit+patch2": (82, 88.1), "convit+patch4": (84, 84.5), "cnn": (70, 71)}
    table = {name: [pair, pair] for name, pair in top1.items()}
    cost = {name: 8.0 / int(name[-1]) if "patch" in name else 9.0 for name in table}
    sentences = advise(cells(table), cells(table), cost, "cnn").sentences
    first, second, third = (s for s in sentences if s.startswith("A finer grid"))
    assert re.fullmatch(
        r"A finer grid, patches of 2 instead of 4 pixels, adds vit \+5\.0 points "
        r"\[\+\d\.\d, \+\d\.\d\] for 2\.0 times the multiply-adds\.",
        first,
    )
    assert "of 4 instead of 8 pixels, adds vit +20.0 points" in second
    assert re.search(
        r"convit \+0\.8 points \[-\d+\.\d, \+\d+\.\d\] \(no measurable difference\) for 2", third
    )
    assert not [s for s in advised(CLEAR).sentences if "finer grid" in s]


def test_images_that_choose_and_measure_are_in_the_badge():
    both = cells(CLEAR)
    advice = advise(both, both, COST, "vit")
    assert advice.badge == "With caution: chosen on the test images"
    assert not any("not used for selection" in said for said in advice.sentences)
    alone = both.of("vit")
    assert not advise(alone, alone, COST, "vit").cautions  # nothing was chosen


def test_folds_are_advised_where_test_images_are_few():
    assert any("--folds 5" in said for said in advised(CLEAR, num_test=400).sentences)
    assert not any("--folds 5" in said for said in advised(CLEAR, num_test=600).sentences)


def test_images_in_folds_have_the_interval_of_nadeau_and_bengio():
    folds = np.arange(1000) % 5
    held = replace(cells(CLEAR, num_test=1000), folds=folds, name="held-out")
    entry = tabulate(held, "vit")[1].entry("convit")
    expected = difference(*(held.correct(1.0)[m] for m in ("convit", "vit")), folds=folds)
    assert (entry.points_low, entry.points_high) == (expected.low, expected.high)
    advice = advise(held, held, COST, "vit")
    assert advice.badge == "With caution: chosen and measured on the same images"


def test_balanced_accuracy_counts_every_class_alike():
    """Nine images of ten are of one class, which is all that vit knows."""
    labels = np.array([0] * 900 + [1] * 100)
    knows = {"vit": np.arange(1000) < 900, "cnn": np.arange(1000) % 10 < 8}
    runs = [RunResult(m, 1.0, seed, 100, right) for m, right in knows.items() for seed in (0, 1)]
    by_image = Evidence(name="test", runs=tuple(runs))
    by_class = replace(by_image, labels=labels)
    (plain,), (fair,) = (tabulate(each, "vit") for each in (by_image, by_class))
    assert (plain.entry("vit").mean, plain.entry("cnn").mean) == pytest.approx((90, 80))
    assert (fair.entry("vit").mean, fair.entry("cnn").mean) == pytest.approx((50, 80))
    assert (plain.entry("cnn").points, fair.entry("cnn").points) == pytest.approx((-10, 30))
    advice = advise(by_class, by_class, COST, "vit", metric="balanced")
    assert advice.model == "cnn"
    assert "80 % balanced accuracy" in advice.headline


def test_a_relative_gain_is_never_told_without_its_points():
    for said in (*advised(CLEAR).sentences, *advised(CLEAR).evidence, advised(CLEAR).headline):
        assert "points" in said or "%" not in said or not re.search(r"[+-][0-9.]+ %", said)


def test_perfect_scores_do_not_break_the_arithmetic():
    perfect = {"vit": [[100, 100], [100, 100]], "convit": [[100, 100], [100, 100]]}
    for row in tabulate(cells(perfect, num_test=50), "vit"):
        entry = row.entry("convit")
        assert entry.verdict == "within noise"
        assert all(np.isfinite([entry.gain, entry.gain_low, entry.gain_high]))
    zero = {"vit": [[0, 0], [0, 0]], "convit": [[10, 10], [10, 10]]}
    assert np.isfinite(tabulate(cells(zero, num_test=50), "vit")[0].entry("convit").gain)


def test_a_caution_has_the_command_that_helps_in_another_folder_where_it_needs_one():
    rising = [("vit", [10, 20, 30, 40, 50, 60, 70, 80])]
    typed = "vitascope compare --data photos --epochs 8 --out a"
    known = {"command": typed, "out": "a", "epochs": 8}
    (caution,) = advised(close(), trainings=Trainings(curves=rising, **known)).cautions
    assert "`vitascope compare --data photos --epochs 16 --out a-longer`" in caution
    one = {"vit": [[40], [80]], "convit": [[60], [90]]}
    (caution,) = advised(one, trainings=Trainings(**known)).cautions
    assert f"`{typed} --seeds 0 1 2`" in caution  # finished runs are used again


def test_a_model_no_better_than_guessing_is_in_the_badge():
    halves = {"vit": [[50, 51], [50, 51]], "convit": [[50, 51], [51, 52]]}
    badge = advised(halves, num_test=100, trainings=Trainings(num_classes=2)).badge
    assert "no better than guessing" in badge
    assert "guessing" not in advised(halves, trainings=Trainings(num_classes=10)).badge


def test_every_mean_has_its_interval():
    (entry,) = (e for e in tabulate(cells(CLEAR), "vit")[1].entries if e.model == "convit")
    level = accuracy(cells(CLEAR).correct(1.0)["convit"])
    assert (entry.low, entry.high) == (level.low, level.high)
    assert entry.low < entry.mean < entry.high
