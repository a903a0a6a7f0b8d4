"""AttnLRP, integrated gradients, ROAD and the check with randomised weights, by closed forms."""

import numpy as np
import pytest
import timm
import torch
from captum.attr import IntegratedGradients
from scipy.stats import spearmanr
from torch import nn
from torch.nn import functional as F

from vitascope import measure
from vitascope.measure.attribution.attention_lrp import attention_lrp
from vitascope.measure.attribution.integrated_gradients import integrated_gradients
from vitascope.measure.attribution.relevance import Explainer, rank_correlation, shuffled_weights
from vitascope.measure.attribution.road import filled, imputed
from vitascope.measure.streaming.model_structure import ModelStructure


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def frozen(model):
    return model.eval().requires_grad_(False)


def vit(fused=True):
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=24, num_heads=3, num_classes=5
    )
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(8)  # heads that choose
            block.attn.fused_attn = fused
            nn.init.normal_(block.norm1.weight, 1.0, 0.1)
    return frozen(model)


def class_of(model, number=1):
    return lambda images: model(images)[:, number]


def test_integrated_gradients_add_up_to_the_change_of_the_score():
    model, images = vit(), torch.randn(2, 3, 32, 32)
    score = class_of(model)
    found = integrated_gradients(score, images, steps=64)
    change = score(images) - score(torch.zeros_like(images))
    torch.testing.assert_close(found.sum((1, 2, 3)), change, atol=1e-3, rtol=1e-2)


def test_integrated_gradients_are_captums():
    model, images = vit(), torch.randn(2, 3, 32, 32)
    found = integrated_gradients(class_of(model), images, steps=8)
    theirs = IntegratedGradients(model).attribute(
        images, target=1, n_steps=8, method="gausslegendre"
    )
    torch.testing.assert_close(found, theirs.float(), atol=1e-6, rtol=1e-4)


class WithoutBiases(nn.Module):
    """Every operation hands on all of its relevance: no biases, no softmax."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4, bias=False)
        self.norm = nn.LayerNorm(8, elementwise_affine=False, eps=0)
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.gate, self.head = nn.Linear(8, 8, bias=False), nn.Linear(8, 3, bias=False)

    def forward(self, images):
        x = self.conv(images).flatten(2).mT
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        x = x + self.down(F.silu(self.up(x)))
        x = x * self.gate(x).sigmoid()  # as squeeze-and-excitation
        x = (x @ x.mT) @ x / 16  # products of two numbers of the image
        return self.head(F.normalize(x.mean(1), dim=1))


def test_relevance_is_conserved_where_no_bias_takes_it():
    model, images = frozen(WithoutBiases()).double(), torch.randn(3, 3, 16, 16).double()
    score = class_of(model)
    found = attention_lrp(score, images)
    torch.testing.assert_close(found.sum((1, 2, 3)), score(images))


def half(first, second):
    """A product whose gradient is half to each factor."""
    return (first @ second.detach() + first.detach() @ second) / 2


def normalised(layer, x):
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt()
    return layer.weight * centred / deviation.detach() + layer.bias


def rules_written_out(model, images):
    """timm's ViT, whose ordinary gradients follow the rules of AttnLRP."""
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1) + model.pos_embed
    for block in model.blocks:
        attn, normed = block.attn, normalised(block.norm1, x)
        q, k, v = attn.qkv(normed).unflatten(-1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
        weights = half(q * attn.scale, k.mT).softmax(-1)
        x = x + attn.proj(half(weights, v).transpose(1, 2).flatten(2))
        hidden = block.mlp.fc1(normalised(block.norm2, x))
        x = x + block.mlp.fc2(hidden * (F.gelu(hidden) / hidden).detach())
    return model.head(normalised(model.norm, x)[:, 0])


@pytest.mark.parametrize("fused", [True, False])
def test_attention_lrp_of_a_transformer_is_that_of_the_rules_written_out(fused):
    model, images = vit(fused), torch.randn(2, 3, 32, 32)
    found = attention_lrp(class_of(model), images)
    leaf = images.clone().requires_grad_(True)
    logits = rules_written_out(model, leaf)
    torch.testing.assert_close(logits, model(images), atol=1e-5, rtol=1e-4)
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), leaf)
    torch.testing.assert_close(found, images * gradient, atol=1e-6, rtol=1e-3)
    plain = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)[0]
    assert not torch.allclose(found, images * plain, atol=1e-3)


