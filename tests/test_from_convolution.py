"""What must hold of attention that takes the place of a trained convolution."""

import pytest
import timm
import torch
from timm.layers import StdConv2d
from torch import nn
from torch.nn import functional as F

import vitascope
from model_making import Largest
from vitascope import attention_from_convolution, capture, convit_from_resnet, measure
from vitascope.errors import UserError
from vitascope.layers import freeze_gates
from vitascope.measure.ablation.masking import forced_gates

MODES = ("zeros", "circular", "replicate", "reflect")
STRONG = 40.0  # exp(-40) = 4e-18: one-hot to rounding in float64


def assert_exact(conv, x):
    found = attention_from_convolution(conv.double(), locality_strength=STRONG)(x.double())
    torch.testing.assert_close(found, conv(x.double()), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, (3, 5), (1, 7)])
def test_it_equals_the_convolution_everywhere_for_any_kernel_and_padding_mode(kernel, mode):
    conv = nn.Conv2d(4, 6, kernel, padding="same", padding_mode=mode)
    assert_exact(conv, torch.randn(2, 4, 6, 9))


@pytest.mark.parametrize("padding", [0, 1, (2, 1), "valid", "same"])
@pytest.mark.parametrize("kernel", [(5, 3), (4, 4)])
def test_less_padding_gives_the_smaller_map_of_the_convolution(kernel, padding):
    if kernel == (4, 4) and padding == (2, 1):
        padding = (1, 0)  # more outputs than patches: refused below
    assert_exact(nn.Conv2d(2, 3, kernel, padding=padding), torch.randn(1, 2, 8, 9))


@pytest.mark.parametrize(
    "options",
    [{"groups": 2}, {"groups": 4}, {"bias": False}, {"dilation": 2}, {"dilation": (1, 3)}],
)
def test_groups_depthwise_kernels_dilation_and_missing_bias_are_honoured(options):
    assert_exact(nn.Conv2d(4, 8, 3, padding="same", **options), torch.randn(2, 4, 7, 8))


@pytest.mark.parametrize("channels", [3, 64])
def test_in_float32_it_equals_the_convolution_to_1e_5(channels):
    conv = nn.Conv2d(channels, 32, 3, padding=1)
    x = torch.randn(2, channels, 9, 9)
    torch.testing.assert_close(attention_from_convolution(conv)(x), conv(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("gate_init", [-1.0, 0.0, 3.0])
def test_it_is_exact_whatever_the_gates_start_at(gate_init):
    conv, x = nn.Conv2d(3, 4, 3, padding=1).double(), torch.randn(1, 3, 5, 6).double()
    layer = attention_from_convolution(conv, gate_init=gate_init, locality_strength=STRONG)
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-10, atol=1e-10)
    expected = torch.full((9,), gate_init, dtype=torch.float64).sigmoid()
    torch.testing.assert_close(layer.attn.gate, expected)


def test_a_weak_locality_blurs_the_kernel():
    conv, x = nn.Conv2d(3, 4, 3, padding=1).double(), torch.randn(1, 3, 8, 8).double()
    errors = [
        (attention_from_convolution(conv, locality_strength=s)(x) - conv(x)).abs().max().item()
        for s in (1.0, 5.0, 10.0)
    ]
    assert errors[0] > 0.1 > errors[1] > 1e-3 > errors[2] > 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_at_the_border_a_head_looks_where_the_padding_comes_from_or_nowhere(mode):
    conv = nn.Conv2d(1, 1, (1, 3), padding=(0, 1), padding_mode=mode).double()
    attn = attention_from_convolution(conv, locality_strength=STRONG).attn
    left = attn.attention(torch.randn(1, 4, 1).double(), (1, 4)).position[0, 0]  # looks one left
    source = {"zeros": None, "circular": 3, "replicate": 0, "reflect": 1}[mode]
    expected = torch.zeros(4, dtype=torch.float64)
    if source is not None:
        expected[source] = 1.0
    torch.testing.assert_close(left[0], expected)
    torch.testing.assert_close(left[1:], torch.eye(4, dtype=torch.float64)[:3])


def test_its_maps_are_what_it_applies():
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=2).double()
    attn = attention_from_convolution(conv).attn
    with torch.no_grad():
        for parameter in attn.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(2, 20, 4).double()
    maps = attn.attention(x, (4, 5))
    assert maps.mixed.shape == (2, 9, 20, 20)
    query, key = attn.queries_and_keys(x)
    alone = (query[:, -1] @ key[:, -1].mT * attn.head_dim**-0.5).softmax(-1)
    seen = (
        torch.cat([maps.mixed, alone[:, None]], dim=1)
        @ x[:, None]
        / torch.sigmoid(torch.tensor(1.0, dtype=torch.float64))
    )  # (B, H + 1, N, C)
    weight = torch.cat([attn.weight.flatten(2), attn.counterweight[..., None]], dim=-1)
    halves = [
        torch.einsum("bhnc,och->bno", seen[..., 2 * g : 2 * g + 2], weight[3 * g : 3 * g + 3])
        for g in range(2)
    ]
    torch.testing.assert_close(attn(x, (4, 5)), torch.cat(halves, dim=-1) + attn.bias)


