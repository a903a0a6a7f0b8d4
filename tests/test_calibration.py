"""Calibration and temperature scaling: hand-made examples, an oracle, identities."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import binomtest
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

from model_making import Says
from vitascope import measure
from vitascope.data import Batch
from vitascope.errors import UserError
from vitascope.measure.robustness.calibration import fit_temperature, nll, scores
from vitascope.training import evaluate


def made_up(number=400, classes=10, seed=0, temperature=1.0):
    """Logits whose labels are drawn from softmax(logits): calibrated at this temperature."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((number, classes))
    labels = np.array([rng.choice(classes, p=p) for p in softmax(logits, axis=1)])
    return logits * temperature, labels


def batches_of(logits, labels, size=64):
    images = torch.as_tensor(np.asarray(logits))[:, :, None, None]
    return list(zip(images.split(size), torch.as_tensor(labels).split(size), strict=True))


def test_a_hand_made_example_has_the_scores_worked_out_by_hand():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    labels = np.array([0, 1, 1, 0])
    found = scores(np.log(p), labels, num_bins=5)  # bins (0.4, 0.6], (0.6, 0.8], (0.8, 1]
    assert found.top1 == 0.5
    assert found.top5 is None
    assert found.bin_count == (0, 0, 1, 2, 1)
    np.testing.assert_allclose(found.bin_confidence, [0, 0, 0.6, 0.75, 0.9], atol=1e-12)
    np.testing.assert_allclose(found.bin_accuracy, [0, 0, 0, 0.5, 1], atol=1e-12)
    assert found.ece == pytest.approx((0.6 + 2 * 0.25 + 0.1) / 4)
    assert found.nll == pytest.approx(-np.log(0.9 * 0.2 * 0.7 * 0.4) / 4)
    assert found.brier == pytest.approx(2 * (0.1**2 + 0.8**2 + 0.3**2 + 0.6**2) / 4)


def test_adaptive_bins_hold_equally_many_images_and_agree_with_the_ece_in_one_bin():
    logits, labels = made_up(number=300)
    found = scores(logits, labels, num_bins=10)
    assert found.adaptive_bins["bin_count"] == (30,) * 10
    confidence, hit = softmax(logits, axis=1).max(1), logits.argmax(1) == labels
    order = np.argsort(confidence).reshape(10, 30)
    gaps = np.abs(confidence[order].mean(1) - hit[order].mean(1))
    assert found.adaptive_ece == pytest.approx(gaps.mean())
    one = scores(logits, labels, num_bins=1)
    assert one.adaptive_ece == pytest.approx(one.ece)


def test_class_wise_ece_is_the_mean_of_torchmetrics_of_each_class_against_the_rest():
    logits, labels = made_up(number=300, classes=4)
    wanted = []
    for number, column in enumerate(softmax(logits, axis=1).T):
        metric = BinaryCalibrationError(n_bins=15, norm="l1")
        wanted.append(float(metric(torch.from_numpy(column), torch.from_numpy(labels == number))))
    assert scores(logits, labels).class_wise_ece == pytest.approx(np.mean(wanted), abs=1e-6)


def test_errors_of_the_ece_shrink_with_the_images_and_match_repeated_draws():
    drawn = [scores(*made_up(seed=seed), num_bins=5) for seed in range(30)]
    spread = np.std([one.adaptive_ece for one in drawn], ddof=1)
    said = np.mean([one.adaptive_error for one in drawn])
    assert 0.5 * spread < said < 2 * spread
    assert scores(*made_up(number=6400), num_bins=5).ece_error < 0.6 * drawn[0].ece_error


def test_a_bins_interval_is_scipys_of_wilson():
    logits, labels = made_up()
    found = scores(logits, labels)
    for count, accuracy, low, high in zip(
        found.bin_count, found.bin_accuracy, found.bin_low, found.bin_high, strict=True
    ):
        if count:
            test = binomtest(round(accuracy * count), count).proportion_ci(method="wilson")
            assert (low, high) == pytest.approx((test.low, test.high), abs=1e-6)


def test_bins_are_closed_on_the_right_and_a_confidence_of_one_counts():
    sure = scores(np.array([[1000.0, 0.0], [1000.0, 0.0]]), np.array([0, 1]))
    assert sure.bin_count[-1] == 2
    assert sure.ece == 0.5
    assert sure.nll == 500
    assert sure.brier == 1
    halves = scores(np.zeros((4, 2)), np.array([0, 0, 1, 1]), num_bins=2)
    assert halves.bin_count == (4, 0)  # 0.5 belongs to (0, 0.5]
    assert halves.ece == 0


def test_perfect_calibration_gives_zero():
    p = np.repeat([[0.75, 0.25], [5 / 8, 3 / 8]], [4, 8], axis=0)  # inside their bins
    labels = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1])
    assert scores(np.log(p), labels).ece == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("num_bins", [10, 15])
