"""Know the mistakes: class by class, the images that were most wrong, and what more would bring."""

import base64
import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from explorer_making import EVIL
from vitascope.commands import main
from vitascope.comparison.pretrained.race import twice
from vitascope.data import MemoryImages
from vitascope.errors import UserError
from vitascope.inspection.evaluation import confusion, mistakes
from vitascope.record import Record
from vitascope.report.page import compose, render_page
from vitascope.report.records import FoundRecords, Source
from vitascope.training.predictions import Predictions


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


@pytest.fixture
def images(found):
    """One of 2 x 2 pixels each, all of its own number."""
    pixels = torch.arange(200, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2)
    return MemoryImages(
        pixels, found.label, list("abcd"), names=[f"photos/{i}.png" for i in range(200)]
    )


def test_the_surest_mistake_has_the_lowest_probability_of_its_label(found, images):
    values, arrays = mistakes(found, list("abcd"), images)
    wrong = np.flatnonzero(~found.correct)
    worst = wrong[found.probability[wrong].argmin()]
    assert values["surest_mistakes"][0]["file"] == f"photos/{worst}.png"
    right = np.flatnonzero(found.correct)
    least = right[found.probability[right].argmin()]
    assert values["least_sure_hits"][0]["file"] == f"photos/{least}.png"
    assert all(line["label"] != line["predicted"] for line in values["surest_mistakes"])
    pictures = {name: each for name, each in arrays.items() if name.startswith("picture/")}
    assert len(pictures) == 24
    assert sum(each.nbytes for each in pictures.values()) < 24 * 6000
    shown = Image.open(BytesIO(pictures[f"picture/{worst}"].tobytes()))
    assert shown.getpixel((0, 0)) == (worst, worst, worst)


class GoneFiles(MemoryImages):
    """Whose pixels cannot be read any more."""

    def pixels(self, indices):
        raise UserError("no such file")


def source_of(found, images, **changed):
    values, arrays = mistakes(found, list("abcd"), images)
    numbers = {"top1": 0.7, "top5": None, "nll": 1.0, "ece": 0.1, "num_images": 200}
    record = Record(
        kind="evaluation",
        values={**numbers, **values, **changed},
        arrays=arrays,
        config={"data": "photos", "split": "test", "subject": "vit"},
    )
    return Source(path=Path("e.json"), record=record)


def page_of(source):
    return render_page(compose(FoundRecords(sources=(source,))))


def test_the_lists_are_pictures_with_what_was_said_and_how_surely(found, images):
    found = replace(found, confidence=np.full(200, 0.875, np.float32))
    source = source_of(found, images)
    page = page_of(source)
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    assert len(pictures) == 24
    first = source.record.values["surest_mistakes"][0]
    raw = source.record.arrays[f"picture/{first['index']}"].tobytes()
    assert base64.b64decode(pictures[0][0]) == raw
    assert pictures[0][1] == f"Image labelled {first['label']}"
    gallery = page[page.index('class="gallery"') :]
    predicted = f"predicted {first['predicted']}"
    assert gallery.index(predicted) < gallery.index("87.5\u00a0% confident")
    assert f"labelled {first['label']}, {100 * first['probability']:.1f}\u00a0%" in gallery
    assert f'<small title="{first["file"]}">{first["file"]}</small>' in gallery
    assert "has no pictures" not in page


def test_without_their_pictures_the_lists_are_tables_that_say_so(found, images):
    gone = GoneFiles(images._pixels, images.labels, images.classes)
    page = page_of(source_of(found, gone))
    assert "Most confident mistakes" in page
    assert page.count("The record has no pictures of them.") == 2
    assert 'id="gallery-1"' not in page


def test_a_pictures_bytes_and_names_from_outside_cannot_become_markup(found, images):
    source = source_of(found, images)
    line = {"label": EVIL, "predicted": EVIL + "2", "file": EVIL, "probability": 0.1}
    source.record.values["surest_mistakes"] = [{**line, "index": 1000 + i} for i in range(30)]
    raw = [b"\x89PNG" + EVIL.encode(), EVIL.encode(), b"\x89PNG" + bytes(70_000)]
    for index, each in enumerate(raw):  # only the first is a small picture
        source.record.arrays[f"picture/{1000 + index}"] = np.frombuffer(each, np.uint8)
    page = page_of(source)
    assert EVIL not in page
    gallery = page[page.index('class="gallery"') : page.index('id="gallery-2"')]
    assert gallery.count("<li>") == 12  # six under the answer, the others folded
    assert gallery.count("<img") == 1
    assert gallery.count("No picture") == 11


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
    first = told["surest_mistakes"][0]
    assert first["file"].startswith("image ")
    assert first["confidence"] > first["probability"]
    assert main(["report", str(tmp_path / "e.json"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert "Confusion matrix" in page
    shown = len(told["surest_mistakes"]) + len(told["least_sure_hits"])
    assert page.count('<img src="data:image/png') == shown > 12
