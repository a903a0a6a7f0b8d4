"""Hessian spectra: against dense Hessians, PyHessian and quadratics."""

import copy

import numpy as np
import pyhessian
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.autograd.functional import hessian as dense_hessian
from torch.func import functional_call
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.measure import hessian
from vitascope.measure.curvature.hessian import HessianSpectrum, eigenvectors
from vitascope.measure.curvature.objective import deterministic
from vitascope.measure.curvature.products import HessianProducts
from vitascope.models import create_model
from vitascope.models.convit.convit import ConViT
from vitascope.record import load

SMALL = {"img_size": 4, "patch_size": 2, "in_chans": 1, "num_classes": 3, "embed_dim": 6}
ONE_BLOCK = {**SMALL, "depth": 1, "num_heads": 2, "mlp_ratio": 1.0}


def networks():
    torch.manual_seed(1)
    return {
        "mlp": nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)),
        "vit": VisionTransformer(**ONE_BLOCK),
        "convit": ConViT(**ONE_BLOCK, num_gpsa_blocks=1),
        "batch norm": nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
        ),
    }


def batch(size=6, channels=1, side=4, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(size, channels, side, side, generator=generator)
    return images, torch.randint(0, classes, (size,), generator=generator)


def dense(model, images, targets, batch_norm="running"):
    """All eigenvalues by magnitude, from the whole Hessian in float64.

    ``torch.func.hessian`` will not do: its forward mode is wrong through affine norms (torch 2.13).
    """
    model = copy.deepcopy(model).double()
    weights = dict(model.named_parameters())
    sizes = [w.numel() for w in weights.values()]

    def loss(flat):
        pieces = zip(weights.items(), flat.split(sizes), strict=True)
        moved = {name: piece.view_as(w) for (name, w), piece in pieces}
        return F.cross_entropy(functional_call(model, moved, (images.double(),)), targets)

    with deterministic(model, batch_norm=batch_norm):
        flat = torch.cat([w.detach().reshape(-1) for w in weights.values()])
        values = torch.linalg.eigvalsh(dense_hessian(loss, flat)).numpy()
    return values[np.argsort(-np.abs(values))]


EXACT = {"dtype": torch.float64, "tolerance": 1e-9, "weight_decay": 0.0}


@pytest.mark.parametrize("name", networks())
def test_eigenvalues_are_those_of_the_dense_hessian(name):
    model, (images, targets) = networks()[name], batch()
    found = hessian(model, [(images, targets)], num_eigenvalues=8, **EXACT)
    expected = dense(model, images, targets)[:8]
    assert found.converged.all()
    np.testing.assert_allclose(found.eigenvalues[0], expected, rtol=0, atol=1e-8)
    assert expected.min() < 0 < expected.max()


@pytest.mark.parametrize("name", networks())
def test_a_product_is_the_slope_of_the_gradient(name):
    model, pair = networks()[name], batch()
    product = HessianProducts(model, [pair], weight_decay=0.1, dtype=torch.float64)
    along = torch.randn(product.size, dtype=torch.float64)
    step = 1e-4 * along / along.norm()

    def gradient(moved):
        shifted = copy.deepcopy(model).double()
        nn.utils.vector_to_parameters(moved, shifted.parameters())
        return HessianProducts(shifted, [pair], weight_decay=0.1, dtype=torch.float64).gradient

    here = nn.utils.parameters_to_vector(model.parameters()).detach().double()
    expected = (gradient(here + step) - gradient(here - step)) / 2e-4
    torch.testing.assert_close(product(along / along.norm()), expected, rtol=0, atol=1e-4)


def test_batch_statistics_give_another_hessian_and_it_is_the_dense_one_too():
    model, (images, targets) = networks()["batch norm"], batch()
    found = hessian(model, [(images, targets)], batch_norm="batch", **EXACT)
    expected = dense(model, images, targets, batch_norm="batch")[:5]
    np.testing.assert_allclose(found.eigenvalues[0], expected, rtol=0, atol=1e-8)
    assert np.abs(expected - dense(model, images, targets)[:5]).max() > 1e-3


def test_mixed_targets_are_differentiated_as_probabilities():
    model, (images, targets) = networks()["mlp"], batch()
    soft = 0.7 * F.one_hot(targets, 3) + 0.1
    found = hessian(model, [(images, soft)], **EXACT)
    expected = dense(model, images, soft.double())[:5]
    np.testing.assert_allclose(found.eigenvalues[0], expected, rtol=0, atol=1e-8)


def test_weight_decay_shifts_the_spectrum_by_exactly_itself():
    model, pair = networks()["convit"], batch()
    plain = hessian(model, [pair], num_eigenvalues=1, **EXACT)
    shifted = hessian(model, [pair], num_eigenvalues=1, **{**EXACT, "weight_decay": 0.3})
    assert plain.eigenvalues[0, 0] > 0
    np.testing.assert_allclose(shifted.eigenvalues - plain.eigenvalues, 0.3, atol=1e-9)
    square = sum(w.square().sum().item() for w in model.parameters())
    assert shifted.loss - plain.loss == pytest.approx(0.15 * square, rel=1e-5)


@pytest.mark.filterwarnings(r"ignore:Using backward\(\) with create_graph")  # PyHessian does
@pytest.mark.parametrize("name", ["vit", "mlp"])
def test_eigenvalues_are_pyhessians_to_its_tolerance(name):
    model, (images, targets) = networks()[name], batch()
    ours = hessian(model, [(images, targets)], num_eigenvalues=3, weight_decay=0.0, tolerance=1e-4)
    with deterministic(model):
        peer = pyhessian.hessian(model, F.cross_entropy, data=(images, targets), cuda=False)
        theirs, _ = peer.eigenvalues(maxIter=2000, tol=1e-6, top_n=3)
    np.testing.assert_allclose(np.sort(ours.eigenvalues[0]), np.sort(theirs), rtol=1e-2)


class Quadratic(nn.Module):
    """Two logits whose difference is so small that the loss is log 2 plus a quadratic form."""

    def __init__(self, values):
        super().__init__()
        turn = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))[0]
        self.form = nn.Parameter((turn * torch.tensor(values)) @ turn.T, requires_grad=False)
        self.point = nn.Parameter(torch.zeros(len(values), dtype=torch.float64))

    def forward(self, images):
        height = self.point @ self.form @ self.point  # the loss is log 2 + height / 2 + ...
        return torch.stack([-height / 2, height / 2]).expand(len(images), 2)


