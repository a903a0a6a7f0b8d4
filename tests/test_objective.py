"""The objective that curvature and landscapes share."""

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.measure.curvature.objective import (
    deterministic,
    fixed_batches,
    nll,
    objective,
    trainable_weights,
)
from vitascope.models import create_model


def batch(size=8, side=32, classes=10):
    return torch.randn(size, 3, side, side), torch.randint(0, classes, (size,))


def test_the_objective_at_the_models_own_weights_is_its_loss_plus_l2():
    model = create_model("vit_micro", num_classes=10).eval()
    images, labels = batch()
    with deterministic(model):
        found = objective(model, trainable_weights(model), images, labels, weight_decay=0.1)
    norm = sum(w.square().sum() for w in model.parameters())
    torch.testing.assert_close(found, F.cross_entropy(model(images), labels) + 0.05 * norm)


def test_float64_weights_give_a_float64_objective_and_leave_the_model_in_float32():
    model = create_model("convit_micro", num_classes=10)
    images, labels = batch(2)
    with deterministic(model):
        exact = objective(model, trainable_weights(model, torch.float64), images, labels)
        rough = objective(model, trainable_weights(model), images, labels)
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(rough.item(), abs=1e-5)
    assert {w.dtype for w in model.parameters()} == {torch.float32}


def test_hard_targets_are_one_hot_probabilities():
    logits, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(nll(logits, labels), nll(logits, F.one_hot(labels, 4)))


def test_a_distilled_model_is_measured_by_the_mean_of_its_heads():
    model = create_model("convit_micro_distilled", num_classes=10).train()
    model.set_distilled_training(True)
    images, labels = batch(2)
    with deterministic(model):
        found = objective(model, trainable_weights(model), images, labels)
    torch.testing.assert_close(found, F.cross_entropy(model.eval()(images), labels))


@pytest.mark.parametrize("batch_norm", ["running", "batch"])
def test_the_mode_is_deterministic_and_everything_comes_back(batch_norm):
    model = timm.create_model("resnet10t", num_classes=10, drop_rate=0.5, drop_path_rate=0.5)
    model.train()
    model.layer1.eval()  # a mixed mode, as when a part is frozen
    before = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images, labels = batch(4)
    with pytest.raises(ZeroDivisionError), deterministic(model, batch_norm=batch_norm):
        one = objective(model, trainable_weights(model), images, labels)
        two = objective(model, trainable_weights(model), images, labels)
        assert torch.equal(one, two)
        assert torch.equal(model(images), model(images))  # the model itself may be run too
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == before
    assert all(m.track_running_stats for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_batch_statistics_are_those_of_training():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(10))
    images, labels = batch(4, side=6)
    model.train()(images)
    with deterministic(model, batch_norm="batch"):
        own = objective(model, trainable_weights(model), images, labels)
    with deterministic(model):
        running = objective(model, trainable_weights(model), images, labels)
    torch.testing.assert_close(running, F.cross_entropy(model.eval()(images), labels))
    torch.testing.assert_close(own, F.cross_entropy(model.train()(images), labels))
    assert not torch.isclose(own, running)


def test_attention_has_a_second_derivative():
    model = create_model("vit_micro", num_classes=10)
    images, labels = batch(1)
    with deterministic(model):
        weights = trainable_weights(model)
        loss = objective(model, weights, images, labels)
        slope = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    norm = sum(s.square().sum() for s in slope)
    curved = torch.autograd.grad(norm, weights["blocks.0.attn.qkv.weight"])[0]
    assert curved.isfinite().all()
    assert curved.abs().max() > 0


def test_frozen_weights_do_not_move_and_a_model_of_them_is_refused():
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    assert list(trainable_weights(model)) == ["weight"]
    with pytest.raises(UserError, match="no weight that trains"):
        trainable_weights(nn.Flatten())


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, 4]), "classes are 0 to 3"),
        (torch.tensor([-1, 2]), "classes are 0 to 3"),
        (torch.zeros(2), "targets must be classes"),
        (torch.zeros(2, 3), "targets must be classes"),
        (torch.tensor([1]), "targets must be classes"),
    ],
)
def test_wrong_targets_are_refused(targets, message):
    with pytest.raises(UserError, match=message):
        nll(torch.zeros(2, 4), targets)


def test_batches_need_targets_and_at_least_one_of_them():
    with pytest.raises(UserError, match="needs targets"):
        list(fixed_batches([torch.zeros(1, 3, 4, 4)]))
    with pytest.raises(UserError, match="empty"):
        list(fixed_batches([]))
    with pytest.raises(UserError, match="empty"):
        list(fixed_batches([(torch.zeros(0, 3, 4, 4), torch.zeros(0).long())]))
    with (
        pytest.raises(UserError, match="batch_norm"),
        deterministic(nn.Linear(1, 1), batch_norm="x"),
    ):
        pass
