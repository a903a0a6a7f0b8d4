"""The loss around the weights: closed forms on networks small enough to write down."""

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import vitascope
from vitascope.errors import UserError
from vitascope.measure.curvature.landscape import (
    filter_norms,
    landscape,
    movable,
    normalised,
    random_direction,
)

module = sys.modules[
    "vitascope.measure.curvature.landscape"
]  # the package's own name is the function


def vit(**options):
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
    return vitascope.create_model("vit_micro", **{**sizes, "num_classes": 4, **options})


def pairs(count=2, size=(3, 8, 8), classes=4):
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, *size, generator=g), torch.randint(classes, (5,), generator=g))
        for _ in range(count)
    ]


@pytest.mark.parametrize("axis", [0, 1])
def test_every_filter_of_a_direction_has_the_norm_of_the_filter_it_moves(axis):
    weight = torch.randn(6, 5, 3, 3, dtype=torch.float64)
    weight[2] = 0
    step = normalised(torch.randn_like(weight), weight, axis)
    torch.testing.assert_close(filter_norms(step, axis), filter_norms(weight, axis))


def test_the_named_option_normalises_along_the_other_axis():
    model = nn.Sequential(nn.Linear(5, 7))
    for axis, dim in (("output", 1), ("input", 0)):
        step = random_direction(model, torch.Generator().manual_seed(0), axis=axis)["0.weight"]
        torch.testing.assert_close(step.norm(dim=dim), model[0].weight.detach().norm(dim=dim))
    with pytest.raises(UserError, match="'rows'; there are: input, output"):
        random_direction(model, torch.Generator(), axis="rows")


def test_norms_biases_tokens_tables_and_gates_do_not_move():
    model = vitascope.create_model("convit_micro", num_classes=4)
    moved = movable(model)
    assert "blocks.0.attn.qk.weight" in moved
    assert "patch_embed.proj.weight" in moved
    weights = dict(model.named_parameters())
    still = set(weights) - set(moved)
    assert {"cls_token", "pos_embed", "blocks.0.norm1.weight", "head.bias"} <= still
    assert any("gating" in name for name in still)
    assert any("pos_proj" in name for name in still)


def test_a_deconvolution_counts_its_outputs_on_the_second_axis():
    assert movable(nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Conv2d(3, 4, 1))) == {
        "0.weight": 1,
        "1.weight": 0,
    }
    with pytest.raises(UserError, match="no linear map or convolution"):
        movable(nn.BatchNorm2d(3))