@pytest.mark.parametrize(
    "values",
    [[4.0, -3.0, 2.5, 2.0, -1.0, 0.5, 0.1], [3.0, 3.0, 3.0, -2.0, -2.0, 1.0] + [0.0] * 60],
)
def test_a_quadratic_gives_its_own_spectrum(values):
    model = Quadratic(values)
    pair = torch.zeros(2, 3, 4, 4), torch.tensor([0, 0])
    found = hessian(model, [pair], **EXACT)
    expected = sorted(values, key=lambda value: -abs(value))[:5]
    np.testing.assert_allclose(np.sort(found.eigenvalues[0]), np.sort(expected), atol=1e-10)


def test_eigenvectors_are_stretched_by_their_eigenvalues():
    model, pairs = networks()["vit"], [batch(seed=0), batch(4, seed=1)]
    found, vectors = eigenvectors(model, pairs, num_eigenvalues=3, **EXACT)
    product = HessianProducts(model, pairs, dtype=torch.float64)
    for value, vector, named in zip(found.values, found.vectors, vectors, strict=True):
        torch.testing.assert_close(product(vector), value * vector, rtol=0, atol=1e-8)
        assert named["head.weight"].shape == model.head.weight.shape
    joined = torch.cat([pairs[0][0], pairs[1][0]]), torch.cat([pairs[0][1], pairs[1][1]])
    np.testing.assert_allclose(found.values, dense(model, *joined)[:3], atol=1e-8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: create_model("vit_micro", num_classes=10),
        pytest.param(
            lambda: create_model("convit_micro_distilled", num_classes=10), marks=pytest.mark.slow
        ),
        pytest.param(lambda: create_model("resnet_micro", num_classes=10), marks=pytest.mark.slow),
    ],
)
def test_any_model_is_measured_and_left_as_it_came(make):
    model = make().train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pair = batch(4, channels=3, side=32, classes=10)
    found = hessian(model, [pair], num_eigenvalues=2, tolerance=1e-2)
    assert found.converged.all()
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images).logits


