"""Several instruments in one pass, and what cannot be followed."""

import gc
from functools import partial

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.vision_transformer import VisionTransformer

import vitascope
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.streaming.one_pass import streaming_instruments
from vitascope.measure.timing import peak_memory


class Encoder(nn.Module):
    """Fused encoder layers, which nobody can watch from inside."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 8, 8)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(self.stem(x).flatten(2).mT).mean(1))


def swin():
    return timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        depths=(2, 1),
        embed_dim=16,
        num_heads=(1, 2),
        num_classes=3,
    )


MODELS = {
    "vit": lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=3),
    "convit": lambda: vitascope.create_model("convit_micro", num_classes=3),
    "swin": swin,
    "multihead": lambda: VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3),
    "fused": Encoder,
}


@pytest.mark.parametrize("name", MODELS)
def test_together_is_exactly_each_alone(name):
    model = MODELS[name]().eval()
    for parameter in model.parameters():  # no head that starts at zero
        nn.init.normal_(parameter, std=0.1)
    batches = [torch.randn(5, 3, 32, 32), torch.randn(4, 3, 32, 32)]
    with torch.no_grad():
        expected = model(batches[0])
    found = measure.together(model, batches)
    assert not found.refused
    assert list(found.results) == list(streaming_instruments())
    for instrument, result in found.results.items():
        one = result.to_record()
        other = getattr(measure, instrument)(model, batches).to_record()
        assert one.values == other.values
        assert one.arrays.keys() == other.arrays.keys()
        for key in one.arrays:
            np.testing.assert_array_equal(one.arrays[key], other.arrays[key])
    with torch.no_grad():
        assert torch.equal(model(batches[0]), expected)


@pytest.mark.parametrize("name", ["vit", "convit", "multihead"])
def test_a_batch_runs_once_however_many_look_on(name):
    model = MODELS[name]().eval()
    sizes = []
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    seen = []
    batches = [torch.randn(5, 3, 32, 32), torch.randn(4, 3, 32, 32)]
    measure.together(model, batches, on_batch=seen.append)
    assert seen == [5, 4]
    assert [size for size in sizes if size > 1] == [5, 4]
    assert len(sizes) <= 6  # four looks at one image: places, units, prefix tokens


def test_a_named_instrument_must_work_and_others_are_listed_with_the_reason():
    model, batches = timm.create_model("resnet10t", num_classes=2), [torch.randn(4, 3, 32, 32)]
    found = measure.together(model, batches)
    assert {"nonlocality", "entropy", "maps"} <= set(found.refused)
    assert {"fourier", "variance"} <= set(found.results)
    assert all("ResNet" in why for why in found.refused.values())
    with pytest.raises(UserError, match="entropy needs attention"):
        measure.together(model, batches, ["entropy", "variance"])
    with pytest.raises(UserError, match="unknown instrument 'entropie'; did you mean 'entropy'"):
        measure.together(model, batches, ["entropie"])


def test_one_that_gives_up_on_the_way_does_not_stop_the_others():
    model = MODELS["vit"]()
    batches = [torch.randn(4, 3, 32, 32), torch.randn(3, 3, 32, 32)]
    found = measure.together(model, batches)
    assert "at least 4" in found.refused["cka"]
    assert found.results["variance"].num_images == 7
    with pytest.raises(UserError, match="at least 4"):
        measure.together(model, batches, ["cka", "variance"])


def test_options_reach_their_instrument():
    model, x = MODELS["vit"](), [torch.randn(4, 3, 32, 32)]
    options = {"maps": {"query": (0.0, 0.0)}, "variance": {"units": ["*.mlp"]}}
    results = measure.together(model, x, ["maps", "variance"], options=options).results
    assert results["maps"].query["blocks.0.attn"] == pytest.approx((0, 0), abs=1e-6)
    assert list(results["variance"].variance) == ["blocks.0.mlp", "blocks.1.mlp"]


@pytest.mark.parametrize("inside_out", [True, False])
def test_two_who_look_at_once_may_leave_in_any_order(inside_out):
    model, x = MODELS["multihead"]().eval(), torch.randn(1, 3, 32, 32)
    units = capture.units(model, x)
    looks = [lambda: capture.attention(model), lambda: capture.streams(model, units)]
    first, second = looks if inside_out else reversed(looks)
    with first() as one, second() as other:
        model(x)
    assert {len(one), len(other)} == {2, len(units)}
    with capture.attention(model) as again:  # no mode is left switched off
        model(x)
    assert len(again) == 2


# --- what cannot be followed -----------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Detour(nn.Module):
    """Two attention layers; the tokens may leave torch between them, as in any custom kernel."""

    def __init__(self, detour, prefix=1):
        super().__init__()
        self.detour = detour
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, prefix, 8))
        self.first, self.second = Attention(), Attention()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = x + self.first(x)
        if self.detour:
            x = torch.from_numpy(x.numpy().copy())
        x = x + self.second(x)
        return self.head(x.mean(1))


def both():
    followed, lost = Detour(False), Detour(True)
    lost.load_state_dict(followed.state_dict())
    return followed, lost, [torch.randn(4, 3, 8, 12)]


@pytest.mark.parametrize("name", ["nonlocality", "entropy", "maps"])
def test_a_layer_that_cannot_be_followed_is_named_and_not_dropped_silently(name):
    followed, lost, x = both()
    instrument = getattr(measure, name)
    assert not instrument(followed, x).left_out
    found = instrument(lost, x)
    assert list(found.left_out) == ["second"]
    assert "state the grid" in found.left_out["second"]
    assert found.to_record().values["layers"] == ["first"]
    assert list(found.to_record().values["left_out"]) == ["second"]
    with pytest.raises(UserError, match="second: its tokens cannot be followed"):
        instrument(lost, x, layers="second")


def assert_close(one, other):
    """Nested values that are the same but for the rounding of their numbers."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        assert one == (pytest.approx(other, abs=1e-5) if isinstance(other, float) else other)