def loss_of(layer, x, target):
    return F.mse_loss(layer(x), target)


def test_gates_queries_keys_and_kernel_have_usable_gradients_from_the_first_step():
    conv, x = nn.Conv2d(8, 8, 3, padding=1), torch.randn(4, 8, 6, 6)
    attn = (layer := attention_from_convolution(conv)).attn
    loss_of(layer, x, torch.randn(4, 8, 6, 6)).backward()
    query, key = attn.qk.weight.grad.chunk(2)
    scale = attn.weight.grad.abs().max()
    for gradient in (attn.gating_param.grad, query, key, attn.counterweight.grad):
        assert gradient.abs().max() > 1e-3 * scale
    heads = query.unflatten(0, (10, -1))
    assert (heads[0] - heads[1]).abs().max() > 1e-3 * heads.abs().max()  # equal heads part
    assert (attn.gating_param.grad != 0).all()


def test_a_few_steps_of_sgd_open_the_gates_to_a_task_that_needs_content():
    x = torch.randn(8, 4, 6, 6)
    target = 6 * x.mean((2, 3), keepdim=True).expand(-1, -1, 6, 6)  # no 3 x 3 convolution has it
    conv = nn.Conv2d(4, 4, 3, padding=1)
    layer = attention_from_convolution(conv)
    before, qk = layer.attn.gate.detach().clone(), layer.attn.qk.weight.detach().clone()
    start = loss_of(layer, x, target).item()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(40):
        optimizer.zero_grad()
        loss_of(layer, x, target).backward()
        optimizer.step()
    assert loss_of(layer, x, target).item() < 0.5 * start
    assert (layer.attn.gate < before - 0.01).any()
    assert (layer.attn.qk.weight - qk).abs().max() > 1e-3


def test_resetting_makes_it_the_convolution_of_its_present_kernel():
    conv, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(1, 3, 5, 5)
    layer = attention_from_convolution(nn.Conv2d(3, 4, 3, padding=1))
    layer.attn.load_state_dict(conv.state_dict(), strict=False)  # the names are the convolution's
    assert (layer(x) - conv(x)).abs().max() > 1e-3  # out of balance
    layer.attn.reset_parameters()
    torch.testing.assert_close(layer(x), conv(x), rtol=0, atol=1e-5)


def test_nothing_of_size_patches_squared_is_made():
    layer = attention_from_convolution(nn.Conv2d(2, 2, 3, padding=1))
    with Largest() as largest:
        layer(torch.randn(1, 2, 40, 40)).sum().backward()
    assert largest.numel < 1600**2 / 4


@pytest.mark.parametrize(
    ("conv", "reason"),
    [
        (nn.Conv2d(2, 2, 3, stride=2), "stride"),
        (nn.Conv2d(2, 2, 3, padding=2), "more outputs than patches"),
        (nn.Conv2d(2, 2, 2, padding=1), "more outputs than patches"),
        (nn.ConvTranspose2d(2, 2, 3), "no nn.Conv2d"),
        (StdConv2d(2, 2, 3, padding=1), "something else"),
    ],
)
def test_a_layer_that_no_attention_equals_is_refused_with_the_reason(conv, reason):
    with pytest.raises(UserError, match=reason):
        attention_from_convolution(conv)


