"""Differences of accuracies and of other numbers, against closed forms and other libraries."""

import numpy as np
import pytest
from scipy import stats

from simulated_runs import World
from vitascope.errors import UserError
from vitascope.stats import (
    ErrorVariance,
    accuracy,
    contrast,
    contrast_of_batches,
    contrast_of_numbers,
    correlation,
    difference,
)


def trial(seeds=3, images=400, accuracies=(90.0, 80.0), seed=0):
    world = World(
        accuracies=accuracies, spreads=(1.0,) * len(accuracies), seeds=seeds, images=images
    )
    return next(iter(world.trials(1, seed)))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4.5, 8, 30])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_a_variance_of_runs_alone_gives_students_interval(freedom, level):
    half = ErrorVariance(images=0.0, seeds=4.0, freedom=freedom).half_width(level)
    assert half == pytest.approx(2 * stats.t.ppf((1 + level) / 2, freedom), rel=1e-4)


def test_a_variance_of_images_alone_gives_the_normal_interval_and_few_groups_a_wider_one():
    assert ErrorVariance(images=4.0).half_width() == pytest.approx(2 * stats.norm.ppf(0.975))
    few = ErrorVariance(images=4.0, images_freedom=5)
    assert few.half_width() == pytest.approx(2 * stats.t.ppf(0.975, 5))


def test_the_mixture_is_what_drawing_the_variance_gives():
    rng = np.random.default_rng(0)
    drawn = 1 + np.maximum(0, 2 * 3.0 / rng.chisquare(2, 400_000) - 0.5)
    found = ErrorVariance(images=1.0, seeds=3.0, residual=0.5, freedom=2)
    half = found.half_width()
    assert np.mean(stats.norm.cdf(half / np.sqrt(drawn))) == pytest.approx(0.975, abs=5e-4)
    assert found.confidence(half) == pytest.approx(0.975, abs=1e-6)


def test_the_parts_of_the_variance_are_the_mean_squares_of_the_two_way_table():
    first, second = trial()
    found = difference(first, second).variance
    means = 100 * (first.mean(0) - second.mean(0))
    floor = 1e4 / 400**2
    assert found.images == pytest.approx(means.var(ddof=1) / 400 + floor)
    runs = [100 * cell.mean(1) for cell in (first, second)]
    assert found.seeds == pytest.approx(sum(run.var(ddof=1) / 3 for run in runs))
    square = 0.0
    for cell in (first, second):
        left = cell - cell.mean(0) - cell.mean(1, keepdims=True) + cell.mean()
        square += 1e4 * (left**2).sum() / (2 * 399) / 400 / 3
    assert found.residual == pytest.approx(square)


def test_pairing_takes_out_what_is_hard_for_both_models():
    first, second = trial(seeds=4, images=2000, accuracies=(88.0, 84.0))
    other = np.random.default_rng(1).permutation(2000)  # as if the second met other images
    apart = difference(first, second[:, other]).variance.images
    assert difference(first, second).variance.images < 0.6 * apart


def test_exchanging_the_models_mirrors_the_interval_and_seeds_have_no_order():
    first, second = trial()
    there, back = difference(first, second), difference(second[::-1], first)
    assert (there.low, there.value, there.high) == pytest.approx(
        (-back.high, -back.value, -back.low)
    )
    assert there.p_value == pytest.approx(back.p_value)
    assert (there.p_value < 0.05) == (there.low > 0)


def test_one_run_each_has_mcnemars_exact_p_and_says_that_it_speaks_of_these_runs():
    first = np.array([[True] * 9 + [False] * 3 + [True] * 8])
    second = np.array([[False] * 9 + [True] * 3 + [True] * 8])
    found = difference(first, second)
    assert found.one_run
    assert found.p_value == pytest.approx(stats.binomtest(9, 12).pvalue)
    assert found.value == pytest.approx(30.0)