def test_a_plain_network_has_gradient_times_input():
    model = frozen(timm.create_model("resnet18", num_classes=3))
    images = torch.randn(1, 3, 64, 64)
    leaf = images.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)
    found = attention_lrp(class_of(model), images)
    torch.testing.assert_close(found, images * gradient, atol=1e-6, rtol=1e-4)


def test_pixels_are_added_up_place_by_place():
    model, images = vit(), torch.randn(2, 3, 32, 32)
    maps, classes = Explainer(ModelStructure(model, images), ["attnlrp"])(images)
    pixels = attention_lrp(lambda x: model(x).gather(1, classes[:, None])[:, 0], images)
    places = pixels.unflatten(3, (2, 16)).unflatten(2, (2, 16)).mean((1, 3, 5)) * 3
    torch.testing.assert_close(maps["attnlrp"], places, atol=1e-6, rtol=1e-4)


def test_a_slope_with_a_hole_is_filled_in_as_a_slope():
    rows, columns = np.mgrid[:9, :12].astype(float)
    slope = np.stack([2 * rows - columns, columns])
    hidden = np.zeros((9, 12), bool)
    hidden[2:6, 3:9] = True
    np.testing.assert_allclose(filled(np.where(hidden, 99.0, slope), hidden), slope, atol=1e-9)


def test_hidden_pixels_are_the_weighted_means_of_their_neighbours():
    rng = np.random.default_rng(0)
    pixels, hidden = rng.normal(size=(1, 6, 7)), rng.random((6, 7)) < 0.6
    found = filled(pixels, hidden)[0]
    np.testing.assert_array_equal(found[~hidden], pixels[0][~hidden])
    for row, column in np.argwhere(hidden):
        near = [
            (found[y, x], 1 / 12 if y != row and x != column else 1 / 6)
            for y in range(max(row - 1, 0), min(row + 2, 6))
            for x in range(max(column - 1, 0), min(column + 2, 7))
            if (y, x) != (row, column)
        ]
        values, weights = zip(*near, strict=True)
        assert found[row, column] == pytest.approx(np.average(values, weights=weights))


def test_what_is_not_hidden_stays_to_the_bit():
    images, noise = torch.randn(2, 3, 64, 64), torch.randn(2, 64, 64)
    hidden = torch.zeros(2, 4, 4, dtype=torch.bool)
    hidden[0, 1, 2] = True
    found = imputed(images, hidden, noise)
    assert torch.equal(found[1], images[1])
    changed = (found[0] != images[0]).any(0)
    assert changed[16:32, 32:48].all()
    assert int(changed.sum()) == 16 * 16


def test_rank_correlation_is_scipys():
    first, second = torch.rand(3, 4, 4), torch.rand(3, 4, 4).round(decimals=1)
    expected = [
        spearmanr(a.flatten(), b.flatten()).statistic for a, b in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(rank_correlation(first, second), expected, atol=1e-9)
    assert rank_correlation(torch.zeros(1, 2, 2), first[:1, :2, :2]).tolist() == [0.0]


def test_shuffled_weights_have_the_same_values_and_norms_stay():
    model = vit()
    found = shuffled_weights(model, 0)
    assert "blocks.0.norm1.weight" not in found
    for name, weight in found.items():
        own = model.state_dict()[name]
        assert torch.equal(weight.flatten().sort().values, own.flatten().sort().values)
    assert not torch.equal(found["head.weight"], model.head.weight)


class Edges(nn.Module):
    """A network whose answer depends on the image through no weight matrix at all."""

    def __init__(self):
        super().__init__()
        self.stem = nn.AvgPool2d(4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images):
        bright = (self.stem(images) * self.scale).mean((1, 2, 3))
        return torch.stack([torch.zeros_like(bright), bright], 1)


def test_a_map_of_the_image_alone_is_caught_by_shuffled_weights():
    images = torch.rand(4, 3, 16, 16) + 0.1
    found = measure.relevance(Edges(), [images], methods=["attnlrp"])
    record = found.to_record()
    assert record.values["randomised"]["attnlrp"]["correlation"] == pytest.approx(1.0)
    network = measure.relevance(vit(), [torch.randn(8, 3, 32, 32)], methods=["attnlrp"])
    assert network.randomised["attnlrp"].shape == (8,)
    assert np.abs(network.randomised["attnlrp"]).max() <= 1