def test_maps_of_other_channels_and_hopeless_starts_are_refused():
    conv = nn.Conv2d(2, 2, 3, padding=1)
    with pytest.raises(UserError, match="maps of 2 channels"):
        attention_from_convolution(conv)(torch.zeros(1, 3, 4, 4))
    with pytest.raises(UserError, match="gate_init"):
        attention_from_convolution(conv, gate_init=-9.0)
    with pytest.raises(UserError, match="positive"):
        attention_from_convolution(conv, locality_strength=0.0)


def trained_like(model):
    """Batch norms as training leaves them: no residual branch is silent."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, std=0.3)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.2)
    return model.eval()


RESNETS = {  # how many convolutions of the last stage become attention
    "resnet10t": 1,
    "resnet18": 3,
    "resnet26": 1,
    "resnext50_32x4d": 2,
    "resnet_micro": 3,
}


@pytest.mark.parametrize("name", RESNETS)
def test_a_resnet_keeps_its_logits_when_its_last_stage_becomes_attention(name):
    resnet = trained_like(vitascope.create_model(name, num_classes=10))
    convit = convit_from_resnet(resnet)
    images = torch.randn(2, 3, 64, 48)
    with torch.no_grad():
        torch.testing.assert_close(convit(images), resnet(images), rtol=1e-5, atol=1e-5)
    gates = measure.gates(convit)
    assert len(gates.layers) == RESNETS[name]
    assert all(gate.shape == (9,) for gate in gates.gate.values())
    assert not capture.gated_layers(resnet)  # the original is left alone


def test_a_converted_resnet_is_seen_by_the_instruments_and_can_be_frozen():
    resnet = trained_like(vitascope.create_model("resnet_micro", num_classes=10))
    convit, images = convit_from_resnet(resnet), torch.randn(2, 3, 32, 32)
    with capture.attention(convit) as maps:
        convit(images)
    assert {tuple(m.shape) for m in maps.values()} == {(2, 9, 64, 64)}
    with forced_gates(capture.gated_layers(convit).values(), 1.0):
        found = measure.nonlocality(convit, [images])
    for name, grid in found.grid.items():
        assert grid == (8, 8)
        middle, *beside = found.distance[name][[4, 1, 3, 5, 7]]  # of the kernel
        assert middle < 1e-6
        assert beside == pytest.approx([7 / 8] * 4)  # one step, but one row in 8 sees the padding
    freeze_gates(convit)
    assert not any(p.requires_grad for n, p in convit.named_parameters() if "gating" in n)


def test_gradients_reach_every_part_of_a_converted_resnet_and_timms_surface_stays():
    convit = convit_from_resnet(trained_like(timm.create_model("resnet10t", num_classes=5)))
    images = torch.randn(2, 3, 64, 64)
    F.cross_entropy(convit(images), torch.tensor([0, 3])).backward()
    assert not [n for n, p in convit.named_parameters() if p.grad is None or not p.grad.any()]
    features = convit.forward_features(images)
    torch.testing.assert_close(convit.forward_head(features), convit(images))
    final, maps = convit.forward_intermediates(images, indices=[-1])
    torch.testing.assert_close(maps[0], final)
    convit.reset_classifier(3)
    assert convit(images).shape == (2, 3)
    again = convit_from_resnet(timm.create_model("resnet10t", num_classes=3)).eval()
    again.load_state_dict(convit.state_dict())
    torch.testing.assert_close(again(images), convit(images))


def test_two_stages_may_be_converted_and_too_many_are_refused():
    resnet = trained_like(vitascope.create_model("resnet_micro", num_classes=10))
    images = torch.randn(1, 3, 16, 16)
    convit = convit_from_resnet(resnet, num_stages=2)
    assert len(capture.gated_layers(convit)) == 6
    torch.testing.assert_close(convit(images), resnet(images), rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="the model has stages.0, stages.1, stages.2"):
        convit_from_resnet(resnet, num_stages=4)


def test_a_network_without_stages_or_without_kernels_is_refused():
    with pytest.raises(UserError, match="declares no stages"):
        convit_from_resnet(nn.Sequential(nn.Conv2d(3, 3, 3)))
    with pytest.raises(UserError, match="larger than 1 x 1"):
        convit_from_resnet(vitascope.create_model("vit_micro"))
