"""Density and trace against dense Hessians and known spectra."""

import numpy as np
import pytest
import torch
from torch import nn

from vitascope.errors import UserError
from vitascope.measure.curvature.density import (
    HessianDensity,
    density,
    hutch_plus_plus,
    quadrature,
    signs,
)
from vitascope.measure.curvature.products import HessianProducts


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))


def batch(size=8):
    return torch.randn(size, 1, 4, 4), torch.randint(0, 3, (size,))


def dense(model, pair, weight_decay=0.05):
    product = HessianProducts(model, [pair], weight_decay=weight_decay, dtype=torch.float64)
    return torch.stack([product(row) for row in torch.eye(product.size, dtype=torch.float64)])


def diagonal(values):
    entries = torch.as_tensor(np.asarray(values))
    return lambda v: entries * v


def test_quadrature_is_exact_for_polynomials_up_to_its_degree():
    values, start = np.linspace(-1, 2, 60), torch.randn(60, dtype=torch.float64)
    nodes, weights = quadrature(diagonal(values), start, 4)
    shares = start.numpy() ** 2 / float(start @ start)
    for power in range(8):  # 2 m - 1 = 7
        assert (weights * nodes**power).sum() == pytest.approx((shares * values**power).sum())
    assert (weights * nodes**8).sum() != pytest.approx((shares * values**8).sum(), rel=1e-6)


def test_many_probes_converge_to_the_dense_spectrum_within_their_error_bars():
    matrix = dense(network(), batch())
    values = torch.linalg.eigvalsh(matrix).numpy()
    generator, product = torch.Generator().manual_seed(0), lambda v: matrix @ v
    pairs = [quadrature(product, signs(matrix[0], generator), 60) for _ in range(80)]
    nodes, weights = (np.stack(part) for part in zip(*pairs, strict=True))
    sizes = {"num_weights": len(values), "num_images": 8, "products": 4800, "settings": {}}
    found = HessianDensity(nodes=nodes, weights=weights, trace=0.0, trace_error=0.0, **sizes)
    for bound in (-0.3, 0.0, 0.04, 0.06, 0.4):
        share, error = found.below(bound)
        assert 0 < error < 0.02
        assert abs(share - (values < bound).mean()) < 4 * error
    grid, width = np.linspace(-0.5, 1.0, 9), 0.1
    curve, error = found.density(grid, width)
    bumps = np.exp(-(((grid[:, None] - values) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    assert (np.abs(curve - bumps.mean(1)) < 4 * error).all()


def test_the_moments_of_a_network_are_those_of_its_dense_hessian():
    model, pair = network(), batch()
    values = torch.linalg.eigvalsh(dense(model, pair)).numpy()
    found = density(model, [pair], num_probes=40, num_steps=2, dtype=torch.float64)
    for power in (1, 2, 3):
        moment, error = found.moment(power)
        assert 0 < error < abs(moment)
        assert abs(moment - (values**power).mean()) < 4 * error


def test_the_trace_converges_to_the_dense_one_and_knows_its_error():
    model, pair = network(), batch()
    exact = float(dense(model, pair).trace())
    rough, fine = (
        density(model, [pair], num_probes=p, num_steps=1, dtype=torch.float64) for p in (4, 24)
    )
    assert abs(rough.trace - exact) < 5 * rough.trace_error
    assert abs(fine.trace - exact) < 5 * fine.trace_error
    assert fine.trace_error < rough.trace_error / 4


def test_hutch_plus_plus_is_exact_on_low_rank_where_hutchinson_is_not():
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(200, 3, dtype=torch.float64)
    product, like = lambda v: factor @ (factor.T @ v), factor[:, 0]
    trace, error = hutch_plus_plus(product, like, 6, generator)
    exact = float(factor.square().sum())
    assert trace == pytest.approx(exact, rel=1e-9)
    assert error < 1e-9 * exact
    plain = [float(v @ product(v)) for v in (signs(like, generator) for _ in range(18))]
    assert abs(np.mean(plain) - exact) > 1e-3 * exact


def test_hutch_plus_plus_is_unbiased():
    values = np.linspace(-1, 3, 80)
    drawn = [
        hutch_plus_plus(diagonal(values), torch.zeros(80).double(), 4, generator)[0]
        for generator in (torch.Generator().manual_seed(seed) for seed in range(300))
    ]
    error = np.std(drawn) / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - values.sum()) < 4 * error


def test_weight_decay_shifts_the_density_by_itself():
    model, pair = network(), batch()
    options = {"num_probes": 3, "num_steps": 8, "dtype": torch.float64}
    plain = density(model, [pair], weight_decay=0.0, **options)
    shifted = density(model, [pair], weight_decay=0.3, **options)
    np.testing.assert_allclose(shifted.nodes, plain.nodes + 0.3, atol=1e-9)
    np.testing.assert_allclose(shifted.weights, plain.weights, atol=1e-9)


def test_the_seed_brings_the_same_density_back_and_its_record_holds_it():
    model, pair = network(), batch()
    one, two = (density(model, [pair], num_probes=3, num_steps=5) for _ in range(2))
    assert isinstance(one, HessianDensity)
    assert np.array_equal(one.nodes, two.nodes)
    assert one.trace == two.trace
    record = one.to_record()
    assert record.kind == "density"
    assert record.arrays["weights"].sum(1) == pytest.approx(1.0)
    assert record.values["products"] == 3 * 5 + 3 * 3


def test_error_bars_need_two_probes():
    with pytest.raises(UserError, match="at least 2 probes"):
        density(network(), [batch()], num_probes=1)
