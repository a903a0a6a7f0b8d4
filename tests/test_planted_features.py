"""Features of known values, planted in toy networks and real ones, in every order of tokens.

All parameters are zero, so that no layer adds anything to the residual stream; a hook replaces what
the first convolution gives. Fourier, variance and norms then have closed forms.
"""

import numpy as np
import pytest
import timm
import torch
import transformers
from torch import nn

from vitascope import capture, measure
from vitascope.measure.features.norms import QUANTILES

SIDE, CYCLES, MEAN = 8, 2, 3.0  # patches a side; of the grating


class Windowed(nn.Module):
    """Tokens in windows of 4 x 4, in one sequence or apart; attention by their own products."""

    def __init__(self, apart=False):
        super().__init__()
        self.apart = apart
        self.stem = nn.Conv2d(3, 6, 4, stride=4)
        self.attn, self.mlp = Products(), nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))

    def forward(self, x):
        x = self.stem(x).unflatten(3, (-1, 4)).unflatten(2, (-1, 4))
        x = x.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(1, 2)  # (B, windows, 16, C)
        x = x if self.apart else x.flatten(1, 2)
        x = x + self.attn(x)
        return x + self.mlp(x)


class Enlarged(nn.Module):
    """A branch on half the grid, whose pixels are doubled before its sum with the shortcut."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 4, stride=4)
        self.attn, self.mlp = Products(), nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))

    def forward(self, x):
        x = self.stem(x)
        half = self.attn(nn.functional.avg_pool2d(x, 2).flatten(2).mT).mT.unflatten(2, (4, 4))
        x = nn.functional.interpolate(half, scale_factor=2.0) + x
        x = x.permute(0, 2, 3, 1)
        return x + self.mlp(x)


class Products(nn.Module):
    """Attention of each token to the tokens like it, times nothing."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(6, 6)

    def forward(self, x):
        return (x @ x.mT / 20).softmax(-1) @ self.value(x)


def timms(name, **options):
    return lambda: timm.create_model(name, img_size=32, num_classes=5, **options)


def swin():
    sizes = {"patch_size": 4, "window_size": 4, "embed_dim": 16, "depths": (2,), "num_heads": (2,)}
    model = timms("swin_tiny_patch4_window7_224", **sizes)()
    model.patch_embed.norm = nn.Identity()
    return model


def yolos():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "image_size": [32, 32], "patch_size": 4}
    return transformers.YolosModel(transformers.YolosConfig(**sizes, num_detection_tokens=3))


NETWORKS = {
    "windows in one sequence": Windowed,
    "windows apart": lambda: Windowed(apart=True),
    "pixels doubled": Enlarged,
    "class token": timms("vit_tiny_patch16_224", patch_size=4, depth=1, embed_dim=24, num_heads=2),
    "height and width": swin,
    "mask units": timms("hiera_tiny_224", embed_dim=16, num_heads=1, stages=(1, 1, 1, 1)),
    "tokens before and after": yolos,
}


def planted(name, features):
    """The network with features (C, SIDE, SIDE) behind its first convolution, and images."""
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    values = features(stem.out_channels)
    stem.register_forward_hook(lambda _module, _inputs, output: output * 0 + values)
    return model, torch.randn(2, 3, 32, 32), values


def grating(channels):
    at = 2 * np.pi * CYCLES * torch.arange(SIDE) / SIDE
    wave = (at[:, None] + at + 0.3).cos()
    return MEAN + torch.linspace(0.5, 2, channels)[:, None, None] * wave


def spot(channels):
    features = torch.ones(channels, SIDE, SIDE)
    features[:, 1, 6] = 10.0
    return features


def streams_of(result, units):
    """The units behind which the planted features are still there."""
    names = [u.name for u in units if u.grid == (SIDE, SIDE) and u.residual and u.name in result]
    assert names
    return names


@pytest.mark.parametrize("name", NETWORKS)
def test_a_planted_grating_has_its_frequency_variance_and_norms(name):
    model, images, values = planted(name, grating)
    units = capture.units(model, images)
    amplitudes = torch.linspace(0.5, 2, len(values), dtype=torch.float64)
    found = measure.together(model, images, ["fourier", "variance", "norms"])
    fourier, variance, norms = (found.results[kind] for kind in found.results)
    height = (amplitudes / 2).log().mean() - np.log(MEAN) - np.log(2) / 2
    expected = np.quantile(values.double().norm(dim=0), QUANTILES)
    for unit in streams_of(variance.variance, units):
        peak = 1 + int(fourier.amplitude[unit][1:].argmax())
        assert fourier.frequency[unit][peak] == pytest.approx(2 * CYCLES / SIDE)
        assert fourier.amplitude[unit][peak] == pytest.approx(float(height), rel=1e-4)
        assert variance.variance[unit] == pytest.approx(float((amplitudes**2 / 2).mean()), rel=1e-4)
        np.testing.assert_allclose(norms.quantiles[unit], expected, rtol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_planted_spot_is_where_it_was_planted(name):
    model, images, _ = planted(name, spot)
    found = measure.norms(model, images)
    for unit in streams_of(found.where, capture.units(model, images)):
        where = np.zeros((SIDE, SIDE))
        where[1, 6] = 1
        np.testing.assert_array_equal(found.where[unit], where)


def test_attention_drawn_by_a_patch_is_its_own_in_any_order_of_tokens():
    model, images, values = planted("windows in one sequence", spot)
    tokens = values.flatten(1).T
    shares = (tokens @ tokens.T / 20).softmax(-1).mean(0)
    found = measure.norms(model, images)
    (layer,) = found.drawn
    assert found.drawn[layer] == pytest.approx(float(shares[SIDE + 6]), rel=1e-5)
    assert found.drawn[layer] > 2 * found.even[layer]


def test_a_transposed_map_is_turned_back_though_its_columns_are_about_even():
    class Cascade(nn.Module):
        def forward(self, x):
            self.expected = (self.scale * x).softmax(-1)
            return x @ self.expected.mT

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = Cascade(), nn.Linear(5, 5)
            self.layer.scale = nn.Parameter(torch.tensor(1e-4))

        def forward(self, x):
            return self.last(self.layer(x))

    model = Model()
    with capture.attention(model) as maps:
        model(torch.randn(2, 5, 5))
    assert torch.equal(maps["layer"][:, 0], model.layer.expected)