@pytest.mark.parametrize("known", [{}, {"num_prefix_tokens": 1}])
@pytest.mark.parametrize("name", ["nonlocality", "entropy", "maps", "fourier", "variance"])
def test_a_stated_grid_gives_what_following_gives(name, known):
    followed, lost, x = both()
    instrument = getattr(measure, name)
    expected = instrument(followed, x).to_record()
    found = instrument(lost, x, grid=(2, 3), **known).to_record()
    assert_close(found.values, expected.values)
    for key, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[key], array, rtol=1e-5)


def test_a_stated_grid_that_does_not_fit_says_so():
    _, lost, x = both()
    wrong = measure.nonlocality(lost, x, grid=(5, 5)).left_out["second"]
    assert wrong == "its 1 x 7 tokens are not the stated grid of 5 x 5"
    wrong = measure.nonlocality(lost, x, grid=(2, 3), num_prefix_tokens=0).left_out["second"]
    assert "and 0 prefix tokens" in wrong


def test_units_without_a_grid_are_left_out_with_the_reason():
    _, lost, x = both()
    found = measure.variance(lost, x)
    assert found.left_out["head"] == "one vector an image"
    assert "state the grid of (7, 8)" in found.left_out["second"]
    assert measure.variance(lost, x, grid=(2, 3)).left_out == {"head": "one vector an image"}


def test_attention_over_channels_and_from_a_class_token_is_left_out():
    model = timm.create_model("cait_xxs24_224", img_size=32, depth=1, num_classes=2)
    found = measure.nonlocality(model, [torch.randn(1, 3, 32, 32)])
    assert set(found.left_out.values()) == {"no patch attends, only the class token"}
    assert list(found.distance) == ["blocks.0.attn"]


def test_memory_does_not_grow_with_the_layers():
    """Maps and features are freed when they are reduced, not when garbage is collected."""
    images = torch.randn(4, 3, 64, 64)
    held = {}
    gc.disable()
    try:
        for depth in (2, 8):
            model = timm.create_model(
                "vit_tiny_patch16_224", img_size=64, patch_size=8, embed_dim=48, depth=depth
            )
            held[depth] = peak_memory(partial(measure.together, model, [images]))
    finally:
        gc.enable()
    assert held[8] < 1.15 * held[2]
