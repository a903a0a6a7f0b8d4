"""What must hold of positional attention in any dimension."""

import pytest
import torch

from vitascope.layers.positions import (
    apply_windows,
    axis_windows,
    convolutional_weight,
    dense_score,
    kernel_offsets,
)


def dense_by_hand(weight, grid):
    """softmax_j(v . r_ij) from the definition, one pair of patches at a time."""
    places = torch.cartesian_prod(*[torch.arange(n, dtype=torch.float64) for n in grid])
    places = places.reshape(-1, len(grid))
    delta = places[None] - places[:, None]  # key minus query
    r = torch.cat([delta.flip(-1), delta.square().sum(-1, keepdim=True)], dim=-1)
    return torch.einsum("ijp,hp->hij", r, weight).softmax(dim=-1)


@pytest.mark.parametrize("grid", [(7,), (4, 6), (5, 5), (1, 9), (3, 2, 4)])
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_windows_are_the_dense_softmax_in_any_dimension(grid, heads):
    weight = torch.randn(heads, len(grid) + 1, dtype=torch.float64) * 0.3
    values = torch.randn(2, heads, torch.tensor(grid).prod(), 5, dtype=torch.float64)
    expected = dense_by_hand(weight, grid) @ values
    found = apply_windows(axis_windows(weight, grid), values, grid)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    dense = dense_score(weight, grid).softmax(dim=-1)
    torch.testing.assert_close(dense, dense_by_hand(weight, grid), rtol=1e-12, atol=1e-12)


def test_windows_hold_no_numbers_that_slow_a_processor_down():
    for window in axis_windows(convolutional_weight(9).float(), (32, 32)):
        positive = window[window > 0]
        assert positive.min() > torch.finfo(torch.float32).tiny
        torch.testing.assert_close(window.sum(-1), torch.ones(9, 32))


def test_half_precision_weights_are_widened_before_distances_are_squared():
    weight = torch.tensor([[0.1, 0.2, -0.01]])
    narrow = axis_windows(weight.bfloat16(), (64, 64))[0]
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, axis_windows(weight.bfloat16().float(), (64, 64))[0])


def test_nine_heads_take_the_nine_offsets_of_a_kernel():
    offsets = kernel_offsets(9)
    assert {tuple(offset) for offset in offsets.tolist()} == {
        (y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)
    }
    assert offsets[1].tolist() == [0, -1]  # the first axis varies fastest


@pytest.mark.parametrize("heads", range(1, 18))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_any_number_of_heads_has_distinct_offsets_near_the_middle(heads, ndim):
    offsets = kernel_offsets(heads, ndim)
    assert offsets.shape == (heads, ndim)
    assert len({tuple(offset) for offset in offsets.tolist()}) == heads
    assert offsets.abs().max() <= heads / 2


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_strong_head_looks_at_its_offset(ndim):
    heads, grid = 3**ndim, (5,) * ndim
    weight = convolutional_weight(heads, ndim, locality_strength=50)
    dense = dense_score(weight, grid).softmax(dim=-1)
    middle = torch.tensor(grid).prod() // 2
    for offset, row in zip(kernel_offsets(heads, ndim), dense[:, middle], strict=True):
        place = torch.tensor(torch.unravel_index(row.argmax(), grid))
        assert row.max() > 0.999
        assert (place - 2).tolist() == offset.tolist()
