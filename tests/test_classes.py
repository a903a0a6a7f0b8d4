"""A run and images from elsewhere: classes are matched by name, never by chance."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from vitascope import data
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.explorer.explore import explore
from vitascope.inspection.evaluation import evaluate_subject
from vitascope.inspection.options import EvaluateOptions
from vitascope.loading.session import open_session
from vitascope.runs.train_model import teacher_from
from vitascope.training import load_run
from vitascope.training.classes import class_pairs, columns, joined

COLOURS = {"a": (220, 40, 40), "b": (40, 220, 40), "c": (40, 40, 220)}


def folder(root, names, count=10):
    """Class folders of one colour each, so that a few steps of training tell them apart."""
    rng = np.random.default_rng(0)
    for name, colour in names.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            noise = rng.integers(-30, 30, (16, 16, 3))
            pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained on a, b and c until all are right."""
    root = tmp_path_factory.mktemp("classes")
    photos = folder(root / "photos", {"a": "a", "b": "b", "c": "c"}, count=20)
    words = ["train", "--model", "vit_micro", "--data", str(photos), "--recipe", "laptop"]
    words += ["--epochs", "6", "--set", "batch_size=16", "augmentation.mixup=0"]
    words += ["--model-args", "depth=1", "--no-tracking", "--quiet", "--out", str(root / "run")]
    assert main(words) == 0
    assert load_run(root / "run").final["top1"] == 1.0
    return root / "run"


