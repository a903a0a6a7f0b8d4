"""Mixture attention: with fixed gates each of the kinds of attention that it mixes."""

import math

import pytest
import torch
from timm.layers import Attention

import vitascope
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.figure import Style
from vitascope.layers import GPSA, ContextBroadcast
from vitascope.layers.mixture import PARTS, MixtureAttention, prune_mixture
from vitascope.layers.window import WindowAttention
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS

DIM, HEADS = 24, 4
GRIDS = [(4, 4), (5, 7), (3, 2)]
OFF = -math.inf


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def layer(grid, prefix=0, logits=None, window=4):
    made = MixtureAttention(
        DIM, HEADS, qkv_bias=True, grid=grid, num_prefix_tokens=prefix, window=window
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
        if logits is not None:
            made.mixture_gating_param.copy_(torch.as_tensor(logits, dtype=torch.float64))
    return made.eval()


def tokens(grid, prefix=0):
    return torch.randn(2, prefix + grid[0] * grid[1], DIM, dtype=torch.float64)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("window", [2, 4])
def test_the_parts_are_applied_as_the_map_says(grid, prefix, window):
    mixture, x = layer(grid, prefix, window=window), tokens(grid, prefix)
    dense = mixture.attention(x)
    torch.testing.assert_close(dense.sum(-1), torch.ones_like(dense[..., 0]))
    out = (dense @ mixture._heads(x)[2]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixture(x), mixture.proj(out))


@pytest.mark.parametrize("prefix", [0, 1])
def test_content_alone_is_timms_attention(prefix):
    mixture, x = layer((4, 5), prefix, [[0, OFF, OFF, OFF]] * HEADS), tokens((4, 5), prefix)
    plain = Attention(DIM, HEADS, qkv_bias=True).double().eval()
    plain.load_state_dict(mixture.state_dict(), strict=False)
    torch.testing.assert_close(mixture(x), plain(x))


@pytest.mark.parametrize("grid", GRIDS)
def test_content_and_position_are_gpsa(grid):
    gpsa, x = GPSA(DIM, HEADS, qkv_bias=True).double().eval(), tokens(grid)
    with torch.no_grad():
        for parameter in gpsa.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    mixture = layer(grid, logits=[[0.0, gate, OFF, OFF] for gate in gpsa.gating_param.tolist()])
    state = {
        "qkv.weight": torch.cat([gpsa.qk.weight, gpsa.v.weight]),
        "qkv.bias": torch.cat([gpsa.qk.bias, gpsa.v.bias]),
        "pos_proj.weight": gpsa.pos_proj.weight,
        "proj.weight": gpsa.proj.weight,
        "proj.bias": gpsa.proj.bias,
        "mixture_gating_param": mixture.mixture_gating_param,
    }
    mixture.load_state_dict(state)
    torch.testing.assert_close(mixture(x), gpsa(x, grid))


def test_content_and_mean_are_attention_over_broadcast_values():
    mixture, x = layer((4, 5), 1, [[0.0, OFF, 0.0, OFF]] * HEADS), tokens((4, 5), 1)
    query, key, value = mixture._heads(x)
    content = (query @ key.mT * mixture.scale).softmax(-1)
    expected = content @ ContextBroadcast(DIM // HEADS)(value.flatten(0, 1)).unflatten(
        0, value.shape[:2]
    )
    torch.testing.assert_close(mixture.mix(query, key, value), expected)


@pytest.mark.parametrize("grid", GRIDS)
def test_the_patch_itself_and_the_mean_are_context_broadcasting(grid):
    mixture, x = layer(grid, logits=[[OFF, 0.0, 0.0, OFF]] * HEADS), tokens(grid)
    with torch.no_grad():
        mixture.pos_proj.weight.copy_(torch.tensor([0.0, 0.0, -1e6]))  # each patch sees itself
        for linear, rows in ((mixture.qkv, slice(2 * DIM, None)), (mixture.proj, slice(None))):
            linear.weight[rows], linear.bias[rows] = torch.eye(DIM), 0.0
    torch.testing.assert_close(mixture(x), ContextBroadcast(DIM)(x))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("window", [2, 4, 8])
def test_windows_alone_are_windowed_attention(grid, window):
    mixture, x = layer(grid, logits=[[OFF, OFF, OFF, 0.0]] * HEADS, window=window), tokens(grid)
    windowed = WindowAttention(DIM, HEADS, window, qkv_bias=True).double().eval()
    windowed.load_state_dict(mixture.state_dict(), strict=False)
    with torch.no_grad():
        windowed.position_bias.zero_()
    maps = windowed(x.mT.unflatten(-1, grid))
    torch.testing.assert_close(mixture(x), maps.flatten(2).mT)


def test_a_mixture_starts_as_convit_with_a_little_of_the_rest():
    model = vitascope.create_model("vit_micro+mixture")
    for module in (m for m in model.modules() if isinstance(m, MixtureAttention)):
        assert module.grid == (8, 8)
        assert module.num_prefix_tokens == 0
        shares = dict(zip(PARTS, module.shares[0].tolist(), strict=True))
        gate = shares["position"] / (shares["position"] + shares["content"])
        assert gate == pytest.approx(1 / (1 + math.exp(-1)), rel=1e-6)
        assert shares["mean"] == pytest.approx(shares["window"], rel=1e-6)
        assert 0 < shares["mean"] < 0.02
        torch.testing.assert_close(module.qkv.weight[2 * module.attn_dim :], torch.eye(72))
    equal = vitascope.create_model("vit_micro+mixture_equal")
    shares = next(m.shares for m in equal.modules() if isinstance(m, MixtureAttention))
    torch.testing.assert_close(shares, torch.full_like(shares, 0.25))


def test_the_gates_of_all_parts_learn():
    model = vitascope.create_model("vit_micro+mixture", num_classes=3)
    model(torch.randn(2, 3, 32, 32)).logsumexp(-1).sum().backward()
    for module in (m for m in model.modules() if isinstance(m, MixtureAttention)):
        assert (module.mixture_gating_param.grad.abs() > 0).all()
        assert (module.pos_proj.weight.grad.abs() > 0).any()


def test_its_maps_can_be_captured():
    model = vitascope.create_model("vit_micro+mixture", num_classes=3).eval()
    with capture.attention(model) as maps:
        model(torch.randn(2, 3, 32, 32))
    assert {name: tuple(each.shape) for name, each in maps.items()} == {
        f"blocks.{i}.attn": (2, 9, 64, 64) for i in range(4)
    }
    for each in maps.values():
        torch.testing.assert_close(each.sum(-1), torch.ones(2, 9, 64))


def test_gates_give_the_shares_of_all_parts():
    model = vitascope.create_model("vit_micro+mixture", num_classes=3)
    result = measure.gates(model)
    assert list(result.gate) == [f"blocks.{i}.attn" for i in range(4)]
    layer = model.blocks[0].attn
    assert result.shares["blocks.0.attn"] == pytest.approx(
        dict(zip(PARTS, layer.shares[0].tolist(), strict=True))
    )
    assert result.gate["blocks.0.attn"] == pytest.approx(layer.shares[:, 1].tolist())
    figure = INSTRUMENTS["gates"].figure(
        [ModelRecord(label="mixture", style=Style(), record=result.to_record())]
    )
    lines = figure.panels[1].series
    assert [line.label for line in lines] == list(PARTS)
    assert sum(line.y[2] for line in lines) == pytest.approx(1)


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("small", range(len(PARTS)))
def test_pruning_leaves_out_a_part_within_its_bound(prefix, small):
    logits = torch.randn(HEADS, len(PARTS), dtype=torch.float64)
    logits[:, small] = -6.0 - torch.arange(HEADS)
    mixture, x = layer((4, 5), prefix, logits), tokens((4, 5), prefix)
    before, shares = mixture.attention(x), mixture.shares.detach()
    bound = mixture.prune(0.02)
    after = mixture.attention(x)
    change = (after - before).abs().sum(-1).max()
    if prefix and PARTS[small] == "content":  # prefix tokens need it
        assert bound == 0
        assert mixture.parts == PARTS
    else:
        assert bound == pytest.approx(2 * shares[:, small].max().item())
        assert PARTS[small] not in mixture.parts
        assert 0 < change <= bound * (1 + 1e-9)
    torch.testing.assert_close(after.sum(-1), torch.ones_like(after[..., 0]))
    dense = (after @ mixture._heads(x)[2]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixture(x), mixture.proj(dense))


def test_a_pruned_network_is_a_copy():
    model = vitascope.create_model("vit_micro+mixture", num_classes=3)
    pruned, bounds = prune_mixture(model, tolerance=0.02)
    share = model.blocks[0].attn.shares[0, 2].item()
    assert bounds["blocks.0.attn"] == pytest.approx(4 * share)
    assert [block.attn.parts for block in pruned.blocks] == [("content", "position")] * 4
    assert model.blocks[0].attn.parts == PARTS
    with pytest.raises(UserError, match="no mixture attention"):
        prune_mixture(vitascope.create_model("vit_micro"))
    with pytest.raises(UserError, match="tolerance"):
        prune_mixture(model, tolerance=0.5)


def test_other_grids_and_masks_are_refused():
    mixture = layer((4, 4))
    with pytest.raises(UserError, match="img_size"):
        mixture(torch.zeros(1, 17, DIM, dtype=torch.float64))
    with pytest.raises(UserError, match="no mask"):
        mixture(tokens((4, 4)), attn_mask=torch.zeros(16, 16))
    with pytest.raises(UserError, match="do not go together"):
        vitascope.create_model("vit_micro+mixture+lsa")