def test_the_ece_is_torchmetrics(num_bins):
    logits, labels = made_up(temperature=2.0)
    oracle = MulticlassCalibrationError(num_classes=10, n_bins=num_bins, norm="l1")
    theirs = oracle(torch.from_numpy(softmax(logits, axis=1)), torch.from_numpy(labels)).item()
    assert scores(logits, labels, num_bins).ece == pytest.approx(theirs, abs=1e-6)


def test_the_numbers_are_those_of_evaluation_after_training():
    logits, labels = made_up()
    images, labels_ = torch.from_numpy(logits)[:, :, None, None], torch.from_numpy(labels)
    there = evaluate(Says(), [Batch(images, labels_, labels_, torch.arange(len(labels)))])
    here = scores(logits, labels)
    for name in ("top1", "top5", "nll", "ece", "bin_count", "bin_confidence", "bin_accuracy"):
        assert getattr(here, name) == pytest.approx(getattr(there, name), abs=1e-6), name


def test_a_known_temperature_is_recovered():
    for temperature in (0.5, 1.0, 3.0):
        logits, labels = made_up(6000, temperature=temperature)
        assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)
    logits, labels = made_up(50)
    once = fit_temperature(logits, labels)
    assert fit_temperature(7 * logits, labels) == pytest.approx(7 * once, rel=1e-9)


def test_the_temperature_is_where_the_nll_is_least():
    logits, labels = made_up(temperature=2.5)
    best = fit_temperature(logits, labels)
    least = nll(logits / best, labels)
    for factor in (0.9, 0.999, 1.001, 1.1):
        assert nll(logits / (best * factor), labels) > least


@pytest.mark.parametrize("seed", range(8))
def test_fitting_never_raises_the_nll_it_fits(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-3, 4)
    labels = rng.integers(3, size=4)
    found = fit_temperature(logits.astype(np.float32), labels)
    assert 0.01 - 1e-12 <= found <= 100 + 1e-9
    assert nll(logits / found, labels) <= nll(logits, labels) + 1e-6


def test_extremes_stop_at_the_bounds_and_one_class_changes_nothing():
    right = np.eye(3) * 2
    assert fit_temperature(right, np.arange(3)) == pytest.approx(0.01)
    assert fit_temperature(right, np.array([1, 2, 0])) == pytest.approx(100)
    assert fit_temperature(np.array([[3.0], [5.0]]), np.array([0, 0])) == 1


def test_a_model_is_measured_whole_and_its_temperature_on_images_it_has_not_seen():
    logits, labels = made_up(1000, temperature=3.0)
    found = measure.calibration(Says().double(), batches_of(logits, labels), seed=5)
    assert found.scores == scores(logits, labels)
    scaling = found.scaling
    assert scaling.num_fitted == scaling.before.num_images == 500
    assert scaling.temperature == pytest.approx(3, rel=0.15)
    assert scaling.after.ece < 0.5 * scaling.before.ece
    assert scaling.after.top1 == scaling.before.top1
    order = np.random.default_rng(5).permutation(1000)
    fitted, rest = order[:500], order[500:]
    assert scaling.temperature == pytest.approx(fit_temperature(logits[fitted], labels[fitted]))
    assert scaling.before.nll == pytest.approx(scores(logits[rest], labels[rest]).nll)
    assert scaling.fitted_nll[1] < scaling.fitted_nll[0]
    values = found.to_record().values
    assert values["scaling"]["temperature"] == scaling.temperature
    assert values["ece"] == found.scores.ece


def test_the_half_depends_on_the_seed_alone():
    logits, labels = made_up(200)
    by_size = [measure.calibration(Says(), batches_of(logits, labels, n)) for n in (7, 200)]
    assert by_size[0] == by_size[1]
    other = measure.calibration(Says(), batches_of(logits, labels), seed=1)
    assert other.scaling.temperature != by_size[0].scaling.temperature
    assert other.scores == by_size[0].scores


def test_a_temperature_can_be_fitted_on_images_of_their_own():
    logits, labels = made_up(300, temperature=2.0)
    more = made_up(100, seed=1, temperature=2.0)
    found = measure.calibration(
        Says().double(), batches_of(logits, labels), fit=batches_of(*more)
    ).scaling
    assert found.num_fitted == 100
    assert found.temperature == pytest.approx(fit_temperature(*more))
    assert found.before == scores(logits, labels)


def test_one_image_has_no_other_to_fit_on():
    assert measure.calibration(Says(), batches_of(np.zeros((1, 5)), [2])).scaling is None


def test_mistakes_are_told_in_words():
    good = np.zeros((2, 3))
    for logits, labels, says in (
        (good, [0, 3], "labels go from 0 to 3"),
        (np.array([[np.inf, 0, 0], [0, 0, 0]]), [0, 0], "infinite"),
        (np.array([[np.nan, 0, 0], [0, 0, 0]]), [0, 0], "NaN"),
    ):
        with pytest.raises(UserError, match=says):
            measure.calibration(Says(), batches_of(logits, labels))
    with pytest.raises(UserError, match="from 1 to"):
        measure.calibration(Says(), batches_of(good, [0, 0]), num_bins=0)
    with pytest.raises(UserError, match="empty"):
        measure.calibration(Says(), [])
