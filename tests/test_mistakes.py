"""Know the mistakes: class by class, the images that were most wrong, and what more would bring."""

import json

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from vitascope.cli import main
from vitascope.studies.pretrained.twice import twice
from vitascope.studies.session.mistakes import confusion, mistakes
from vitascope.train.predictions import Predictions


@pytest.fixture
def found():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 200)
    predicted = np.where(rng.random(200) < 0.7, label, rng.integers(0, 4, 200))
    return Predictions(
        predicted=predicted, label=label, probability=rng.random(200).astype(np.float32)
    )


def test_the_matrix_and_balanced_accuracy_are_scikit_learns(found):
    values, arrays = mistakes(found, list("abcd"), None)
    wanted = confusion_matrix(found.label, found.predicted)
    np.testing.assert_array_equal(arrays["confusion"], wanted)
    np.testing.assert_array_equal(confusion(found.label, found.predicted, 4), wanted)
    assert values["balanced"] == pytest.approx(
        balanced_accuracy_score(found.label, found.predicted)
    )
    assert sum(line["images"] for line in values["per_class"]) == 200


def test_the_surest_mistake_has_the_lowest_probability_of_its_label(found):
    values, _ = mistakes(found, list("abcd"), "{}.png".format)
    wrong = np.flatnonzero(~found.correct)
    worst = wrong[found.probability[wrong].argmin()]
    assert values["surest_mistakes"][0]["file"] == f"{worst}.png"
    right = np.flatnonzero(found.correct)
    least = right[found.probability[right].argmin()]
    assert values["least_sure_hits"][0]["file"] == f"{least}.png"
    assert all(line["label"] != line["predicted"] for line in values["surest_mistakes"])


def test_twice_the_images_follows_a_power_law_or_cannot_be_said():
    counts = np.repeat([50, 100, 200, 400], 3)
    noise = np.random.default_rng(0).normal(0, 0.02, 12)
    found = twice(counts, 2 * counts**-0.6 * np.exp(noise))
    wanted = 100 * (1 - 2 * 800**-0.6)
    assert found.low < wanted < found.high
    assert found.now < found.value
    assert twice(counts, np.full(12, 0.3) * np.exp(noise)) is None  # no slope
    assert twice(counts, np.where(counts == 400, 0, 0.1)) is None  # no errors any more
    assert twice([100, 100, 100, 100], [0.3, 0.2, 0.3, 0.2]) is None


def test_evaluate_tells_classes_and_mistakes(tmp_path, capsys):
    run = tmp_path / "run"
    small = ["--epochs", "1", "--fraction", "0.2", "--set", "batch_size=32", "scale_epochs=false"]
    train = ["train", "--model", "vit_micro", "--data", "digits", "--out", str(run), "--quiet"]
    assert main([*train, *small, "--model-args", "depth=1", "--no-tracking"]) == 0
    capsys.readouterr()
    words = ["evaluate", str(run), "--images", "60", "--json", "--out", str(tmp_path / "e")]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 <= told["balanced"] <= 1
    assert sum(line["right"] for line in told["per_class"]) == round(60 * told["top1"])
    assert told["surest_mistakes"][0]["file"].startswith("image ")
    assert main(["report", str(tmp_path / "e.json"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert "Confusion matrix" in page
    assert "Surest mistakes" in page
