"""One update of the weights, against computations by hand."""

import vitascope  # noqa: F401 - mends torchvision before timm is imported

# isort: split
import copy
import os
import signal

import pytest
import timm
import torch
from timm.utils import ModelEmaV3
from torch import nn
from torch.nn import functional as F

from model_making import few_digits, small_vit
from vitascope import data
from vitascope.errors import UserError
from vitascope.training import Teacher, distributed, recipe, train
from vitascope.training.distributed import TrainingProcess
from vitascope.training.trainer.distill import distillation_loss
from vitascope.training.trainer.optimizer import (
    Average,
    build_optimizer,
    frozen,
    frozen_running_statistics,
)
from vitascope.training.trainer.update import Update, memory_format_of


def tiny(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(num_images=8):
    torch.manual_seed(1)
    labels = torch.randint(3, (num_images,))
    images = torch.randn(num_images, 1, 2, 2, dtype=torch.float64)
    return data.Batch(images, labels, labels, torch.arange(num_images))


def settings(**changes):
    plain = {"optimizer": "momentum", "clip_grad": None, "weight_decay": 0.0, "travel_lr": 1.0}
    return recipe("laptop", **{**plain, **changes})


def updated(model, given, lr=0.1, teacher=None, **changes):
    chosen = settings(**changes)
    process = TrainingProcess(chosen, device="cpu")
    update = Update(process, model, build_optimizer(model, chosen), chosen, seed=0, teacher=teacher)
    model.train()
    sums = update(given, 0, lr)
    return update, sums


def gradients(model, given):
    model.zero_grad()
    F.cross_entropy(model(given.images), given.labels).backward()
    return [p.grad.clone() for p in model.parameters()]


def test_a_sam_step_uses_the_gradient_at_the_top_of_the_ball():
    rho, lr = 0.05, 0.1
    model, by_hand = tiny(), tiny()
    optimizer_step = updated(model, batch(), lr=lr, sam=rho)
    g = gradients(by_hand, batch())
    norm = torch.cat([part.flatten() for part in g]).norm()
    top = copy.deepcopy(by_hand)
    with torch.no_grad():
        for p, part in zip(top.parameters(), g, strict=True):
            p.add_(rho * part / norm)
    uphill = gradients(top, batch())
    with torch.no_grad():
        for p, part in zip(by_hand.parameters(), uphill, strict=True):
            p.sub_(lr * part)
    for a, b in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert optimizer_step[1][0] / 8 == pytest.approx(
        F.cross_entropy(tiny()(batch().images), batch().labels).item()
    )  # the loss that is told is the one at w


def test_batch_norms_do_not_count_the_perturbed_pass():
    norm = nn.BatchNorm1d(4)
    with frozen_running_statistics(norm):
        inside = norm(torch.randn(6, 4) + 3)
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(4))
    torch.testing.assert_close(inside.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    norm(torch.randn(6, 4))
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("parts", [2, 3])
def test_an_accumulated_batch_gives_the_update_of_the_whole(parts):
    whole, split = tiny(), tiny()
    _, (loss, _, _) = updated(whole, batch(), optimizer="adamw")
    _, (split_loss, _, _) = updated(split, batch(), optimizer="adamw", accumulation=parts)
    torch.testing.assert_close(split_loss, loss)
    for a, b in zip(split.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_clipping_bounds_the_step():
    model, start = tiny(), tiny()
    updated(model, batch(), lr=1.0, clip_grad=1e-3)
    moved = [a - b for a, b in zip(model.parameters(), start.parameters(), strict=True)]
    assert torch.cat([m.flatten() for m in moved]).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_the_average_is_timms():
    model = timm.create_model("test_resnet", num_classes=3)  # batch norms: buffers too
    ours, oracle = Average(model, 0.9), ModelEmaV3(model, decay=0.9)
    for _ in range(3):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        model(torch.randn(4, 3, 32, 32))
        ours.update(model)
        oracle.update(model)
    for name, value in oracle.module.state_dict().items():
        torch.testing.assert_close(ours.state[name], value)


def test_applying_the_average_is_undone_bit_for_bit():
    model = tiny()
    average = Average(model, 0.5)
    with torch.no_grad():
        model[1].weight.add_(1)
    own = copy.deepcopy(model.state_dict())
    with average.applied(model):
        assert torch.equal(model[1].weight, tiny()[1].weight)
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())


def test_frozen_parameters_stay_and_the_flags_come_back(tmp_path):
    digits = data.load("digits")
    model = small_vit()
    start = copy.deepcopy(model.state_dict())
    chosen = recipe("laptop", epochs=1, freeze=("blocks.0.*", "pos_embed"))
    train(model, digits, chosen, tmp_path / "run", quiet=True, trackers=())
    for name, value in model.state_dict().items():
        held = name.startswith("blocks.0.") or name == "pos_embed"
        assert torch.equal(value, start[name]) == held, name
    assert all(p.requires_grad for p in model.parameters())
    with (
        pytest.raises(UserError, match=r"no parameter matches 'blocks.9.\*'"),
        frozen(model, ("blocks.9.*",)),
    ):
        pass
    with pytest.raises(UserError, match="leaves nothing to train"), frozen(model, ("*",)):
        pass


def test_hard_distillation_by_hand():
    cls = torch.tensor([[1.0, 2.0, 0.0]])
    dist = torch.tensor([[0.0, 1.0, 3.0]])
    targets = torch.tensor([[0.5, 0.5, 0.0]])
    teacher = torch.tensor([[5.0, 0.0, 1.0]])  # says class 0
    log_cls = [v - torch.tensor([1.0, 2.0, 0.0]).exp().sum().log().item() for v in (1.0, 2.0)]
    log_dist = 0.0 - torch.tensor([0.0, 1.0, 3.0]).exp().sum().log().item()
    expected = 0.5 * -(0.5 * log_cls[0] + 0.5 * log_cls[1]) + 0.5 * -log_dist
    found = distillation_loss(cls, dist, targets, teacher, "hard", 0.5, 1.0)
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_soft_distillation_by_hand():
    cls = dist = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    teacher = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    t, alpha, labels = 2.0, 0.3, torch.tensor([0, 1])
    p, q = (teacher / t).softmax(-1), (dist / t).softmax(-1)
    kl = (p * (p / q).log()).sum(dim=-1).mean()
    own = -torch.stack([cls[0].log_softmax(-1)[0], cls[1].log_softmax(-1)[1]]).mean()
    found = distillation_loss(cls, dist, labels, teacher, "soft", alpha, t)
    assert found.item() == pytest.approx((0.7 * own + 0.3 * 4.0 * kl).item(), rel=1e-6)


class TwoHeads(nn.Module):
    """Like timm's distilled models: a pair in training, when asked, and else the mean."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.dist = nn.Linear(64, 10), nn.Linear(64, 10)
        self.distilled_training = False

    def set_distilled_training(self, enable=True):
        self.distilled_training = enable

    def forward(self, x):
        x = x.flatten(1)
        if self.training and self.distilled_training:
            return self.head(x), self.dist(x)
        return (self.head(x) + self.dist(x)) / 2


class SaysSeven(nn.Module):
    """A teacher that sees sevens, and remembers the images it was shown."""

    def __init__(self, num_classes=10):
        super().__init__()
        self.bias, self.seen = nn.Parameter(torch.zeros(num_classes)), None

    def forward(self, x):
        self.seen = x
        return (
            F.one_hot(torch.full((len(x),), len(self.bias) - 3), len(self.bias)) * 9.0 + self.bias
        )


def test_only_the_distillation_head_learns_from_the_teacher(tmp_path):
    digits, model, teacher = data.load("digits"), TwoHeads(), SaysSeven()
    chosen = recipe("laptop", epochs=4, distillation="hard", lr=0.01)
    run = train(model, digits, chosen, tmp_path / "run", teacher=teacher, quiet=True, trackers=())
    images = next(
        iter(data.EvalBatches(digits.test, batch_size=99, mean=digits.mean, std=digits.std))
    )
    x = images.images.flatten(1)
    assert (model.dist(x).argmax(-1) == 7).all()
    assert (model.head(x).argmax(-1) == images.labels).double().mean() > 0.7
    assert model.distilled_training is False
    assert run.final["train_nll_of"] == "labels"


def test_a_model_with_one_head_uses_it_for_both_terms():
    model, teacher, given = tiny(), SaysSeven(3), batch()
    teacher.forward = lambda x: torch.tensor([[0.0, 5.0, 0.0]]).expand(len(x), 3)
    _, (loss, nll, _) = updated(model, given, teacher=Teacher(teacher), distillation="hard")
    logits = tiny()(given.images)
    expected = F.cross_entropy(logits, given.labels) + F.cross_entropy(logits, torch.ones(8).long())
    torch.testing.assert_close(loss / 8, expected / 2)
    torch.testing.assert_close(nll / 8, F.cross_entropy(logits, given.labels))


def test_a_teacher_sees_its_own_statistics_size_and_channels():
    inner = SaysSeven()
    teacher = Teacher(inner, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), image_size=(16, 16))
    teacher.meet((0.2,), (0.1,), (1, 8, 8), [str(n) for n in range(10)])
    grey = 0.6
    teacher(torch.full((2, 1, 8, 8), (grey - 0.2) / 0.1))
    assert inner.seen.shape == (2, 3, 16, 16)
    torch.testing.assert_close(inner.seen, torch.full_like(inner.seen, (grey - 0.5) / 0.25))


def test_a_teacher_of_other_classes_or_none_at_all_is_refused(tmp_path):
    digits, chosen = data.load("digits"), recipe("laptop", distillation="soft")
    with pytest.raises(UserError, match="teacher has 5 classes, the images have 10"):
        train(TwoHeads(), digits, chosen, tmp_path / "a", teacher=SaysSeven(5), trackers=())
    with pytest.raises(UserError, match="there is no teacher"):
        train(TwoHeads(), digits, chosen, tmp_path / "b", trackers=())


def test_bfloat16_that_would_end_the_process_is_refused_in_one_line(tmp_path, monkeypatch):
    here, product = os.getpid(), F.linear

    def ends(*tensors):
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGILL)
        return product(*tensors)

    chosen, how = recipe("laptop", mixed_precision="bf16"), {"trackers": (), "device": "cpu"}
    distributed._survives.cache_clear()
    with monkeypatch.context() as there:
        there.setattr(F, "linear", ends)
        with pytest.raises(UserError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"):
            train(TwoHeads(), few_digits(20, 20), chosen, tmp_path / "run", **how)
    assert not (tmp_path / "run").exists()
    distributed._survives.cache_clear()
    distributed.check_bfloat16()


def test_bf16_trains(tmp_path):
    digits = data.load("digits")
    chosen = recipe("laptop", epochs=3, lr=0.01, mixed_precision="bf16")
    model = TwoHeads()
    run = train(model, digits, chosen, tmp_path / "run", quiet=True, trackers=(), device="cpu")
    assert run.final["top1"] > 0.7
    assert model.head.weight.dtype == torch.float32
    model.eval()
    assert model(torch.zeros(1, 1, 8, 8)).dtype == torch.float32
    assert "forward" not in vars(model)  # nothing is left on the caller's model


@pytest.mark.parametrize(
    ("name", "last"),
    [("efficientnet_b0", True), ("test_resnet", True), ("test_vit", False)],
)
def test_networks_of_convolutions_are_trained_with_channels_last(name, last):
    model = timm.create_model(name, num_classes=3)
    order = torch.channels_last if last else torch.contiguous_format
    assert memory_format_of(model) == order
    seen = []
    first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    first.register_forward_pre_hook(
        lambda m, x: seen.append(x[0].is_contiguous(memory_format=order))
    )
    plan = recipe("laptop")
    process = TrainingProcess(plan, device="cpu")
    update = Update(process, model, build_optimizer(model, plan), plan, seed=0)
    side = model.pretrained_cfg["input_size"][-1]
    labels = torch.tensor([0, 1])
    images = torch.randn(2, 3, side, side)
    update(data.Batch(images, labels, labels, torch.arange(2)), 0, 1e-3)
    assert seen == [True]


def test_narrow_strided_convolutions_keep_channels_first():
    layers = [nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 1, stride=2)]
    assert memory_format_of(nn.Sequential(*layers)) == torch.contiguous_format
    assert memory_format_of(nn.Sequential(layers[0])) == torch.channels_last
