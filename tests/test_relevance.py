"""Relevance against captum and the papers' formulas written out; and its faithfulness."""

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import timm
import torch
from captum.attr import LayerGradCam
from torch import nn
from torchvision.models import VisionTransformer

import vitascope
from model_making import SMALL, small_convit
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.attribution.attention_flow import TokenLink, follow_back, on_grid
from vitascope.measure.attribution.faithfulness import curves, ranks
from vitascope.measure.attribution.relevance import METHODS, QUICK, Explainer
from vitascope.measure.streaming.model_structure import ModelStructure


def images(number=2, size=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(number, 3, size, size, generator=generator, dtype=torch.float32)


@cache
def vit(fused=True):
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, depth=3, embed_dim=48, num_heads=3, num_classes=5
    ).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(8)  # heads that choose
            block.attn.fused_attn = fused
    return model


def explained(model, batch):
    explain = Explainer(ModelStructure(model, batch))
    return explain, *explain(batch)


def maps_and_gradients(model, batch):
    """Of timm's attention without fused kernels, by autograd itself."""
    kept = []

    def keep(_module, _inputs, output):
        output.retain_grad()
        kept.append(output)

    handles = [block.attn.attn_drop.register_forward_hook(keep) for block in model.blocks]
    logits = model(batch)
    logits.amax(1).sum().backward()
    for handle in handles:
        handle.remove()
    return [m.detach() for m in kept], [m.grad for m in kept]


def test_rollout_is_the_product_of_the_papers_matrices():
    batch = images()
    found = explained(vit(), batch)[1]["rollout"]
    maps, _ = maps_and_gradients(vit(fused=False), batch)
    product = torch.eye(17).expand(2, 17, 17)
    for weights in maps:
        product = (0.5 * weights.mean(1) + 0.5 * torch.eye(17)) @ product
    torch.testing.assert_close(found, product[:, 0, 1:].view(2, 4, 4), atol=1e-6, rtol=1e-4)


def test_gradient_weighted_attention_of_a_fused_model_is_the_papers_of_an_unfused_one():
    batch = images()
    found = explained(vit(), batch)[1]["gradient"]
    product = torch.eye(17).expand(2, 17, 17)
    for weights, slope in zip(*maps_and_gradients(vit(fused=False), batch), strict=True):
        product = product + (weights * slope).clamp(min=0).mean(1) @ product
    torch.testing.assert_close(found, product[:, 0, 1:].view(2, 4, 4), atol=1e-6, rtol=1e-3)


def test_grad_cam_of_a_resnet_is_captums():
    torch.manual_seed(0)
    model, batch = timm.create_model("resnet18", num_classes=5).eval(), images(size=128)
    explain, found, classes = explained(model, batch)
    assert explain.layer.name == "layer4"
    assert set(explain.left_out) == {"rollout", "gradient"}
    assert {"attnlrp", "integrated"} < set(found)
    theirs = LayerGradCam(model, model.layer4).attribute(
        batch, target=classes, relu_attributions=True
    )
    torch.testing.assert_close(found["grad-cam"], theirs[:, 0].detach(), atol=1e-7, rtol=1e-4)


class Patches(nn.Module):
    """Tokens as an image, which captum must be given; the class token waits."""

    def forward(self, tokens):
        self.waiting = tokens[:, :1]
        return tokens[:, 1:].mT.unflatten(2, (4, 4))


class Tokens(nn.Module):
    def __init__(self, patches):
        super().__init__()
        self.patches = patches

    def forward(self, image):
        return torch.cat([self.patches.waiting, image.flatten(2).mT], 1)


def test_grad_cam_of_a_transformer_is_captums_of_a_model_with_its_patches_reshaped():
    batch = images()
    explain, found, classes = explained(vit(), batch)
    assert explain.layer.name == "blocks.1"  # behind the last block only the class token is read
    model = deepcopy(vit())
    patches = Patches()
    model.blocks.insert(2, nn.Sequential(patches, Tokens(patches)))
    theirs = LayerGradCam(model, patches).attribute(batch, target=classes, relu_attributions=True)
    torch.testing.assert_close(found["grad-cam"], theirs[:, 0].detach(), atol=1e-7, rtol=1e-4)