def test_models_that_never_differ_are_not_certainly_equal():
    same = np.ones((3, 100), bool)
    found = difference(same, same)
    assert found.value == 0
    assert found.high > 1.9  # two of a hundred images, as the rule of three has it about
    assert difference(np.ones((3, 1000), bool), np.ones((3, 1000), bool)).high < 0.3


def test_images_of_one_group_count_together():
    rng = np.random.default_rng(0)
    few = rng.random((2, 3, 40)) < 0.8
    copies = np.repeat(few, 10, axis=2)  # ten equal frames of each of 40 videos
    videos = np.repeat(np.arange(40), 10)
    alone, grouped = difference(*few), difference(*copies, groups=videos)
    naive = difference(*copies)
    assert grouped.variance.images == pytest.approx(alone.variance.images)
    assert grouped.variance.residual == pytest.approx(alone.variance.residual)
    assert naive.variance.images < 0.2 * grouped.variance.images
    assert (grouped.low, grouped.high) == pytest.approx((alone.low, alone.high), rel=1e-6)


def test_balanced_accuracy_is_the_mean_over_classes_and_its_variance_that_of_strata():
    rng = np.random.default_rng(0)
    labels = np.array(["rare"] * 20 + ["common"] * 180)
    first = np.where(labels == "rare", rng.random((2, 200)) < 0.5, rng.random((2, 200)) < 0.9)
    second = rng.random((2, 200)) < 0.7
    found = difference(first, second, labels=labels)
    gap = 100 * (first.mean(0) - second.mean(0))
    classes = [gap[labels == name] for name in ("rare", "common")]
    assert found.value == pytest.approx(np.mean([each.mean() for each in classes]))
    strata = sum(each.var(ddof=1) / len(each) for each in classes) / 4
    floor = 1e4 * (20 * (1 / 40) ** 2 + 180 * (1 / 360) ** 2) / 200
    assert found.variance.images == pytest.approx(strata + floor)
    assert found.variance.images > 2 * difference(first, second).variance.images


def test_classes_of_equal_size_are_balanced_already():
    first, second = trial()
    labels = np.arange(400) % 4
    plain, balanced = difference(first, second), difference(first, second, labels=labels)
    assert balanced.value == pytest.approx(plain.value)
    assert balanced.variance.images == pytest.approx(plain.variance.images, rel=0.05)


def test_a_class_with_one_image_is_not_taken_as_certain():
    first, second = trial()
    labels = np.array([7] + [0, 1, 2] * 133)
    alone = difference(first, second, labels=labels).variance.images
    assert alone > 1e4 * 0.05 / 16  # its one image has a quarter of the weight


def test_folds_have_the_correction_of_nadeau_and_bengio():
    first, second = trial(seeds=2, images=500)
    folds = np.arange(500) % 5
    found = difference(first, second, folds=folds)
    pieces = [
        100 * (a[folds == k].mean() - b[folds == k].mean())
        for a, b in zip(first, second, strict=True)
        for k in range(5)
    ]
    floor = 1e4 * 5 / 500**2
    variance = (1 / 10 + 1 / 4) * (np.var(pieces, ddof=1) + floor)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, 9) * np.sqrt(variance))
    once = difference(first[:1], second[:1], folds=folds)  # five trainings of each model
    assert not once.one_run


def test_readings_of_the_same_runs_share_the_spread_between_them():
    rng = np.random.default_rng(0)
    level = np.array([0.6, 0.7, 0.8, 0.9])[:, None]  # the runs differ much
    whole, masked = (rng.random((4, 1000)) < level - lost for lost in (0.0, 0.05))
    apart = contrast([whole, masked], (1, -1))
    same = contrast([whole, masked], (1, -1), same_runs=True)
    assert same.value == pytest.approx(apart.value)
    assert same.high - same.low < 0.4 * (apart.high - apart.low)