@pytest.mark.slow
def test_a_hugging_face_model_is_measured():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1)
    config.num_attention_heads, config.intermediate_size, config.num_labels = 2, 8, 3
    model = ViTForImageClassification(config)
    pair = batch(4, channels=3, side=8)
    found = hessian(model, [pair], num_eigenvalues=3, **EXACT)
    plain = Logits(model)
    np.testing.assert_allclose(found.eigenvalues[0], dense(plain, *pair)[:3], atol=1e-8)


def test_weights_that_do_nothing_have_no_curvature():
    model = networks()["mlp"]
    model.unused = nn.Parameter(torch.ones(3))
    pair = batch()
    model.forward = lambda images: nn.Sequential.forward(
        nn.Sequential(*[model[i] for i in range(4)]), images
    )
    product = HessianProducts(model, [pair], weight_decay=0.5)
    names = [name for name, _ in model.named_parameters()]
    vector = torch.randn(product.size)
    parts = product.parts(product(vector))
    assert list(parts) == names
    torch.testing.assert_close(parts["unused"], 0.5 * product.parts(vector)["unused"])


def test_nothing_is_left_behind_after_an_exception():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.BatchNorm2d(1), nn.Linear(16, 3)
            self.drop = nn.Dropout(0.5)

        def forward(self, images):
            self.head(self.drop(self.norm(images)).flatten(1))
            raise ZeroDivisionError

    model = Breaks().train()
    with pytest.raises(ZeroDivisionError):
        hessian(model, [batch()], batch_norm="batch")
    assert all(module.training for module in model.modules())
    assert model.norm.track_running_stats
    assert model.norm.num_batches_tracked == 0


def test_an_unconverged_batch_says_so():
    model = networks()["vit"]
    found = hessian(model, [batch()], tolerance=1e-6, max_products=12)
    assert not found.converged.any()
    assert found.products.tolist() == [10]  # whole blocks of five only
    assert "1 of 1 batches did not converge to a residual of 0.0001 %" in found.note
    assert found.to_record().values["num_unconverged"] == 1
    assert hessian(model, [batch()], tolerance=1e-2).note == ""


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        return self.head(images.flatten(1)).detach()


