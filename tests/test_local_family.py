"""Convolutional ViT, LocalViT, PVT, ViT without a class token; timm's networks at CIFAR size."""

from math import log

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

import vitascope
from model_making import check_gradient_checkpointing, randomised
from vitascope import capture, create_model, measure
from vitascope.errors import UserError
from vitascope.layers.neighbors import neighborhood_mask
from vitascope.layers.self_attention import SelfAttention
from vitascope.models.vit.cifar import CIFAR

TINY = {"img_size": 16, "patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 3}


def convolutional(k, **kwargs):
    sizes = {**TINY, "num_classes": 5, "kernel_size": k, **kwargs}
    return randomised(create_model("convolutional_vit_micro", **sizes)).eval()


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("localvit_tiny", 5.9),  # Li et al. 2021, Table 1
        ("pvt_tiny", 13.2),  # Wang et al. 2021, Table 2
        ("pvt_small", 24.5),
        ("convolutional_vit_tiny", 5.7),  # as DeiT-Ti
    ],
)
def test_parameters_are_as_published(name, millions):
    with torch.device("meta"):
        assert round(count(create_model(name)) / 1e6, 1) == millions


def test_a_convolutional_vit_loads_a_vits_weights_and_is_it_when_k_covers_the_grid():
    vit = VisionTransformer(**TINY, num_classes=5, attn_layer=SelfAttention)
    vit, images = randomised(vit).eval(), torch.randn(2, 3, 16, 16)
    same, local = convolutional(8), convolutional(3)
    for model in (same, local):
        model.load_state_dict(vit.state_dict())
    with torch.no_grad():
        assert torch.equal(same(images), vit(images))
        assert (local(images) - vit(images)).abs().max() > 1e-3


def test_its_captured_maps_are_dense_masked_attention_of_the_vit_with_its_weights():
    model = convolutional(3)
    vit = VisionTransformer(**TINY, num_classes=5).eval()
    vit.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 16, 16)
    with capture.attention(model) as found:
        model(images)
    with capture.attention(vit, "blocks.0.*") as expected:
        vit(images)
    assert list(found) == ["blocks.0.attn", "blocks.1.attn"]
    first = found["blocks.0.attn"]
    assert first.shape == (2, 3, 65, 65)
    masked = expected["blocks.0.attn"] * neighborhood_mask((8, 8), 3, num_prefix_tokens=1)
    torch.testing.assert_close(first, masked / masked.sum(-1, keepdim=True))
    torch.testing.assert_close(first.sum(-1), torch.ones(2, 3, 65))


def test_the_instruments_measure_it():
    images = [torch.randn(4, 3, 16, 16)]
    near, far = (measure.nonlocality(convolutional(k), images) for k in (3, 8))
    assert list(near.layers) == ["blocks.0.attn", "blocks.1.attn"]
    assert near.grid["blocks.0.attn"] == (8, 8)
    assert (near.per_layer() < 1.5).all()  # no patch of a shifted 3 x 3 window is farther than 2.83
    assert (far.per_layer() > 2.5).all()
    entropy = measure.entropy(convolutional(3), images).nats["blocks.1.attn"]
    assert (entropy < (64 * log(10) + log(65)) / 65).all()  # uniform over what each token sees
    assert [u.kind for u in capture.units(convolutional(3), images[0])].count("attention") == 2


def test_dynamic_sizes_reach_the_neighbourhoods():
    model = convolutional(3, dynamic_img_size=True)
    images = torch.randn(1, 3, 8, 24)  # a grid of 4 x 12
    with capture.attention(model) as maps:
        model(images)
    sees = neighborhood_mask((4, 12), 3, num_prefix_tokens=1)
    assert torch.equal(maps["blocks.0.attn"][0, 0] > 0, sees)


def test_without_a_class_token_information_travels_one_patch_a_block():
    model = convolutional(3, border="clip", class_token=False, global_pool="avg")
    images = torch.randn(1, 3, 16, 16)
    changed = images.clone()
    changed[..., 6:8, 6:8] += 1  # the patch in row and column 3
    with torch.no_grad():
        before, after = (model.forward_intermediates(x)[1] for x in (images, changed))
    for index, reach in enumerate((1, 2)):
        moved = (after[index] - before[index]).abs().amax((0, 1)) > 0
        expected = torch.zeros(8, 8, dtype=torch.bool)
        expected[3 - reach : 4 + reach, 3 - reach : 4 + reach] = True
        assert torch.equal(moved, expected)


def test_recomputing_blocks_gives_the_same_gradients():
    model = convolutional(3).train()
    images = torch.randn(2, 3, 16, 16)
    check_gradient_checkpointing(model, images)


