"""Nonlocality, entropy, maps and gates: closed forms, and parity with independent code."""

import pkgutil
from importlib import import_module

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

import vitascope
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.layers.gpsa import GPSA
from vitascope.layers.positions import kernel_offsets, window_weight
from vitascope.layers.psa import PSA
from vitascope.measure.attention.entropy import row_entropy
from vitascope.measure.attention.nonlocality import attention_distance, grid_coordinates
from vitascope.record import load


def grid_distances(height, width):
    places = grid_coordinates(height, width)
    return torch.cdist(places, places)


class Toy(nn.Module):
    """One attention layer over pixels whose map is given; ``prefix`` tokens come first."""

    def __init__(self, weights, prefix=0):
        super().__init__()
        self.attn = Given(weights)
        self.token = nn.Parameter(torch.randn(1, prefix, 3))

    def forward(self, x):
        x = x.flatten(2).mT
        return self.attn(torch.cat([self.token.expand(len(x), -1, -1), x], 1)).mean(1)


class Given(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.scores = nn.Parameter(weights.log())
        self.v = nn.Linear(3, 3)

    def forward(self, x):
        q = torch.cat([x, torch.zeros_like(x)], -1).unsqueeze(1)
        k = torch.cat([torch.zeros_like(x), x], -1).unsqueeze(1)
        v = self.v(x).unsqueeze(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.scores).squeeze(1)


def test_a_head_that_looks_at_itself_has_distance_zero():
    result = measure.nonlocality(Toy(torch.eye(12)), [torch.randn(2, 3, 3, 4)])
    assert result.distance["attn"].tolist() == [0.0]


@pytest.mark.parametrize("grid", [(3, 4), (14, 14), (1, 5)])
def test_a_uniform_head_has_the_mean_distance_of_the_grid(grid):
    n = grid[0] * grid[1]
    result = measure.nonlocality(Toy(torch.full((n, n), 1 / n)), [torch.randn(2, 3, *grid)])
    expected = grid_distances(*grid).mean().item()
    assert result.distance["attn"] == pytest.approx(expected, rel=1e-5)
    assert result.uniform["attn"] == pytest.approx(expected)
    assert result.grid["attn"] == grid
    if grid == (14, 14):
        assert round(expected, 1) == 7.3


def test_a_head_that_looks_one_patch_aside_has_distance_one():
    aside = torch.eye(12).view(3, 4, 3, 4).roll(1, dims=0)
    aside[0] = torch.eye(12).view(3, 4, 3, 4)[1]  # the first row looks down instead
    result = measure.nonlocality(Toy(aside.view(12, 12)), [torch.randn(1, 3, 3, 4)])
    assert result.distance["attn"] == pytest.approx(1.0)


def test_prefix_tokens_do_not_count():
    patches = torch.rand(9, 9).softmax(-1)
    weights = torch.full((11, 11), 1 / 11)
    weights[2:, :2] = 0.25
    weights[2:, 2:] = patches / 2
    x = torch.randn(2, 3, 3, 3)
    with_tokens = measure.nonlocality(Toy(weights, prefix=2), [x]).distance["attn"]
    assert with_tokens == pytest.approx(measure.nonlocality(Toy(patches), [x]).distance["attn"])


def test_windows_count_with_distances_within_the_image():
    weights = torch.rand(2 * 4, 3, 4, 4).softmax(-1)  # 2 images, 4 windows of 2 x 2
    distances = grid_distances(2, 2).expand(4, 4, 4)
    expected = (weights.double() * distances[0]).sum(-1).mean(-1).view(2, 4, 3).mean(1)
    torch.testing.assert_close(attention_distance(weights, distances), expected)


def test_batches_are_averaged_by_image_and_labels_are_ignored():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2)
    a, b = torch.randn(3, 3, 32, 32), torch.randn(1, 3, 32, 32)
    whole = measure.nonlocality(model, [torch.cat([a, b])])
    split = measure.nonlocality(model, iter([(a, torch.zeros(3)), (b, torch.zeros(1))]))
    np.testing.assert_allclose(split.per_layer(), whole.per_layer(), rtol=1e-6)
    assert split.num_images == 4
    for name in ("entropy", "maps"):
        whole, split = (
            getattr(measure, name)(model, batch) for batch in ([a, b], [torch.cat([a, b])])
        )
        one, other = whole.to_record().arrays, split.to_record().arrays
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-5, atol=1e-9)