def test_impossible_questions_are_refused():
    model, pair = networks()["mlp"], batch()
    few = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    few[1].weight.requires_grad_(False)
    with pytest.raises(UserError, match="NaN|nan"):
        hessian(model, [(pair[0] * float("nan"), pair[1])])
    with pytest.raises(UserError, match="no weight that trains"):
        hessian(nn.Flatten(), [pair])
    with pytest.raises(UserError, match="does not depend on any weight"):
        hessian(Detached(), [pair])
    with pytest.raises(UserError, match="needs targets"):
        hessian(model, [pair[0]])
    with pytest.raises(UserError, match="give at most 3"):
        hessian(few, [pair])
    for wrong in ({"num_eigenvalues": 0}, {"tolerance": 0.0}, {"weight_decay": -1.0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            hessian(model, [pair], **wrong)
    with pytest.raises(UserError, match="float64"):
        hessian(model, [pair], dtype=torch.float16)


def spectrum(values, first=0, **settings):
    values = np.array(values, dtype=float)
    b = len(values)
    return HessianSpectrum(
        eigenvalues=values,
        residuals=0 * values,
        errors=0 * values,
        converged=np.ones(b, dtype=bool),
        products=np.full(b, 9),
        loss=np.zeros(b),
        batches=np.arange(first, first + b),
        num_images=np.full(b, 16),
        settings={"tolerance": 1e-3, "seed": 0, **settings},
    )


def test_nep_is_the_share_below_zero_and_ape_the_mean_of_the_positive():
    found = spectrum([[8.0, -4.0], [2.0, -1.0], [5.0, 0.0]])
    assert found.nep == pytest.approx(2 / 6)
    assert found.ape == pytest.approx(5.0)
    assert spectrum([[-1.0]]).ape is None


def test_the_sides_of_the_histogram_sum_to_their_shares():
    found = spectrum([[8.0, -4.0], [2.0, -1.0], [5.0, 0.0]])
    sides = found.histogram(bins=4)
    assert sides["negative"].edges.tolist() == [-4, -3, -2, -1, 0]
    np.testing.assert_allclose(sides["negative"].share, [1 / 6, 0, 0, 1 / 6])
    np.testing.assert_allclose(sides["positive"].share, [1 / 6, 1 / 6, 1 / 6, 1 / 6])
    cut = found.histogram(bins=2, reach=4.0)
    assert cut["positive"].share.sum() == pytest.approx(2 / 6)  # 5 and 8 lie beyond


def test_parts_of_other_processes_merge_and_survive_the_disk(tmp_path):
    one, two = spectrum([[1.0], [2.0]], first=2), spectrum([[3.0]])
    one.to_record().save(tmp_path / "one")
    back = HessianSpectrum.from_record(load(tmp_path / "one"))
    merged = HessianSpectrum.merge([back, two])
    assert merged.eigenvalues[:, 0].tolist() == [3.0, 1.0, 2.0]
    assert merged.batches.tolist() == [0, 2, 3]
    with pytest.raises(UserError, match="batch 2 is in two parts"):
        HessianSpectrum.merge([one, one])
    with pytest.raises(UserError, match="tolerance differ"):
        HessianSpectrum.merge([one, spectrum([[1.0]], tolerance=0.1)])


def test_parts_agree_with_the_whole_to_the_tolerance():
    model, pairs = networks()["vit"], [batch(seed=seed) for seed in range(4)]
    whole = hessian(model, pairs, **EXACT)
    parts = [hessian(model, pairs[2:], first_batch=2, **EXACT), hessian(model, pairs[:2], **EXACT)]
    merged = HessianSpectrum.merge(parts)
    np.testing.assert_allclose(merged.eigenvalues, whole.eigenvalues, rtol=1e-8)
    assert merged.batches.tolist() == whole.batches.tolist()


def test_a_broken_off_run_goes_on_to_the_same_numbers(tmp_path):
    model, pairs = networks()["vit"], [batch(seed=seed) for seed in range(3)]
    whole = hessian(model, pairs)

    def stop(number):
        if number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hessian(model, pairs, resume=tmp_path / "part.npz", on_batch=stop)
    seen = []
    again = hessian(model, pairs, resume=tmp_path / "part.npz", on_batch=seen.append)
    assert seen == [2]
    assert np.array_equal(again.eigenvalues, whole.eigenvalues)
    assert np.array_equal(again.products, whole.products)


def test_another_question_does_not_go_on_from_the_file(tmp_path):
    model, pairs = networks()["vit"], [batch(seed=seed) for seed in range(2)]
    path = tmp_path / "part.npz"
    hessian(model, pairs[:1], resume=path)
    with pytest.raises(UserError, match="seed, tolerance differ"):
        hessian(model, pairs, resume=path, tolerance=1e-2, seed=1)
    with pytest.raises(UserError, match="other images"):
        hessian(model, pairs[1:], resume=path)
    with torch.no_grad():
        model.head.bias += 1
    with pytest.raises(UserError, match="weights differ"):
        hessian(model, pairs, resume=path)
    path.write_bytes(b"something else")
    with pytest.raises(UserError, match="to go on with"):
        hessian(model, pairs, resume=path)


def test_the_seed_brings_the_same_numbers_back_and_touches_no_other():
    model, pairs = networks()["vit"], [batch(seed=seed) for seed in range(2)]
    before = torch.get_rng_state()
    one, two = hessian(model, pairs), hessian(model, pairs)
    assert np.array_equal(one.eigenvalues, two.eigenvalues)
    assert torch.equal(torch.get_rng_state(), before)