LARGE = {"img_size": 64, "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}  # in blocks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("convolutional_vit_micro", LARGE),
        ("localvit_micro", {**LARGE, "img_size": 16}),
        ("pvt_micro", {"depths": (1, 1, 1)}),
    ],
)
def test_exported_with_a_free_batch_size_it_gives_the_same(name, sizes):
    model = randomised(create_model(name, num_classes=5, **sizes)).eval()
    side = sizes.get("img_size", 32)
    batch = torch.export.Dim("batch", min=1, max=64)
    images, others = torch.randn(2, 3, side, side), torch.randn(5, 3, side, side)
    program = torch.export.export(model, (images,), dynamic_shapes={"x": {0: batch}})
    torch.testing.assert_close(program.module()(others), model(others))


@pytest.mark.slow
def test_compiled_without_a_graph_break_it_gives_the_same():
    model = randomised(create_model("convolutional_vit_micro", num_classes=5, **LARGE)).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    images = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(compiled(images), model(images))


def test_a_vit_without_a_class_token_averages_its_patches():
    model = randomised(create_model("vit_micro_gap", num_classes=5, depth=2)).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = model.forward_features(images)
        assert features.shape == (2, 64, 72)
        expected = model.head(model.fc_norm(features.mean(1)))
        torch.testing.assert_close(model(images), expected)


def test_patch_size_and_heads_are_arguments():
    model = create_model("vit_micro", patch_size=2, num_heads=3, num_classes=5)
    assert model.patch_embed.grid_size == (16, 16)
    assert [block.attn.num_heads for block in model.blocks] == [3] * 4
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 5)
    local = create_model("convolutional_vit_micro", patch_size=2, num_heads=3, kernel_size=5)
    assert [block.attn.kernel_size for block in local.blocks] == [5] * 4
    assert local(torch.randn(1, 3, 32, 32)).shape == (1, 1000)


def test_localvits_feed_forward_is_the_convolutions_it_names():
    model = randomised(create_model("localvit_micro", **TINY, num_classes=5)).eval().double()
    part = model.blocks[0].mlp
    x = torch.randn(2, 1 + 6 * 8, 24, dtype=torch.float64)
    image = x[:, 1:].mT.unflatten(-1, (6, 8))
    wide = F.conv2d(image, part.conv_pw.weight)
    y = F.hardswish(norm(wide, part.bn1))
    y = F.hardswish(norm(F.conv2d(y, part.conv_dw.weight, padding=1, groups=96), part.bn2))
    squeezed = F.relu(part.se.conv_reduce(y.mean((2, 3), keepdim=True)))
    assert squeezed.shape[1] == 4
    y = y * F.hardsigmoid(part.se.conv_expand(squeezed))
    y = norm(F.conv2d(y, part.conv_pwl.weight), part.bn3).flatten(2).mT
    found = part(x, (6, 8))
    torch.testing.assert_close(found[:, 1:], y)
    assert (found[:, 0] == 0).all()


def test_a_localvit_block_has_no_layer_norm_before_its_feed_forward():
    block = randomised(create_model("localvit_micro", **TINY)).eval().blocks[0]
    x = 3 * torch.randn(2, 65, 24)
    middle = x + block.attn(block.norm1(x))
    torch.testing.assert_close(block(x, (8, 8)), middle + block.mlp(middle, (8, 8)))


def norm(x, layer):
    return F.batch_norm(
        x, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps
    )


def test_with_average_pooling_every_parameter_of_localvit_gets_a_gradient():
    pooled = {"class_token": False, "global_pool": "avg"}
    model = create_model("localvit_micro", **TINY, **pooled, num_classes=5)
    model(torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())


def test_pvt_has_few_keys_and_a_class_token_in_its_last_stage():
    model = create_model("pvt_micro", num_classes=5).eval()
    with capture.attention(model) as maps:
        model(torch.randn(2, 3, 32, 32))
    shapes = [tuple(weights.shape[1:]) for weights in maps.values()]
    assert shapes == [(1, 256, 16), (2, 64, 16), (4, 17, 17), (4, 17, 17)]
    assert [stage.cls_token is not None for stage in model.stages] == [False, False, True]
    assert {"stages.0.pos_embed", "stages.2.cls_token"} <= model.no_weight_decay()


def test_pvts_first_stage_is_spatial_reduction_attention_by_the_formula():
    model = randomised(create_model("pvt_micro", num_classes=5)).eval().double()
    layer = model.stages[0].blocks[0].attn
    x = torch.randn(1, 64, 32, dtype=torch.float64)
    image = x.mT.unflatten(-1, (8, 8))
    cells = F.unfold(image, 4, stride=4).mT  # (1, 4, 32 * 16), what each key is made of
    keys = layer.norm(cells @ layer.sr.weight.flatten(1).T + layer.sr.bias)
    k, v = layer.kv(keys).chunk(2, dim=-1)
    weights = (layer.q(x) @ k.mT / 32**0.5).softmax(-1)
    torch.testing.assert_close(layer(x, (8, 8)), layer.proj(weights @ v))