def test_a_run_keeps_the_names_of_its_classes_from_the_start(run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["classes"] == ["a", "b", "c"]
    assert load_run(run).classes == ("a", "b", "c")


def test_all_images_are_measured_only_where_none_is_for_training(run, tmp_path):
    for part in ("train", "test"):
        folder(tmp_path / part, {"a": "a", "b": "b"})
    with pytest.raises(UserError, match="has a test set of its own; give --split test or train"):
        evaluate_subject(EvaluateOptions(model=str(run), data=str(tmp_path), split="all"))


def test_some_of_the_classes_are_evaluated_by_name(run, tmp_path, capsys):
    some = folder(tmp_path / "some", {"b": "b", "c": "c"})
    assert main(["evaluate", str(run), "--data", str(some)]) == 0
    out = capsys.readouterr().out
    assert "100.0 [" in out
    assert "note: classes are matched by name: 2 of the model's 3 classes" in out
    options = EvaluateOptions(model=str(run), data=str(some))
    assert evaluate_subject(options).values["top1"] == 1.0
    assert evaluate_subject(options).values["num_images"] == 4
    assert evaluate_subject(replace(options, split="all")).values["num_images"] == 20
    words = ["evaluate", str(run), "--data", str(some), "--on", "fgsm,calibration", "--json"]
    assert main(words) == 0
    measures = json.loads(capsys.readouterr().out)["measures"]
    assert measures["fgsm"]["clean"] == 1.0
    assert measures["calibration"]["ece"] < 0.4


def test_names_that_a_run_does_not_know_are_refused_with_both_lists(run, tmp_path, capsys):
    other = folder(tmp_path / "other", {"b": "b", "pup": "c", "x": "a"})
    assert main(["evaluate", str(run), "--data", str(other)]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert "does not know pup, x: it knows a, b, c; the images have b, pup, x" in err
    assert "--map-classes NEW=KNOWN" in err


def test_names_are_mapped_on_request(run, tmp_path, capsys):
    other = folder(tmp_path / "other", {"b": "b", "pup": "c", "x": "a", "y": "a"})
    words = ["evaluate", str(run), "--data", str(other), "--json", "--map-classes"]
    assert main([*words, "pup=c", "x=a", "y=a"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == 1.0
    assert main([*words, "pup=a", "x=c", "y=c"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == 0.25
    for wrong, says in (
        (["pup=d", "x=a", "y=a"], "unknown class of the model 'd'"),
        (["dog=c"], "unknown class of the images 'dog'"),
        (["pup"], "takes NEW=KNOWN"),
        (["pup=a", "pup=b"], "maps pup to a and to b"),
    ):
        assert main([*words, *wrong]) == 2
        assert says in capsys.readouterr().err


def test_a_run_without_names_is_matched_by_position_if_the_number_agrees(run, tmp_path, capsys):
    old = tmp_path / "old"
    old.mkdir()
    for file in ("record.json", "metrics.jsonl", "model.safetensors"):
        (old / file).write_bytes((run / file).read_bytes())
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["data"]["classes"]
    (old / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["evaluate", str(old)]) == 0
    assert "matched by position: the model has no names for its 3" in capsys.readouterr().out
    some = folder(tmp_path / "some", {"b": "b", "c": "c"})
    assert main(["evaluate", str(old), "--data", str(some)]) == 2
    assert "3 outputs without names, the images 2 classes (b, c)" in capsys.readouterr().err


def test_an_inspection_has_the_same_classes(run, tmp_path, capsys):
    some = folder(tmp_path / "some", {"b": "b", "c": "c"})
    quick = ("--batches", "1", "--eigenvalues", "1", "--tolerance", "0.5")
    words = ["inspect", str(run), "--json", "--images", "6", "--data"]
    assert main([*words, str(some), "--measures", "fgsm", "hessian", *quick]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measures"]["fgsm"]["clean"] == 1.0
    assert found["notes"] == ["classes are matched by name: 2 of the model's 3 classes"]
    other = folder(tmp_path / "other", {"b": "b", "pup": "c", "x": "a"})
    assert main([*words, str(other)]) == 0  # attention needs no labels
    found = json.loads(capsys.readouterr().out)
    assert "nonlocality" in found["measures"]
    assert "does not know pup, x" in found["refused"]["masking"]
    for measure in ("lesion", "hessian"):
        assert main([*words, str(other), "--measures", measure]) == 2
        assert f"{measure} needs labels of the model's own classes" in capsys.readouterr().err
    words += [str(other), "--map-classes", "pup=c", "x=a", "--measures", "fgsm"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["measures"]["fgsm"]["clean"] == 1.0


def test_the_explorer_names_answers_after_the_run_and_images_after_themselves(run, tmp_path):
    other = folder(tmp_path / "other", {"x": "c", "y": "a", "z": "b"})
    session = open_session(str(run), str(other))
    values = explore(session).values
    found = {
        (shown["label"], answer[0])
        for shown, answer in zip(values["images"], values["answers"][-1], strict=True)
    }
    assert found == {("x", "c"), ("y", "a"), ("z", "b")}


def test_published_corruptions_follow_the_names(run, tmp_path, capsys):
    some = folder(tmp_path / "some", {"b": "b", "c": "c"})
    root = tmp_path / "corrupted"
    folder(root / "snow" / "1", {"b": "b", "c": "c"}, count=4)
    words = ["evaluate", str(run), "--data", str(some), "--on", "corruption", "--severities", "1"]
    assert main([*words, "--corrupted", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measures"]["corruption"]
    assert found["accuracy"] == [[1.0]]
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    pixels = np.zeros((10, 32, 32, 3), dtype=np.uint8)
    pixels[0::2] = COLOURS["b"]
    pixels[1::2] = COLOURS["c"]
    np.save(arrays / "snow.npy", pixels)
    np.save(arrays / "labels.npy", np.tile(np.arange(2), 5))
    assert main([*words, "--corrupted", str(arrays), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measures"]["corruption"]
    assert found["accuracy"] == [[1.0]]


def test_a_run_teaches_the_classes_of_the_student(run, tmp_path):
    teacher = teacher_from(str(run))
    teacher.meet((0.5,) * 3, (0.5,) * 3, (3, 16, 16), ["c", "a"])
    images = torch.randn(2, 3, 16, 16)
    found = teacher(images)
    teacher.columns = None
    torch.testing.assert_close(found, teacher(images)[:, [2, 0]], rtol=0, atol=0)
    with pytest.raises(UserError, match="teacher knows a, b, c, the images have a, d"):
        teacher_from(str(run)).meet((0.5,) * 3, (0.5,) * 3, (3, 16, 16), ["a", "d"])


def test_a_run_is_not_resumed_on_other_classes(run, capsys):
    config = yaml.safe_load((run / "config.yaml").read_text())
    words = ["train", "--model", "vit_micro", "--data", config["data"]["name"], "--resume"]
    words += ["--epochs", "6", "--set", "batch_size=16", "augmentation.mixup=0", "--out", str(run)]
    words += ["--model-args", "depth=1", "--no-tracking", "--quiet"]
    assert main(words) == 0
    stored = (run / "config.yaml").read_text()
    try:
        config["data"]["classes"] = ["a", "b", "d"]
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        assert main(words) == 2
        says = "data.classes was ['a', 'b', 'd'], now ['a', 'b', 'c']"
        assert says in capsys.readouterr().err
    finally:
        (run / "config.yaml").write_text(stored)


def test_a_run_on_the_first_classes_is_evaluated_on_those(tmp_path, capsys):
    photos = folder(tmp_path / "photos", {"a": "a", "b": "b", "c": "c"})
    words = ["train", "--model", "vit_micro", "--data", str(photos), "--recipe", "laptop"]
    words += ["--epochs", "1", "--set", "subset.first_classes=2", "batch_size=4"]
    words += ["--model-args", "depth=1", "num_classes=2", "--no-tracking", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    final = load_run(tmp_path / "run").final["top1"]
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["top1"] == pytest.approx(final)
    assert found["num_images"] == 4


def test_a_hugging_face_model_is_joined_by_its_names_if_it_shares_some():
    digits = data.load("digits")
    names = tuple(reversed(digits.classes))
    found = joined(digits, names, 10, strict=False)
    np.testing.assert_array_equal(found.test.labels, 9 - digits.test.labels)
    words = tuple(f"class {name}" for name in digits.classes)
    found = joined(digits, words, 10, strict=False)
    np.testing.assert_array_equal(found.test.labels, digits.test.labels)
    assert "by position" in found.notes[-1]
    with pytest.raises(UserError, match="does not know 0, 1"):
        joined(digits, words, 10)


def test_sets_of_labels_are_renumbered_too():
    digits = data.load("digits")
    sets = tuple(frozenset({int(label), 0}) for label in digits.test.labels)
    found = joined(data.Dataset(**{**vars(digits), "label_sets": sets}), digits.classes[::-1], 10)
    assert found.label_sets[0] == frozenset({9 - int(digits.test.labels[0]), 9})


def test_columns_and_pairs():
    assert columns(["b", "a"], ["a", "b", "c"]).tolist() == [1, 0]
    assert class_pairs(["a=b=c"]) == {"a": "b=c"}
    many = [f"n{i}" for i in range(1000)]
    with pytest.raises(UserError, match=r"\(1000 in all\)") as caught:
        columns(["x"], many)
    assert len(str(caught.value)) < 500
