"""What must hold of windowed self-attention."""

from functools import partial

import pytest
import torch
from timm.models.swin_transformer import WindowAttention as TimmWindowAttention
from timm.models.swin_transformer import window_partition, window_reverse

import model_making
from vitascope import capture
from vitascope.errors import UserError
from vitascope.layers.window import WindowAttention, into_windows, out_of_windows

randomised = partial(model_making.randomised, scale=0.5)

MAPS = [(8, 8), (4, 12), (7, 5), (9, 10), (3, 9), (2, 2), (1, 6), (5, 1), (1, 1)]


def dense_by_hand(layer, x):
    """Attention over all places of the map, with everything outside the window masked."""
    batch, _, height, width = x.shape
    places = torch.cartesian_prod(torch.arange(height), torch.arange(width))  # (N, 2)
    sides = torch.tensor([min(layer.window, height), min(layer.window, width)])
    windows = places // sides
    together = (windows[:, None] == windows[None]).all(-1)
    offset = (places[:, None] - places[None]).clamp(1 - layer.window, layer.window - 1)
    rows, columns = (offset + layer.window - 1).unbind(-1)
    bias = layer.position_bias[:, rows, columns].expand(layer.num_heads, -1, -1)  # (H, N, N)
    tokens = x.flatten(2).mT
    qkv = layer.qkv(tokens).reshape(batch, height * width, 3, layer.num_heads, layer.head_dim)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    scores = query @ key.mT / layer.head_dim**0.5 + bias
    weights = scores.masked_fill(~together, -torch.inf).softmax(-1)
    out = layer.proj((weights @ value).transpose(1, 2).flatten(2))
    return out.mT.unflatten(2, (height, width))


@pytest.mark.parametrize("size", MAPS)
@pytest.mark.parametrize("bias_per_head", [True, False])
def test_it_equals_dense_masked_attention_on_any_map_with_its_gradients(size, bias_per_head):
    layer = WindowAttention(
        6, 3, 4, head_dim=5, dim_out=7, bias_per_head=bias_per_head, qkv_bias=True
    )
    layer = randomised(layer).double()
    x = torch.randn(2, 6, *size, dtype=torch.float64, requires_grad=True)
    found, expected = layer(x), dense_by_hand(layer, x)
    assert found.shape == (2, 7, *size)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(found)
    parts = (x, *layer.parameters())
    ours = torch.autograd.grad((found * weight).sum(), parts)
    theirs = torch.autograd.grad((expected * weight).sum(), parts)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_it_equals_timms_swin_by_copied_weights():
    theirs = randomised(TimmWindowAttention(12, 3, window_size=4)).double()
    ours = WindowAttention(12, 3, 4, qkv_bias=True).double()
    state = theirs.state_dict()
    table = state.pop("relative_position_bias_table")  # (offsets, heads)
    state["position_bias"] = table.mT.reshape(3, 7, 7)
    ours.load_state_dict(state)
    x = torch.randn(2, 12, 8, 12, dtype=torch.float64)
    windows = window_partition(x.permute(0, 2, 3, 1), (4, 4)).flatten(1, 2)
    expected = window_reverse(theirs(windows).unflatten(1, (4, 4)), (4, 4), 8, 12)
    torch.testing.assert_close(ours(x), expected.permute(0, 3, 1, 2), rtol=1e-10, atol=1e-10)


def test_windows_are_put_back_where_they_were_cut():
    x = torch.randn(2, 3, 6, 8)
    windows = into_windows(x, (3, 2))
    assert windows.shape == (2 * 2 * 4, 6, 3)
    torch.testing.assert_close(windows[1], x[0, :, :3, 2:4].flatten(1).mT)
    torch.testing.assert_close(out_of_windows(windows, (3, 2), (6, 8)), x)


@pytest.mark.parametrize("size", MAPS)
def test_a_constant_map_stays_constant_whatever_the_padding(size):
    layer = randomised(WindowAttention(4, 2, 4, qkv_bias=True))
    out = layer(torch.randn(4)[None, :, None, None].expand(1, -1, *size))
    torch.testing.assert_close(out, out[:, :, :1, :1].expand_as(out))


def test_padding_is_never_looked_at():
    layer = randomised(WindowAttention(4, 2, 4))
    with capture.attention(layer) as maps:
        layer(torch.randn(1, 4, 5, 6))
    (weights,) = maps.values()
    assert weights.shape == (4, 2, 16, 16)
    there = into_windows(torch.nn.functional.pad(torch.ones(1, 1, 5, 6), (0, 2, 0, 3)), (4, 4))
    there = (there[..., 0] > 0)[:, None, None].expand_as(weights)
    assert (weights[~there] == 0).all()
    assert (weights[there] > 0).all()


def test_a_map_smaller_than_the_window_uses_the_middle_of_the_table():
    layer = randomised(WindowAttention(4, 2, 7))
    layer(torch.randn(2, 4, 2, 3)).square().sum().backward()
    used = layer.position_bias.grad != 0
    assert used[:, 5:8, 4:9].all()
    assert used.sum() == 2 * 3 * 5


def test_it_moves_with_the_map_by_whole_windows():
    layer = randomised(WindowAttention(4, 2, 4))
    x = torch.randn(1, 4, 8, 12)
    moved = layer(x.roll((4, 8), (2, 3)))
    torch.testing.assert_close(moved, layer(x).roll((4, 8), (2, 3)))
    assert not torch.allclose(layer(x.roll(1, 3)), layer(x).roll(1, 3), atol=1e-2)


def test_dropout_acts_in_training_alone():
    layer = randomised(WindowAttention(4, 2, 4, attn_drop=0.5))
    x = torch.randn(1, 4, 4, 4)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    torch.testing.assert_close(layer(x), dense_by_hand(layer, x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_stays_finite_and_near(dtype):
    layer = randomised(WindowAttention(8, 2, 4))
    x = torch.randn(2, 8, 7, 5)
    found = layer.to(dtype)(x.to(dtype)).float()
    torch.testing.assert_close(found, layer.float()(x), rtol=0.1, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).isfinite().all()


@pytest.mark.parametrize(
    ("args", "says"),
    [((8, 2, 0), "1 or more"), ((8, 0), "1 or more"), ((8, 3), "give head_dim=")],
)
def test_impossible_sizes_are_said(args, says):
    with pytest.raises(UserError, match=says):
        WindowAttention(*args)