def test_the_released_formula_on_the_true_input_of_each_layer():
    """timm keeps the released ``get_attention_map``; it is fed what the layer really gets."""
    model = timm.create_model("convit_tiny", img_size=64, depth=3, local_up_to_layer=2).eval()
    for layer in capture.gated_layers(model).values():
        nn.init.normal_(layer.gating_param)
    x = torch.randn(3, 3, 64, 64)
    inputs = {}
    handles = [
        block.attn.register_forward_pre_hook(lambda m, a, i=i: inputs.__setitem__(i, a[0]))
        for i, block in enumerate(model.blocks)
    ]
    result = measure.nonlocality(model, [x])
    with torch.no_grad():
        model(x)
        for i in range(2):
            expected = model.blocks[i].attn.get_attention_map(inputs[i])
            found = result.distance[f"blocks.{i}.attn"]
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)
    for handle in handles:
        handle.remove()


def test_our_convit_and_timms_measure_alike():
    model = vitascope.create_model("convit_micro", num_classes=3).eval()
    x = torch.randn(2, 3, 32, 32)
    result = measure.nonlocality(model, [x])
    inputs = {}
    layers = capture.gated_layers(model)
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda m, a, n=name: inputs.__setitem__(n, a[0]))
    with torch.no_grad():
        model(x)
        for name, layer in layers.items():
            mixed = layer.attention(inputs[name], (8, 8)).mixed.double()
            expected = (mixed * grid_distances(8, 8)).sum(-1).mean((0, 2))
            np.testing.assert_allclose(result.distance[name], expected.numpy(), rtol=1e-5)


def test_each_layer_is_measured_on_the_input_it_gets():
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=2)
    x = [torch.randn(2, 3, 64, 64)]
    nn.init.normal_(model.blocks[1].attn.qkv.weight)
    before = measure.nonlocality(model, x).distance
    with capture.edit(model, {"blocks.0": torch.randn_like}):
        after = measure.nonlocality(model, x).distance
    np.testing.assert_allclose(before["blocks.0.attn"], after["blocks.0.attn"])
    assert np.abs(before["blocks.1.attn"] - after["blocks.1.attn"]).max() > 1e-3


def test_entropy_of_a_uniform_head_is_log_t_and_of_a_sharp_one_zero():
    x = [torch.randn(2, 3, 3, 4)]
    uniform = measure.entropy(Toy(torch.full((12, 12), 1 / 12)), x)
    assert uniform.nats["attn"] == pytest.approx(np.log(12), rel=1e-6)
    assert uniform.relative["attn"] == pytest.approx(1.0, rel=1e-6)
    sharp = measure.entropy(Toy(torch.eye(12)), x).nats["attn"]
    assert sharp == pytest.approx(0, abs=1e-5)
    assert row_entropy(torch.tensor([[0.5, 0.5, 0.0]])).item() == pytest.approx(np.log(2))


def test_a_map_is_the_querys_row_on_the_grid():
    weights = torch.rand(13, 13).softmax(-1)
    model = Toy(weights, prefix=1)
    result = measure.maps(model, [torch.randn(2, 3, 3, 4)], query=(0.5, 0.99))
    row = 1 + 1 * 4 + 3
    np.testing.assert_allclose(result.mixed["attn"][0], weights[row, 1:].view(3, 4), rtol=1e-5)
    assert result.query["attn"] == (1.0, 3.0)
    assert not result.content


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_a_query_between_patches_takes_the_upper_left_one(name):
    sizes = {"img_size": 32, "embed_dim": 8, "num_classes": 2}
    if "swin" in name:  # its tokens are in the order of its windows
        sizes |= {"window_size": 4, "depths": (1,), "num_heads": (2,)}
    else:
        sizes |= {"patch_size": 4, "depth": 1, "num_heads": 2}
    model, x = timm.create_model(name, **sizes), [torch.randn(1, 3, 32, 32)]
    for query, expected in {(0.5, 0.5): (3, 3), (0.25, 0.5): (1, 3), (0.5, 0.8): (3, 6)}.items():
        (at,) = measure.maps(model, x, query=query).query.values()
        assert at == pytest.approx(expected, abs=1e-4)


