"""Attention over the k x k patches around each: exact, local, lean, and visible."""

import pytest
import torch
from timm.layers import Attention

from model_making import Largest
from vitascope import capture
from vitascope.errors import UserError
from vitascope.layers import NeighborhoodAttention
from vitascope.layers.neighbors import BLOCK, neighborhood_mask
from vitascope.layers.self_attention import SelfAttention

LARGE = (24, 27)  # more patches than two halos of k = 3 and 5: attended to in blocks


def layer_of(kernel_size, dim=12, heads=3, **kwargs):
    layer = NeighborhoodAttention(dim, heads, kernel_size=kernel_size, qkv_bias=True, **kwargs)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer.double().eval()


def window_by_hand(place, length, k, border):
    """The keys that one query sees along one axis, from the definition."""
    start = place - k // 2
    if border == "shift":
        start = max(0, min(start, length - k))
    return {j for j in range(start, start + k) if 0 <= j < length}


def mask_by_hand(grid, k, border, prefix):
    height, width = grid
    tokens = prefix + height * width
    sees = torch.ones(tokens, tokens, dtype=torch.bool)
    for y in range(height):
        for x in range(width):
            down = window_by_hand(y, height, k, border)
            across = window_by_hand(x, width, k, border)
            for v in range(height):
                for u in range(width):
                    seen = v in down and u in across
                    sees[prefix + y * width + x, prefix + v * width + u] = seen
    return sees


def dense_by_hand(layer, x, sees):
    batch, tokens, dim = x.shape
    q, k, v = layer.qkv(x).reshape(batch, tokens, 3, layer.num_heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-2, -1) / (dim / layer.num_heads) ** 0.5
    weights = scores.masked_fill(~sees, -torch.inf).softmax(-1)
    return layer.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, dim)), weights


@pytest.mark.parametrize("border", ["shift", "clip"])
@pytest.mark.parametrize("k", [1, 3, 5, 8])
@pytest.mark.parametrize("prefix", [0, 2])
def test_the_mask_is_the_definition(border, k, prefix):
    found = neighborhood_mask((5, 9), k, border=border, num_prefix_tokens=prefix)
    assert torch.equal(found, mask_by_hand((5, 9), k, border, prefix))


def test_shifted_windows_have_k_keys_a_side_and_clipped_ones_fewer_at_the_border():
    shifted = neighborhood_mask((9, 11), 4).sum(-1)
    assert (shifted == 16).all()
    clipped = neighborhood_mask((9, 11), 4, border="clip").sum(-1).view(9, 11)
    assert clipped[4, 5] == 16
    assert (clipped[0, 0], clipped[-1, -1]) == (4, 9)  # two before, one after


@pytest.mark.parametrize("border", ["shift", "clip"])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("k", [3, 5, 8])
@pytest.mark.parametrize("grid", [(5, 9), LARGE, (40, 17)])
def test_it_equals_dense_masked_attention(grid, k, prefix, border):
    layer = layer_of(k, border=border)
    x = torch.randn(2, prefix + grid[0] * grid[1], 12, dtype=torch.float64)
    sees = neighborhood_mask(grid, k, border=border, num_prefix_tokens=prefix)
    expected, weights = dense_by_hand(layer, x, sees)
    torch.testing.assert_close(layer(x, grid), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.attention(x, grid), weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grid", [(1, 450), (2, 200), (25, 25), (65, 9)])
def test_awkward_grids_are_cut_into_blocks_rightly(grid):
    layer = layer_of(7)
    x = torch.randn(1, 1 + grid[0] * grid[1], 12, dtype=torch.float64)
    sees = neighborhood_mask(grid, 7, num_prefix_tokens=1)
    torch.testing.assert_close(layer(x, grid), dense_by_hand(layer, x, sees)[0])


@pytest.mark.parametrize(("k", "border"), [(8, "shift"), (11, "shift"), (15, "clip")])
def test_a_kernel_that_covers_the_grid_is_global_attention_bit_for_bit(k, border):
    layer = layer_of(k, border=border).float()
    plain = SelfAttention(12, 3, qkv_bias=True).eval()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 65, 12)
    assert torch.equal(layer(x, (8, 8)), plain(x))


@pytest.mark.parametrize(("k", "border"), [(7, "shift"), (8, "clip"), (14, "clip")])
def test_a_kernel_that_misses_a_patch_is_not_global(k, border):
    layer, plain = layer_of(k, border=border), Attention(12, 3, qkv_bias=True).double().eval()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 64, 12, dtype=torch.float64)
    assert (layer(x, (8, 8)) - plain(x)).abs().max() > 1e-6