def test_a_difference_of_differences_adds_the_runs_of_four_cells():
    cells = trial(accuracies=(90.0, 80.0, 70.0, 65.0))
    found = contrast(cells, (1, -1, -1, 1))
    runs = 100 * cells.mean(2)
    assert found.value == pytest.approx(runs.mean(1) @ (1, -1, -1, 1))
    assert found.variance.seeds == pytest.approx((runs.var(1, ddof=1) / 3).sum())
    assert contrast(cells, (0.5, -0.5, -0.5, 0.5)).high == pytest.approx(found.high / 2)


def test_a_model_with_one_run_takes_the_spread_of_the_other():
    first, second = trial(seeds=3)
    found = difference(first, second[:1])
    spread = (100 * first.mean(1)).var(ddof=1)
    assert found.variance.seeds == pytest.approx(spread * (1 / 3 + 1))
    assert found.variance.freedom == pytest.approx(2)
    assert not found.one_run


def test_degrees_of_freedom_lie_between_one_cells_and_those_of_all():
    steady = np.tile(np.arange(100) < 80, (2, 1))
    shaky = np.stack([np.arange(100) < 80, np.arange(100) < 90])
    assert difference(shaky, shaky[::-1]).variance.freedom == pytest.approx(2)
    # spreads 1 and 0 drawn together by half a degree: 5/6 and 1/6
    assert difference(shaky, steady).variance.freedom == pytest.approx(36 / 26)


def test_an_accuracy_stays_within_its_bounds():
    found = accuracy(np.ones((3, 50), bool))
    assert (found.value, found.high) == (100.0, 100.0)
    assert 95 < found.low < 99.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda a, b: difference(a, b[:, :-1]), "same test images"),
        (lambda a, b: difference(a, b, groups=[1, 2]), "one entry for each of 400"),
        (lambda a, b: difference(a, b, groups=["p"] * 400), "two or more"),
        (lambda a, b: difference(a, np.full((3, 400), 0.5)), "right or wrong"),
        (lambda a, b: difference(a[:, :1], b[:, :1]), "two or more"),
        (lambda a, b: contrast([a, b], (1,)), "one to each"),
        (lambda a, b: contrast([a, b[:2]], (1, -1), same_runs=True), "same shape"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        given(*trial())


def test_numbers_of_two_cells_are_compared_by_welchs_test():
    first, second = [3.0, 4.5, 5.0], [9.0, 7.0, 7.5, 12.0]
    found = contrast_of_numbers([first, second], (1, -1))
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-5)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-4)


def test_what_all_runs_were_measured_on_adds_its_own_variance():
    cells = [[3.0, 4.5, 5.0], [9.0, 7.0, 7.5]]
    plain, both = (contrast_of_numbers(cells, (1, -1), sampling=v) for v in (0.0, 4.0))
    assert both.variance.total == pytest.approx(plain.variance.total + 4.0)
    assert both.high - both.low > plain.high - plain.low


def test_numbers_without_spread_are_not_certain():
    assert contrast_of_numbers([[1.0, 1.0], [2.0, 2.0]], (1, -1)) is None
    assert contrast_of_numbers([[1.0], [2.0]], (1, -1)) is None
    assert contrast_of_numbers([[0.1 + 0.2, 0.3], [2.0, 2.0]], (1, -1)) is None  # rounding
    found = contrast_of_numbers([[1.0, 1.0, 1.0], [2.0, 3.0, 4.0]], (1, -1))
    assert found.variance.seeds == pytest.approx(1 / 3 + 1 / 3)  # takes the other's variance
    assert found.variance.freedom == pytest.approx(2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_gives_no_interval(value):
    assert contrast_of_numbers([[1.0, value], [2.0, 3.0]], (1, -1)) is None


def test_resampled_batches_of_a_mean_have_its_standard_error():
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(1, 1, 64))
    found = contrast_of_batches(batches, (1.0,), resamples=2000)
    assert found.variance.images == pytest.approx(batches.var(ddof=1) / 64, rel=0.15)
    assert found.one_run