def test_maps_of_windows_are_zero_outside_the_window():
    model = timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        depths=(1,),
        embed_dim=8,
        num_heads=(2,),
        num_classes=2,
    )
    nn.init.normal_(model.layers[0].blocks[0].attn.qkv.weight)
    x = torch.randn(2, 3, 32, 32)
    result = measure.maps(model, [x], query=(0.1, 0.99))
    weights = result.mixed["layers.0.blocks.0.attn"]
    assert weights.shape == (2, 8, 8)
    np.testing.assert_allclose(weights[:, :4, 4:].sum((1, 2)), 1, rtol=1e-5)
    with capture.evaluating(model), capture.attention(model) as seen:
        model(x)
    window = seen["layers.0.blocks.0.attn"].view(2, 4, 2, 16, 16)[:, 1, :, 3].mean(0)
    np.testing.assert_allclose(weights[:, :4, 4:], window.view(2, 4, 4), rtol=1e-4)
    assert weights.sum() == pytest.approx(2)


def test_maps_of_gated_layers_mix_content_and_position():
    model = vitascope.create_model("convit_micro", num_classes=3)
    result = measure.maps(model, [torch.randn(2, 3, 32, 32)])
    for name, gate in result.gate.items():
        gate = gate[:, None, None]
        mixed = (1 - gate) * result.content[name] + gate * result.position[name]
        np.testing.assert_allclose(result.mixed[name], mixed, rtol=1e-4, atol=1e-7)
    assert set(result.mixed) > set(result.gate)


def test_gates_of_a_fresh_convit_are_the_sigmoid_of_one():
    for model in (
        vitascope.create_model("convit_micro"),
        timm.create_model("convit_tiny", img_size=32, depth=2, local_up_to_layer=1),
    ):
        np.testing.assert_allclose(measure.gates(model).per_layer(), 0.7310586, rtol=1e-6)


@pytest.mark.parametrize("instrument", ["nonlocality", "gates", "windows", "entropy", "maps"])
def test_a_model_without_attention_is_refused(instrument):
    model = timm.create_model("resnet10t", num_classes=2)
    with pytest.raises(UserError, match="ResNet"):
        getattr(measure, instrument)(model, [torch.randn(1, 3, 32, 32)])


@pytest.mark.parametrize("name", ["xcit_nano_12_p16_224", "coat_lite_tiny"])
def test_attention_over_channels_has_no_distance(name):
    kwargs = {"depth": 1} if "xcit" in name else {"serial_depths": (1, 1, 1, 1)}
    model = timm.create_model(name, img_size=32, **kwargs)
    with pytest.raises(UserError, match="nonlocality needs"):
        measure.nonlocality(model, [torch.randn(1, 3, 32, 32)])


def test_what_cannot_be_measured_says_why():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2)
    x = torch.randn(1, 3, 32, 32)
    with pytest.raises(UserError, match="empty"):
        measure.nonlocality(model, [])
    with pytest.raises(UserError, match=r"blocks\.0\.attn"):
        measure.nonlocality(model, [x], layers="blocks.7.attn")
    with pytest.raises(UserError, match="fractions"):
        measure.maps(model, [x], query=(7, 7))
    with pytest.raises(UserError, match="a batch must be"):
        measure.entropy(model, ["no image"])


def test_a_record_has_all_a_figure_needs(tmp_path):
    model = vitascope.create_model("convit_micro", num_classes=3)
    x = [torch.randn(2, 3, 32, 32)]
    for name in ("nonlocality", "gates", "windows", "entropy", "maps"):
        result = getattr(measure, name)(model, x)
        result.to_record().save(tmp_path / name)
        record = load(tmp_path / name)
        assert record.kind == name
        assert set(record.values["layers"]) <= {key.split("/")[-1] for key in record.arrays}