def test_a_torchvision_transformers_map_has_the_gradient_of_its_own_formula():
    torch.manual_seed(0)
    model = VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=8,
        num_classes=3,
    ).eval()
    nn.init.normal_(model.heads.head.weight)
    block = model.encoder.layers[0]
    batch = images(size=32)
    name = "encoder.layers.encoder_layer_0.self_attention"
    found = capture.gradients(model, batch, lambda y: y[:, 0], layers=[name])

    def forward(weights):
        x = model._process_input(batch)
        x = torch.cat([model.class_token.expand(2, -1, -1), x], 1) + model.encoder.pos_embedding
        layer, normed = block.self_attention, block.ln_1(x)
        value = nn.functional.linear(
            normed, layer.in_proj_weight[16:], layer.in_proj_bias[16:]
        ).unflatten(-1, (2, 4))
        mixed = (weights @ value.transpose(1, 2)).transpose(1, 2).flatten(2)
        x = layer.out_proj(mixed) + x
        x = x + block.mlp(block.ln_2(x))
        return model.heads(model.encoder.ln(x)[:, 0])[:, 0].sum()

    leaf = found.maps[name].clone().requires_grad_(True)
    (wanted,) = torch.autograd.grad(forward(leaf), leaf)
    torch.testing.assert_close(found.map_gradients[name], wanted, atol=1e-6, rtol=1e-4)


def test_a_gated_layer_that_never_forms_its_map_has_the_gradient_of_timms_which_does():
    torch.manual_seed(0)
    layer = vitascope.layers.GPSA(16, 4, locality_strength=1.0)
    tokens = torch.randn(2, 9, 16)
    wanted = torch.randn(2, 9, 16)
    model = nn.Sequential(layer)
    found = capture.gradients(model, tokens, lambda y: (y * wanted).sum((1, 2)), layers=["0"])
    leaf = layer.attention(tokens).mixed.detach().requires_grad_(True)
    mixed = (leaf @ layer.values(tokens)).transpose(1, 2).flatten(2)
    (slope,) = torch.autograd.grad((layer.proj(mixed) * wanted).sum(), leaf)
    torch.testing.assert_close(found.map_gradients["0"], slope, atol=1e-6, rtol=1e-4)


