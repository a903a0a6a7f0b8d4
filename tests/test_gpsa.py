"""What must hold of gated positional self-attention."""

import pytest
import torch
from timm.models.convit import GPSA as TimmGPSA
from torch.nn import functional as F

from model_making import Largest, randomised
from vitascope.errors import UserError
from vitascope.layers import GPSA, PSA


def dense_by_hand(layer, x, grid):
    """Eq. 6-7 from the definition, with the paper's superfluous normalisation."""
    heads = layer.num_heads
    batch, tokens, dim = x.shape
    places = torch.cartesian_prod(*[torch.arange(n, dtype=x.dtype) for n in grid])
    places = places.reshape(-1, len(grid))
    delta = places[None] - places[:, None]
    r = torch.cat([delta.flip(-1), delta.square().sum(-1, keepdim=True)], dim=-1)
    position = torch.einsum("ijp,hp->hij", r, layer.pos_proj.weight)
    q, k = layer.qk(x).reshape(batch, tokens, 2, heads, -1).permute(2, 0, 3, 1, 4)
    content = q @ k.transpose(-2, -1) / (dim / heads) ** 0.5
    s = torch.sigmoid(layer.gating_param)[None, :, None, None]
    mixed = (1 - s) * content.softmax(-1) + s * position.softmax(-1)[None]
    mixed = mixed / mixed.sum(-1, keepdim=True)
    v = layer.v(x).reshape(batch, tokens, heads, -1).transpose(1, 2)
    return layer.proj((mixed @ v).transpose(1, 2).reshape(batch, tokens, dim)), mixed


@pytest.mark.parametrize("grid", [(11,), (4, 6), (5, 5), (2, 3, 4)])
@pytest.mark.parametrize("heads", [1, 3, 6])
def test_it_equals_the_dense_definition_in_any_dimension_for_any_heads(grid, heads):
    layer = randomised(GPSA(12, heads, ndim=len(grid), qkv_bias=True), 0.2).double()
    x = torch.randn(2, int(torch.tensor(grid).prod()), 12, dtype=torch.float64)
    expected, mixed = dense_by_hand(layer, x, grid)
    torch.testing.assert_close(layer(x, grid), expected, rtol=1e-10, atol=1e-10)
    maps = layer.attention(x, grid)
    torch.testing.assert_close(maps.mixed, mixed, rtol=1e-10, atol=1e-10)
    for rows in (maps.content, maps.position, maps.mixed):
        torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))


@pytest.mark.parametrize("heads", [4, 9, 16])
def test_a_fresh_layer_starts_where_timms_does(heads):
    ours, theirs = GPSA(48 * heads, heads), TimmGPSA(48 * heads, heads)
    theirs.local_init()
    torch.testing.assert_close(ours.pos_proj.weight, theirs.pos_proj.weight)
    torch.testing.assert_close(ours.v.weight, theirs.v.weight)
    torch.testing.assert_close(ours.gating_param, theirs.gating_param)


def test_nine_strong_heads_with_open_gates_are_a_convolution():
    dim, grid = 18, (7, 6)
    layer = GPSA(dim, 9, locality_strength=60, gate_init=60).double()
    with torch.no_grad():
        layer.proj.weight.normal_()
    x = torch.randn(2, 42, dim, dtype=torch.float64)
    kernel = torch.zeros(dim, dim, 3, 3, dtype=torch.float64)
    for head, (row, column) in enumerate(torch.cartesian_prod(torch.arange(3), torch.arange(3))):
        channels = slice(2 * head, 2 * head + 2)  # W_val = I: head h carries its own channels
        kernel[:, channels, column, row] = layer.proj.weight[:, channels]
    image = x.mT.unflatten(-1, grid)
    expected = F.conv2d(image, kernel, layer.proj.bias, padding=1)
    found = layer(x, grid).mT.unflatten(-1, grid)
    torch.testing.assert_close(found[..., 1:-1, 1:-1], expected[..., 1:-1, 1:-1])


def test_the_grid_may_change_from_call_to_call():
    layer = randomised(GPSA(12, 4), 0.2).double()
    x = torch.randn(1, 24, 12, dtype=torch.float64)
    first = layer(x, (4, 6))
    other = layer(x, (6, 4))
    assert (first - other).abs().max() > 1e-3
    torch.testing.assert_close(layer(x, (4, 6)), first, rtol=0, atol=0)
    torch.testing.assert_close(first, dense_by_hand(layer, x, (4, 6))[0])


def test_nothing_of_size_patches_squared_is_made_forward_or_backward():
    layer, side = GPSA(8, 4), 24
    x = torch.randn(1, side * side, 8, requires_grad=True)
    with Largest() as seen:
        layer(x, (side, side)).sum().backward()
    assert seen.numel < side**4 / 4
    with Largest() as seen:
        layer.attention(x, (side, side))
    assert seen.numel >= side**4  # the probe sees a map when there is one


def test_every_parameter_gets_a_gradient_and_the_gradient_is_right():
    layer = randomised(GPSA(6, 3), 0.2).double()
    x = torch.randn(1, 6, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, (2, 3)), (x,))
    layer(x, (2, 3)).square().sum().backward()
    ours = {name: p.grad.clone() for name, p in layer.named_parameters()}
    assert all(gradient.abs().max() > 0 for gradient in ours.values())
    layer.zero_grad()
    dense_by_hand(layer, x, (2, 3))[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-9, atol=1e-9)


def test_attention_dropout_drops_entries_of_the_mixed_map():
    layer = randomised(GPSA(12, 4, attn_drop=0.5), 0.2)
    x = torch.randn(2, 9, 12)
    torch.manual_seed(1)
    found = layer.train()(x, (3, 3))
    torch.manual_seed(1)
    mixed = F.dropout(layer.attention(x, (3, 3)).mixed, 0.5)
    expected = layer.proj((mixed @ layer.values(x)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected)
    assert (found - layer.eval()(x, (3, 3))).abs().max() > 1e-3


def test_bfloat16_and_autocast_stay_close_to_float32():
    layer = randomised(GPSA(36, 9), 0.2).eval()
    x = torch.randn(2, 48, 36)
    exact = layer(x, (6, 8))
    with torch.autocast("cpu", torch.bfloat16):
        assert (layer(x, (6, 8)) - exact).abs().max() < 0.1
    half = layer.to(torch.bfloat16)(x.bfloat16(), (6, 8))
    assert half.dtype == torch.bfloat16
    assert (half.float() - exact).abs().max() < 0.2


def test_ungated_attention_sums_the_scores_before_one_softmax():
    layer = randomised(PSA(12, 3), 0.2).double()
    x = torch.randn(2, 12, 12, dtype=torch.float64)
    maps = layer.attention(x, (3, 4))
    product = maps.content * maps.position  # softmax(a + b) is proportional to both factors
    torch.testing.assert_close(maps.mixed, product / product.sum(-1, keepdim=True))
    expected = layer.proj((maps.mixed @ layer.values(x)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, (3, 4)), expected)
    assert maps.gate is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GPSA(10, 4), "10 cannot be split over 4 heads"),
        (lambda: GPSA(8, 4)(torch.zeros(1, 10, 8)), "10 patches do not form a square"),
        (lambda: GPSA(8, 4)(torch.zeros(1, 10, 8), (3, 3)), "does not hold 10 patches"),
        (lambda: GPSA(8, 4, ndim=3)(torch.zeros(1, 9, 8), (3, 3)), "in 3 dimensions"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(make, says):
    with pytest.raises(UserError, match=says):
        make()