@pytest.mark.parametrize("package", [capture, measure])
def test_functions_win_over_modules_of_the_same_name(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    assert all(callable(getattr(package, name)) for name in package.__all__)


def test_the_windows_of_a_fresh_convit_are_its_kernel_to_the_last_digit():
    model = vitascope.create_model("convit_micro", locality_strength=4.0).double()
    found = measure.windows(model)
    assert found.layers == ("blocks.0.attn", "blocks.1.attn", "blocks.2.attn")
    for name in found.layers:
        np.testing.assert_array_equal(found.centre[name], kernel_offsets(9).numpy())
        np.testing.assert_array_equal(found.width[name], np.full(9, 0.5))
    side = [1, 0, 1]
    far = [np.hypot(down, across) for down in side for across in side]
    np.testing.assert_allclose(found.distance()["blocks.0.attn"], far, rtol=1e-15)


def test_a_planted_window_is_read_in_grid_order_and_is_where_the_head_looks():
    layer = GPSA(8, 2, locality_strength=1.0).double()
    offset = torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64)  # down, across
    with torch.no_grad():
        layer.pos_proj.weight.copy_(window_weight(offset, 0.25))
    found = measure.windows(nn.Sequential(layer))
    np.testing.assert_array_equal(found.centre["0"], offset.numpy())
    np.testing.assert_array_equal(found.width["0"], [2.0, 2.0])
    x = torch.zeros(1, 13 * 15, 8, dtype=torch.float64)
    seen = layer.attention(x, (13, 15)).position.detach()[0, :, 6 * 15 + 7].view(2, 13, 15)
    peak = seen[0] == seen[0].max()
    assert peak.nonzero().tolist() == [[8, 6]]  # 2 down and 1 to the left of (6, 7)
    assert seen[0, 8, 8] / seen[0, 8, 6] == pytest.approx(np.exp(-1), rel=1e-12)  # a width away


def test_windows_are_those_of_timm_and_of_sequences_too():
    theirs = timm.create_model("convit_tiny", img_size=32, depth=2, local_up_to_layer=1)
    ours = vitascope.create_model("convit_tiny", img_size=32, depth=2, num_gpsa_blocks=1)
    (one,), (two,) = (measure.windows(m).centre.values() for m in (theirs, ours))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    line = measure.windows(nn.Sequential(PSA(9, 3, ndim=1, locality_strength=1.0)))
    assert line.centre["0"].tolist() == [[-1.0], [0.0], [1.0]]


def test_a_head_that_looks_to_the_border_has_no_window(tmp_path):
    model = vitascope.create_model("convit_micro", num_gpsa_blocks=1)
    weight = model.blocks[0].attn.pos_proj.weight
    with torch.no_grad():
        weight[0, -1] = 0.5
    found = measure.windows(model)
    assert np.isnan(found.width["blocks.0.attn"]).tolist() == [True] + [False] * 8
    found.to_record().save(tmp_path / "windows")
    assert load(tmp_path / "windows").values["without_window"] == [1]
    with torch.no_grad():
        weight[:, -1] = 0.5
    assert measure.windows(model).to_record().values["width"] == [None]


def test_windows_are_followed_over_training():
    model = vitascope.create_model("convit_micro", num_gpsa_blocks=1).double()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    moved = dict(start)
    weight = start["blocks.0.attn.pos_proj.weight"]
    moved["blocks.0.attn.pos_proj.weight"] = window_weight(kernel_offsets(9) + 1.0, 1.0)
    found = measure.windows(model, earlier={8: moved, 0: start})
    assert found.epochs == (0, 8)
    np.testing.assert_allclose(found.drift()["blocks.0.attn"][1], np.sqrt(2), rtol=1e-12)
    assert found.drift()["blocks.0.attn"][0].max() == 0
    assert found.centres["blocks.0.attn"].shape == (2, len(weight), 2)
    with pytest.raises(UserError, match=r"epoch 3 have no blocks\.0\.attn\.pos_proj"):
        measure.windows(model, earlier={3: {}})
    with pytest.raises(UserError, match="ResNet has no positional heads"):
        measure.windows(timm.create_model("resnet10t"))