class Linear(nn.Module):
    """Two logits that are w x and 0: a loss with a closed form."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2, bias=False)

    def forward(self, x):
        return self.map(x.flatten(1))


def test_the_l2_term_is_the_quadratic_it_should_be():
    model = Linear().double()
    batch = [(torch.zeros(1, 3, 1, 1, dtype=torch.float64), torch.tensor([0]))]
    found = landscape(model, batch, grid=5, span=2.0, weight_decay=0.3)
    np.testing.assert_allclose(found.nll, np.log(2), rtol=1e-12)  # no image, no say
    generator = torch.Generator().manual_seed(0)
    first, second = (random_direction(model, generator)["map.weight"] for _ in range(2))
    for i, a in enumerate(found.axes[0]):
        for j, b in enumerate(found.axes[1]):
            moved = model.map.weight.detach() + a * first + b * second
            assert found.l2[i, j] == pytest.approx(0.15 * float(moved.square().sum()), rel=1e-10)
    assert found.loss == pytest.approx(found.nll + found.l2)


def test_along_a_given_direction_the_loss_is_that_of_the_moved_weights():
    model = Linear().double()
    images, labels = torch.randn(4, 3, 1, 1, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    step = {"map.weight": torch.randn(2, 3, dtype=torch.float64)}
    grid = [[-1.0, 0.0, 0.5, 3.0]]
    found = landscape(
        model, [(images[:3], labels[:3]), (images[3:], labels[3:])], directions=[step], grid=grid
    )
    for point, loss in zip(grid[0], found.nll, strict=True):
        logits = images.flatten(1) @ (model.map.weight.detach() + point * step["map.weight"]).T
        assert loss == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-12)


@pytest.mark.parametrize("name", ["vit", "resnet_micro"])
def test_moving_functionally_equals_writing_the_weights(name):
    torch.manual_seed(0)
    model = vit() if name == "vit" else vitascope.create_model(name, num_classes=4)
    before = copy.deepcopy(model.state_dict())
    found = landscape(model, pairs(), directions=1, grid=3, span=0.7, seed=5)
    step = random_direction(model, torch.Generator().manual_seed(5))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])  # nothing was written
    other = copy.deepcopy(model).eval()
    with torch.no_grad():
        for name, weight in other.named_parameters():
            weight.add_(0.7 * step[name] if name in step else 0)
        losses = [F.cross_entropy(other(x), y) for x, y in pairs()]
    assert found.nll[2] == pytest.approx(float(sum(losses)) / 2, rel=1e-5)
    assert model.training


def test_soft_targets_of_mixup_are_used():
    images = torch.randn(2, 3, 8, 8)
    soft = torch.tensor([[0.5, 0.5, 0, 0], [0, 0.2, 0.8, 0]])
    model = vit().eval()
    found = landscape(model, [(images, soft)], directions=1, grid=[[0.0]])
    with torch.no_grad():
        assert found.nll[0] == pytest.approx(float(F.cross_entropy(model(images), soft)), rel=1e-5)


def test_a_seed_brings_the_same_surface_back():
    model = vit()
    first, again, other = (landscape(model, pairs(), grid=3, seed=seed).nll for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_an_interrupted_surface_goes_on_where_it_stopped(tmp_path, monkeypatch):
    model = vit()
    whole = landscape(model, pairs(), grid=3)

    def stop(done, total):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        landscape(model, pairs(), grid=3, resume=tmp_path / "part.npz", on_point=stop)
    seen = []
    real = module.objective
    monkeypatch.setattr(module, "objective", lambda *a: seen.append(1) or real(*a))
    found = landscape(model, pairs(), grid=3, resume=tmp_path / "part.npz")
    np.testing.assert_array_equal(found.nll, whole.nll)
    assert len(seen) == 5 * 2  # five points left, two batches
    with pytest.raises(UserError, match="another question: .* differ"):
        landscape(model, pairs(), grid=3, seed=1, resume=tmp_path / "part.npz")
    with torch.no_grad():
        model.head.weight.add_(1.0)
    with pytest.raises(UserError, match="another question: .* differ"):
        landscape(model, pairs(), grid=3, resume=tmp_path / "part.npz")


def test_a_loss_that_overflows_is_infinite_and_never_nan():
    step = {"map.weight": torch.full((2, 3), 1e38)}
    images = torch.full((1, 3, 1, 1), 1e30)
    found = landscape(Linear(), [(images, torch.tensor([0]))], directions=[step], grid=[[0.0, 9.0]])
    assert not np.isnan(found.nll).any()
    assert found.nll[1] == np.inf


def test_the_record_holds_the_surface():
    record = landscape(vit(), pairs(), grid=3, weight_decay=0.1).to_record()
    assert record.kind == "landscape"
    assert record.arrays["nll"].shape == record.arrays["l2"].shape == (3, 3)
    assert record.values["num_images"] == 10
    assert 0 < record.values["num_moved"] < record.values["num_weights"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"directions": 3}, "1 direction or 2, not 3"),
        ({"directions": [{"nobody": torch.zeros(2)}]}, "'nobody', which is no weight"),
        ({"grid": 1}, "2 points or more"),
        ({"grid": [[0.0]]}, "2 lists of finite coordinates"),
        ({"batch_norm": "mine"}, "there are: batch, running"),
    ],
)
def test_a_question_without_sense_is_refused(options, said):
    with pytest.raises(UserError, match=said):
        landscape(vit(), pairs(), **options)