def test_a_pvt_takes_other_sizes_with_its_places_interpolated():
    model = randomised(create_model("pvt_micro", num_classes=5, dynamic_img_size=True)).eval()
    wide = create_model("pvt_micro", num_classes=5, img_size=(32, 64)).eval()
    state = model.state_dict()
    for k, stage in enumerate(model.stages):
        h, w = stage.patch_embed.grid_size
        places, prefix = state[f"stages.{k}.pos_embed"], stage.num_prefix_tokens
        grid = places[:, prefix:].mT.unflatten(-1, (h, w))
        grid = F.interpolate(grid, (h, 2 * w), mode="bilinear", antialias=True)
        state[f"stages.{k}.pos_embed"] = torch.cat([places[:, :prefix], grid.flatten(2).mT], 1)
    wide.load_state_dict(state)
    images = torch.randn(1, 3, 32, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), wide(images))


def test_a_pvt_can_average_recompute_and_be_cut():
    model = create_model("pvt_micro", num_classes=5, global_pool="avg", drop_path_rate=0.1)
    model.set_grad_checkpointing()
    images = torch.randn(2, 3, 32, 32)
    model(images).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())
    model.eval()
    with torch.no_grad():
        final, maps = model.forward_intermediates(images, norm=True)
        torch.testing.assert_close(maps[-1].flatten(2).mT, final)
        model.prune_intermediate_layers([1], prune_norm=True)
        cut = model.forward_intermediates(images, indices=[1], intermediates_only=True)
    torch.testing.assert_close(cut[0], maps[1])


SHRUNK = {  # fewer blocks where a test would be slow
    "vit_tiny_cifar": {"depth": 2},
    "vit_small_cifar": {"depth": 1},
    "swin_tiny_cifar": {"depths": (2, 1, 1, 1), "embed_dim": 24},
    "twins_small_cifar": {"depths": (1, 2, 1, 1)},
    "mixer_tiny_cifar": {"num_blocks": 2},
    "resnext50_cifar": {"layers": [1, 1, 1, 1]},
}
FIRST_GRID = {  # of patches after the stem, on 32 x 32 pixels
    "vit_tiny_cifar": 16,
    "vit_small_cifar": 16,
    "pit_tiny_cifar": 16,
    "swin_tiny_cifar": 32,
    "twins_small_cifar": 32,
    "mixer_tiny_cifar": 16,
    "levit_128s_cifar": 4,
    "pvt_v2_b0_cifar": 8,
    "resnext50_cifar": 32,
}


@pytest.mark.parametrize("name", sorted(CIFAR))
def test_timms_networks_run_and_learn_at_cifar_size(name):
    assert name in vitascope.list_models()
    model = create_model(name, num_classes=5, **SHRUNK.get(name, {}))
    images = torch.randn(2, 3, 32, 32)
    logits = model(images)
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    if name in FIRST_GRID:  # CoaT gives no intermediates for serial blocks alone
        with torch.no_grad():
            first = model.eval().forward_intermediates(images, intermediates_only=True)[0]
        assert first.shape[-1] == FIRST_GRID[name]
    config = timm.get_pretrained_cfg(f"vs_{name}")
    assert config.input_size == model.pretrained_cfg["input_size"] == (3, 32, 32)
    assert not config.has_weights


def test_swin_at_cifar_size_has_windows_of_four():
    model = create_model("swin_tiny_cifar", num_classes=5, **SHRUNK["swin_tiny_cifar"]).eval()
    with capture.attention(model) as maps:
        model(torch.randn(1, 3, 32, 32))
    assert {tuple(weights.shape[-2:]) for weights in maps.values()} == {(16, 16)}
    assert maps["layers.0.blocks.0.attn"].shape[0] == 64  # windows of an image of 32 x 32


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: convolutional(0), "1 patch a side"),
        (lambda: convolutional(3, border="wrap"), "there are: shift, clip"),
        (lambda: convolutional(3, num_heads=5), "24 cannot be split over 5 heads"),
        (lambda: convolutional(3, patch_drop_rate=0.5), "patch_drop_rate"),
        (lambda: convolutional(3)(torch.zeros(1, 3, 8, 8)), "takes images of 16 x 16"),
        (lambda: create_model("pvt_tiny", img_size=48), "multiples of 32"),
        (lambda: create_model("pvt_micro")(torch.zeros(1, 3, 64, 64)), "dynamic_img_size=True"),
        (lambda: create_model("pvt_micro", global_pool="max"), "possible here: 'token', 'avg'"),
        (lambda: create_model("pvt_micro", depths=(1, 1)), "one number a stage"),
        (lambda: create_model("pvt_micro", num_heads=(1, 5, 4)), "multiples of their heads"),
        (
            lambda: create_model("pvt_micro", global_pool="avg").reset_classifier(2, "token"),
            "'avg'",
        ),
    ],
)
def test_what_cannot_work_is_one_clear_error(make, says):
    with pytest.raises(UserError, match=says):
        make()