FAMILIES = {
    "convit": lambda: (small_convit(), 16, set(METHODS)),
    "timm's convit": lambda: (
        timm.create_model("convit_tiny", img_size=32, num_classes=5),
        32,
        set(METHODS),
    ),
    "swin": lambda: (
        SMALL["swin"](),
        32,
        set(METHODS),
    ),
    "cait": lambda: (
        timm.create_model("cait_xxs24_224", img_size=64, depth=2, num_classes=5),
        64,
        set(METHODS),
    ),
    "convnext": lambda: (
        SMALL["convnext"](),
        64,
        {"grad-cam", "attnlrp", "integrated"},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_explained_without_naming_a_layer(family):
    torch.manual_seed(0)
    model, size, methods = FAMILIES[family]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _, found, _ = explained(model, images(size=size))
    assert set(found) == methods
    for method, values in found.items():
        assert values.shape[0] == 2
        assert values.shape[1] * values.shape[2] >= 4
        assert bool(values.isfinite().all())
        assert method not in QUICK or bool((values >= 0).all())
    if "rollout" in found:
        assert float(found["rollout"].sum((1, 2)).max()) <= 1 + 1e-5
    assert all(bool((before[name] == value).all()) for name, value in model.state_dict().items())


def grid(h, w, step):
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    places = torch.stack([rows, columns], -1).reshape(-1, 2).double()
    return places * step + (step - 1) / 2


def test_relevance_goes_back_through_windows_and_merged_patches_as_dense_matrices_say():
    torch.manual_seed(0)
    fine, coarse = grid(4, 4, 4), grid(2, 2, 8)
    order = torch.randperm(16)  # four windows of four patches, in any order
    windows = capture.TokenCoordinates(fine[order].view(4, 4, 2), fine[order].view(4, 4, 2))
    merged = capture.TokenCoordinates(coarse[None], coarse[None])
    first = torch.rand(3 * 4, 4, 4, dtype=torch.float64).softmax(-1)
    second = torch.rand(3, 4, 4, dtype=torch.float64).softmax(-1)
    read = torch.rand(3, 4, dtype=torch.float64)
    found, places = follow_back(
        read, coarse, [first, second], [windows, merged], attention=0.5, shortcut=0.5
    )
    merge = torch.zeros(4, 16, dtype=torch.float64)
    for patch in range(16):
        merge[(patch // 8) * 2 + (patch % 4) // 2, patch] = 0.25
    for image in range(3):
        whole = torch.zeros(16, 16, dtype=torch.float64)
        for window, patches in enumerate(order.view(4, 4)):
            whole[patches[:, None], patches] = first[image * 4 + window]
        eye16, eye4 = (torch.eye(n, dtype=torch.float64) for n in (16, 4))
        wanted = read[image] @ (second[image] + eye4) @ merge @ (whole + eye16) / 4
        torch.testing.assert_close(on_grid(found, places)[image].flatten(), wanted)


def test_a_class_token_that_joins_late_brings_nothing_of_the_image():
    patches = grid(2, 2, 4)
    nan = torch.full((1, 2), float("nan"), dtype=torch.float64)
    both = torch.cat([nan, patches])
    first = capture.TokenCoordinates(patches[None], patches[None])
    late = capture.TokenCoordinates(nan[None], both[None])  # only the class token asks
    weights = torch.tensor([[[0.2, 0.5, 0.1, 0.1, 0.1]]], dtype=torch.float64)
    eye = torch.eye(4, dtype=torch.float64)[None]
    read = torch.ones(1, 1, dtype=torch.float64)
    found, _ = follow_back(read, nan, [eye, weights], [first, late], attention=0.5, shortcut=0.5)
    torch.testing.assert_close(found[0], 0.5 * weights[0, 0, 1:])


def test_tokens_are_linked_to_those_they_stand_for():
    link = TokenLink.between(grid(4, 4, 1), grid(2, 2, 2))
    torch.testing.assert_close(
        link.back(torch.eye(4, dtype=torch.float64)).sum(1), torch.ones(4, dtype=torch.float64)
    )


class Quadrant(nn.Module):
    """Sure of class 1 as far as the upper left quarter of the image is bright."""

    def forward(self, x):
        bright = x[:, :, : x.shape[2] // 2, : x.shape[3] // 2].mean((1, 2, 3))
        return torch.stack([torch.zeros_like(bright), 4 * bright], 1)


def test_deletion_and_insertion_follow_the_order():
    batch = torch.ones(1, 1, 8, 8)
    order = ranks(torch.tensor([[[1.0, 0.1], [0.2, 0.3]]]))
    assert order.tolist() == [[[0, 3], [2, 1]]]
    deletion, insertion = curves(Quadrant(), batch, torch.tensor([1]), order, (0.0, 0.25, 1.0))
    sure, even = torch.tensor(4.0, dtype=torch.float64).sigmoid().item(), 0.5
    assert deletion[0].tolist() == pytest.approx([sure, even, even], abs=1e-6)
    assert insertion[0].tolist() == pytest.approx([even, sure, sure], abs=1e-6)


class Stem(nn.Module):
    """Features of patches that are read from the upper left one alone."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 1, 4, 4, bias=False)
        self.mix = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        nn.init.constant_(self.stem.weight, 1 / 16)
        nn.init.zeros_(self.mix.weight)
        self.mix.weight.data[0, 0, 1, 1] = 1

    def forward(self, x):
        bright = self.mix(self.stem(x))[:, 0, 0, 0]
        return torch.stack([torch.zeros_like(bright), 4 * bright], 1)


def test_grad_cam_beats_a_random_order_where_it_is_right():
    generator = torch.Generator().manual_seed(0)
    batch = torch.zeros(24, 1, 16, 16) + torch.rand(24, 1, 1, 1, generator=generator) / 10
    batch[:, :, :4, :4] += 1
    found = measure.relevance(Stem(), [batch[:16], batch[16:]], methods=["grad-cam"])
    assert found.num_images == 24
    assert found.maps["grad-cam"].shape == (8, 4, 4)
    assert (found.maps["grad-cam"].reshape(8, -1).argmax(1) == 0).all()
    values = found.to_record().values
    for curve in ("deletion", "insertion", "road"):
        one = values[curve]["grad-cam"]
        assert one["gain"] > 5 * one["error"] > 0
        assert one["gain"] == pytest.approx(abs(one["area"] - one["random_area"]))
    again = measure.relevance(Stem(), [batch], methods=["grad-cam"])  # batches do not matter
    np.testing.assert_allclose(
        again.gains("deletion", "grad-cam"), found.gains("deletion", "grad-cam"), atol=1e-6
    )


def test_what_cannot_be_explained_says_why():
    with pytest.raises(UserError, match="unknown method 'gradcam'"):
        measure.relevance(vit(), images(), methods=["gradcam"])
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5))
    with pytest.raises(UserError, match="relevance needs features on a grid"):
        measure.relevance(flat, images(size=8))
    torch.manual_seed(0)
    resnet = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 900, 5))
    with pytest.raises(UserError, match="has no attention over tokens"):
        measure.relevance(resnet, images(size=32), methods=["rollout"])


def test_pictures_beside_the_maps_have_the_colours_of_the_images():
    """Un-normalised by the statistics, and pooled: constant images keep their colour exactly."""
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    colours = torch.tensor([[0.9, 0.2, 0.1], [0.0, 0.5, 1.0]])
    images = colours[:, :, None, None].expand(-1, -1, 16, 16)
    normal = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    model = vitascope.create_model("resnet_micro", num_classes=3, img_size=16).eval()
    found = measure.relevance(model, [normal], statistics=(mean, std))
    assert found.pictures.shape == (2, 16, 16, 3)
    np.testing.assert_allclose(found.pictures[:, 3, 5], 255 * colours, atol=0.51)


class AttentionToOnePatch(nn.Module):
    """The class token attends to one patch alone, each patch to all tokens."""

    num_heads = 1

    def __init__(self, patch):
        super().__init__()
        self.qkv, self.proj, self.patch = nn.Linear(8, 24), nn.Linear(8, 8), patch

    def forward(self, x):
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        closed = torch.zeros(x.shape[1], x.shape[1])
        closed[0] = -1e4
        closed[0, 1 + self.patch] = 0.0
        return self.proj(((q @ k.mT + closed).softmax(-1) @ v)[:, 0])


class ReadsOnePatch(nn.Module):
    """The answer is read off the class token after that attention."""

    def __init__(self, patch):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.attn, self.head = AttentionToOnePatch(patch), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return self.head((x + self.attn(x))[:, 0])


def test_relevance_of_a_network_that_reads_one_patch_lies_on_that_patch():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    for patch in (0, 6, 15):
        explain = Explainer(ModelStructure(ReadsOnePatch(patch), images), ["rollout"])
        maps, _ = explain(images)
        for relevance in maps["rollout"].flatten(1):
            assert int(relevance.argmax()) == patch
            others = relevance.index_fill(0, torch.tensor(patch), 0.0)
            assert others.abs().max() < 1e-6 * relevance.max()