def test_a_far_patch_changes_only_those_that_see_it():
    layer = layer_of(5)
    x = torch.randn(1, LARGE[0] * LARGE[1], 12, dtype=torch.float64)
    moved = x.clone()
    moved[0, 10 * LARGE[1] + 13] += 1
    changed = (layer(moved, LARGE) - layer(x, LARGE)).abs().amax(-1).view(LARGE) > 0
    expected = torch.zeros(LARGE, dtype=torch.bool)
    expected[8:13, 11:16] = True
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("prefix", [0, 1])
def test_gradients_equal_those_of_dense_attention(prefix):
    layer = layer_of(3)
    x = torch.randn(2, prefix + LARGE[0] * LARGE[1], 12, dtype=torch.float64, requires_grad=True)
    target = torch.randn_like(x)
    leaves = {"x": x, **dict(layer.named_parameters())}
    loss = (layer(x, LARGE) * target).sum()
    ours = torch.autograd.grad(loss, list(leaves.values()))
    sees = neighborhood_mask(LARGE, 3, num_prefix_tokens=prefix)
    loss = (dense_by_hand(layer, x, sees)[0] * target).sum()
    dense = torch.autograd.grad(loss, list(leaves.values()))
    for name, found, expected in zip(leaves, ours, dense, strict=True):
        assert found.abs().max() > 0, name
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def largest(side, dim=24, k=3):
    layer = NeighborhoodAttention(dim, 3, kernel_size=k)
    x = torch.randn(1, 1 + side * side, dim, requires_grad=True)
    with Largest() as seen:
        layer(x, (side, side)).sum().backward()
    return seen.numel


def test_the_largest_tensor_grows_with_the_patches_and_not_with_their_square():
    small, large = largest(24), largest(48)
    assert large < 4.2 * small
    assert large < 48**4 / 16
    halo = (BLOCK + 2) ** 2 + 1
    assert large <= 48**2 * max(halo, 3 * 24)  # the mask of the blocks, or queries, keys and values


def test_dropout_bfloat16_and_autocast_run_in_blocks():
    layer = layer_of(3, attn_drop=0.5).float()
    x = torch.randn(2, 1 + LARGE[0] * LARGE[1], 12)
    exact = layer(x, LARGE)
    torch.manual_seed(0)
    dropped = layer.train()(x, LARGE)
    assert dropped.isfinite().all()
    assert (dropped - exact).abs().max() > 1e-2
    layer.eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert (layer(x, LARGE) - exact).abs().max() < 0.1
    half = layer.to(torch.bfloat16)(x.bfloat16(), LARGE)
    assert (half.float() - exact).abs().max() < 0.2


def test_second_derivatives_exist_on_the_math_path():
    layer = layer_of(3)
    x = torch.randn(1, LARGE[0] * LARGE[1], 12, dtype=torch.float64, requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        (first,) = torch.autograd.grad(layer(x, LARGE).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
    assert second.abs().max() > 0


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.attn = layer

    def forward(self, x):
        return self.attn(x, grid=LARGE)


def test_capture_sees_one_whole_map_and_leaves_the_output_alone():
    model = Net(layer_of(5))
    x = torch.randn(2, 1 + LARGE[0] * LARGE[1], 12, dtype=torch.float64)
    before = model(x)
    with capture.attention(model) as maps:
        watched = model(x)
    assert torch.equal(watched, before)
    assert list(maps) == ["attn"]
    sees = neighborhood_mask(LARGE, 5, num_prefix_tokens=1)
    torch.testing.assert_close(maps["attn"], dense_by_hand(model.attn, x, sees)[1])
    torch.testing.assert_close(maps["attn"].sum(-1), torch.ones_like(maps["attn"][..., 0]))
    assert (maps["attn"][:, :, ~sees] == 0).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NeighborhoodAttention(10, 4), "10 cannot be split over 4 heads"),
        (lambda: NeighborhoodAttention(8, 4, kernel_size=0), "1 patch a side"),
        (lambda: NeighborhoodAttention(8, 4, border="wrap"), "there are: shift, clip"),
        (lambda: NeighborhoodAttention(8, 4)(torch.zeros(1, 8, 8), (3, 3)), "8 tokens cannot hold"),
        (lambda: NeighborhoodAttention(8, 4)(torch.zeros(1, 8, 8), (8,)), "8 tokens cannot hold"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(make, says):
    with pytest.raises(UserError, match=says):
        make()
