"""Accuracy, NLL and calibration against closed forms and torchmetrics."""

import vitascope  # noqa: F401 - mends torchvision before timm is imported

# isort: split
import math

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.functional.classification import multiclass_calibration_error

from model_making import Says
from vitascope import data
from vitascope.errors import UserError
from vitascope.reliability import bin_sums
from vitascope.training import evaluate
from vitascope.training.predictions import Collector, load_predictions


def batches(logits, labels, size=7):
    indices = torch.arange(len(labels))
    cuts = [slice(i, i + size) for i in range(0, len(labels), size)]
    return [data.Batch(logits[cut], labels[cut], labels[cut], indices[cut]) for cut in cuts]


@pytest.fixture
def some():
    torch.manual_seed(0)
    return 3 * torch.randn(200, 12), torch.randint(12, (200,))


def test_the_numbers_are_those_of_the_whole_set_whatever_the_batches(some):
    logits, labels = some
    found = evaluate(Says(), batches(logits, labels))
    assert found.num_images == 200
    assert found.top1 == pytest.approx((logits.argmax(-1) == labels).double().mean().item())
    five = (logits.topk(5).indices == labels[:, None]).any(-1).double().mean().item()
    assert found.top5 == pytest.approx(five)
    nll = nn.functional.cross_entropy(logits.double(), labels).item()
    assert found.nll == pytest.approx(nll, rel=1e-9)
    assert found.error == 1 - found.top1


def test_the_calibration_error_is_torchmetrics(some):
    logits, labels = some
    oracle = multiclass_calibration_error(logits, labels, num_classes=12, n_bins=15, norm="l1")
    assert evaluate(Says(), batches(*some)).ece == pytest.approx(oracle.item(), abs=1e-6)


def test_full_confidence_counts_and_half_right_is_an_error_of_one_half():
    logits = torch.tensor([[1000.0, 0.0], [1000.0, 0.0]])
    found = evaluate(Says(), batches(logits, torch.tensor([0, 1])))
    assert found.ece == pytest.approx(0.5)
    assert found.bin_count[-1] == 2
    assert found.top5 is None  # of two classes


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    assert bin_sums(np.array([0.5]), np.array([1.0]), 4)[0].tolist() == [0, 1, 0, 0]
    assert bin_sums(np.array([1.0]), np.array([1.0]), 4)[0].tolist() == [0, 0, 0, 1]


def test_two_heads_are_averaged(some):
    class Pair(Says):
        def forward(self, x):
            return x + 1.5, x - 0.5 * x

    logits, labels = some
    mean = (logits + 1.5 + 0.5 * logits) / 2
    found = evaluate(Pair(), batches(logits, labels)).nll
    assert found == pytest.approx(evaluate(Says(), batches(mean, labels)).nll, rel=1e-6)


def test_a_class_map_picks_the_columns():
    logits = torch.tensor([[0.0, 9.0, 1.0, 2.0]])
    found = evaluate(Says(), batches(logits, torch.tensor([1])), class_map=[2, 3])
    assert found.top1 == 1.0
    assert found.nll == pytest.approx(math.log(1 + math.exp(-1.0)))


def test_with_label_sets_any_of_them_is_a_hit_and_images_without_are_left_out():
    logits = torch.eye(6)[[0, 1, 2, 3]]
    labels = torch.tensor([5, 5, 5, 3])
    sets = [{0, 4}, {2}, set(), {3}]
    found = evaluate(Says(), batches(logits, labels, size=3), label_sets=sets)
    assert (found.num_images, found.num_left_out) == (3, 1)
    assert found.top1 == pytest.approx(2 / 3)
    assert found.nll is None


def test_every_image_keeps_its_prediction_and_the_probability_of_its_label(some):
    logits, labels = some
    found = evaluate(Says(), reversed(batches(logits, labels))).predictions
    np.testing.assert_array_equal(found.predicted, logits.argmax(-1))
    np.testing.assert_array_equal(found.label, labels)
    true = logits.double().softmax(-1)[torch.arange(200), labels]
    np.testing.assert_allclose(found.probability, true, rtol=1e-6)
    assert found.predicted.dtype == found.label.dtype == np.uint16
    assert found.correct.mean() == evaluate(Says(), batches(logits, labels)).top1


def test_processes_with_parts_of_the_images_join_their_predictions(some):
    logits, labels = some
    parts = batches(logits, labels)
    collectors = [Collector(), Collector()]
    for number, part in enumerate(parts):
        collectors[number % 2].add(part.images, part.labels, part.indices)
    sent = []
    collectors[0].joined(12, 200, lambda own: sent.append(own) or own)
    found = collectors[1].joined(12, 200, lambda own: own + sent[0])
    whole = evaluate(Says(), parts).predictions
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_without_one_true_label_there_are_no_predictions():
    found = evaluate(Says(), batches(torch.eye(3), torch.arange(3)), label_sets=[{0}, {1}, {0}])
    assert found.predictions is None
    assert "predicted" not in found.to_record().arrays


def test_damaged_predictions_are_named(tmp_path):
    (tmp_path / "predictions.safetensors").write_bytes(b"not a file of arrays")
    with pytest.raises(UserError, match="holds no predictions"):
        load_predictions(tmp_path)


def test_modes_come_back_and_wrong_labels_are_named():
    model = nn.Sequential(Says(), nn.Dropout(0.5).eval())
    evaluate(model, batches(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])))
    assert [m.training for m in model.modules()] == [True, True, False]
    with pytest.raises(UserError, match="label 3 but the model only 3 outputs"):
        evaluate(model, batches(torch.randn(1, 3), torch.tensor([3])))
    with pytest.raises(UserError, match="no images"):
        evaluate(model, [])


def test_the_record_has_the_numbers_and_the_bins(some, tmp_path):
    found = evaluate(Says(), batches(*some))
    record = found.to_record(model="says")
    assert record.values["top1"] == found.top1
    assert record.arrays["bin_count"].sum() == 200
    assert record.save(tmp_path / "evaluation").exists()