def test_batches_that_all_runs_meet_are_resampled_together():
    rng = np.random.default_rng(0)
    common = 5 * rng.normal(size=40)
    cells = [common + rng.normal(size=(3, 40)) + shift for shift in (0.0, 1.0)]
    found = contrast_of_batches(cells, (-1, 1), np.median)
    assert not found.one_run
    assert found.low < 1 < found.high
    assert found.variance.images < 0.2  # the batches' own spread, 25 / 40 each, cancels


def test_pearsons_interval_is_fishers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    found, expected = correlation(x, y), stats.pearsonr(x, y).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.p_at(0.0) == pytest.approx(found.p_value)
    assert found.p_at(found.high) == pytest.approx(0.05)


def test_batches_that_differ_from_run_to_run_are_counted_once():
    rng = np.random.default_rng(0)
    cells = [rng.normal(size=(4, 400)), rng.normal(size=(4, 400))]  # runs differ by batches alone
    found = contrast_of_batches(cells, (1, -1)).variance
    expected = 2 / (4 * 400)
    assert found.images == pytest.approx(expected, rel=0.3)
    assert found.residual == pytest.approx(expected, rel=0.3)


def test_a_statistic_that_no_batch_has_gives_no_interval():
    nothing = np.full((3, 8), np.nan)
    assert contrast_of_batches([nothing, np.ones((3, 8))], (1, -1)) is None


def test_a_correlation_of_several_runs_has_the_points_variance_once_and_the_runs_spread():
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    first, second = x + 0.6 * rng.normal(size=(2, 3, 12))
    found = correlation(first, second)
    each = [correlation(a, b) for a, b in zip(first, second, strict=True)]
    z = np.arctanh([one.value for one in each])
    assert found.value == pytest.approx(np.mean([one.value for one in each]))
    assert found.variance.images == pytest.approx(1 / 9)
    assert found.variance.seeds == pytest.approx(z.var(ddof=1) / 3)
    assert correlation(first[:1], second[:1]).one_run
    assert not each[0].one_run


def test_points_on_a_line_do_not_make_a_certain_correlation():
    found = correlation([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], "spearman")
    assert found.value == pytest.approx(1.0)
    assert found.low < 0.5
    assert found.high < 1
    assert correlation([1, 2, 3], [1, 2, 3]) is None
    assert correlation([1, 2, 3, 4], [5, 5, 5, 5]) is None


@pytest.mark.parametrize(
    ("weights", "ends"), [((1, -1), (-100, 100)), ((2, -1), (-100, 200)), ((1, 1), (0, 200))]
)
def test_an_interval_ends_where_accuracies_do(weights, ends):
    two = np.array([[True, True, True], [False, False, True]])  # seeds that differ by a lot
    found = contrast([two, ~two], weights)
    assert (found.low, found.high) == ends
    assert found.value == pytest.approx(np.dot(weights, (200 / 3, 100 / 3)))


def test_folds_may_be_dealt_anew_with_each_seed():
    """Nadeau and Bengio's variance by hand, from the differences of all runs."""
    rng = np.random.default_rng(3)
    first, second = rng.random((3, 60)) < 0.8, rng.random((3, 60)) < 0.7
    dealt = np.stack([rng.permutation(np.arange(60) % 4) for _ in range(3)])
    runs = [
        100 * (first[s, dealt[s] == f].mean() - second[s, dealt[s] == f].mean())
        for s in range(3)
        for f in range(4)
    ]
    variance = (np.var(runs, ddof=1) + 100**2 * 4 / 60**2) * (1 / 12 + 1 / 3)
    found = difference(first, second, folds=dealt)
    assert found.value == pytest.approx(np.mean(runs))
    half = stats.t.ppf(0.975, 11) * variance**0.5
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))
    fewer = difference(first[:2], second[:2], folds=dealt)  # runs of the first seeds alone
    assert fewer.value == pytest.approx(np.mean(runs[:8]))
    with pytest.raises(UserError, match="folds of 2 seeds"):
        difference(first, second, folds=dealt[:2])
    same = difference(first, second, folds=np.tile(dealt[0], (3, 1)))
    assert same == difference(first, second, folds=dealt[0])
