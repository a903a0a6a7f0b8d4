"""The eigen-solver on matrices whose spectrum is known."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from vitascope.errors import UserError
from vitascope.measure.curvature.eigenvalues import error_bounds, largest, orthogonal, settled


@lru_cache(maxsize=1)
def rotation_of(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]


def matrix(values, seed=0):
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    turn = rotation_of(len(values), seed)
    return (turn * torch.as_tensor(np.asarray(values, dtype=float))) @ turn.T


def top(values, k):
    return np.array(sorted(values, key=lambda value: -abs(value))[:k])


def found_in(values, k=5, dtype=torch.float64, rotation=0, **options):
    dense = matrix(values, rotation).to(dtype)
    return largest(lambda v: dense @ v, dense.new_zeros(1, len(values)), k, **options)


def bulk(n=300):
    return np.random.default_rng(0).normal(size=n)


def test_both_signs_are_found_by_magnitude_with_their_vectors():
    values = [*bulk(), 9.0, -8.0, 7.0, -6.5, 6.0]
    found = found_in(values, tolerance=1e-12)
    np.testing.assert_allclose(found.values, [9.0, -8.0, 7.0, -6.5, 6.0], rtol=1e-11)
    assert found.converged
    images = found.vectors @ matrix(values)
    expected = torch.from_numpy(found.values)[:, None] * found.vectors
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("basis_size", [20, 40])
def test_restarts_find_what_one_long_run_finds(basis_size):
    values = bulk(400)
    found = found_in(values, tolerance=1e-9, basis_size=basis_size, max_products=2000)
    np.testing.assert_allclose(found.values, top(values, 5), rtol=1e-8)
    assert found.products > basis_size  # it had to restart
    assert found.converged


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_an_eigenvalue_lies_within_the_residual_of_each_found(tolerance):
    for seed in range(5):
        values = np.random.default_rng(seed).standard_t(df=3, size=300)
        found = found_in(values, tolerance=tolerance)
        away = np.abs(found.values[:, None] - values).min(1)
        assert found.converged
        assert (found.residuals <= tolerance * np.abs(found.values)).all()
        assert (away <= found.residuals + 1e-12).all()


def test_estimated_errors_cover_the_true_ones():
    values = [*bulk(), 9.0, -8.0, 7.0, -6.5, 6.0]
    for products in range(25, 45, 5):  # by then all five have come up
        found = found_in(values, tolerance=1e-12, max_products=products)
        away = np.abs(found.values[:, None] - np.array(values)).min(1)
        assert (away <= found.errors + 1e-12).all()
        assert (found.errors <= found.residuals + 1e-12).all()
    assert found.errors.max() < found.residuals.max() / 2  # and they are the sharper ones


def test_a_looser_tolerance_needs_fewer_products():
    loose, tight = (found_in(bulk(), tolerance=t) for t in (1e-1, 1e-8))
    assert loose.products < tight.products


def test_a_matrix_of_few_distinct_eigenvalues_gives_them_as_often_as_they_occur():
    found = found_in([5, 5, -4, -4, -4, 3, *np.zeros(190)], tolerance=1e-10)
    np.testing.assert_allclose(np.sort(found.values), [-4, -4, -4, 5, 5], atol=1e-12)
    found = found_in(np.ones(50), k=3, tolerance=1e-10)
    np.testing.assert_allclose(found.values, 1.0, rtol=1e-12)


REPEATED = {
    "nothing beside them": ([3, 3, 3, -2, -2, 1], 0.0),
    "a bulk": ([3, 3, 3, -2, -2, 1.5], 0.35),
    "five of one": ([3, 3, 3, 3, 3, 1.5], 0.35),
    "nearly repeated": ([3, 3 + 1e-6, 3 - 1e-6, -2, -2 - 1e-6, 1.5], 0.35),
}


def copies_are_found(n, beside, dtype, tolerance, rotations):
    """In every rotation, to the error that a residual of the tolerance leaves."""
    tops, width = REPEATED[beside]
    for rotation in rotations:
        drawn = np.random.default_rng(rotation).normal(scale=width, size=n - len(tops))
        values = [*tops, *drawn.clip(-1.2, 1.2)]
        found = found_in(values, dtype=dtype, rotation=rotation, tolerance=tolerance, seed=rotation)
        assert found.converged
        error = np.abs(np.sort(found.values) - np.sort(top(values, 5))).max()
        assert error < max(1e-2 * tolerance, 1e-10), f"rotation {rotation}: {found.values}"


SETTINGS = [(torch.float64, 1e-9), (torch.float64, 1e-3), (torch.float32, 1e-3)]


@pytest.mark.parametrize("beside", REPEATED)
@pytest.mark.parametrize(("dtype", "tolerance"), SETTINGS)
def test_repeated_eigenvalues_are_found_as_often_as_they_occur(beside, dtype, tolerance):
    copies_are_found(66, beside, dtype, tolerance, range(20))
    copies_are_found(600, beside, dtype, tolerance, range(1))


@pytest.mark.slow
@pytest.mark.timeout(3600)  # by the clock, also on a busy machine
@pytest.mark.parametrize("n", [66, 600])
@pytest.mark.parametrize("beside", REPEATED)
def test_repeated_eigenvalues_are_found_in_a_thousand_rotations(n, beside):
    for rotation in range(1000):
        for dtype, tolerance in SETTINGS:
            copies_are_found(n, beside, dtype, tolerance, [rotation])


def test_a_start_near_the_wanted_space_saves_products_and_hides_no_copies():
    values = [*bulk(), 9, 9, 9, -8, -8, 7]
    cold = found_in(values)
    dense = matrix(values)
    for near in (cold.vectors, cold.vectors[:1], cold.vectors.mean(0).expand(5, -1)):
        warm = largest(lambda v: dense @ v, near, 5)
        np.testing.assert_allclose(np.sort(warm.values), [-8, -8, 9, 9, 9], rtol=1e-4)
    assert largest(lambda v: dense @ v, cold.vectors, 5).products < cold.products


def test_all_eigenvalues_of_a_small_matrix_can_be_had():
    values = [3.0, 3.0, -2.0, 1.0, 0.0, 0.0]
    found = found_in(values, k=6, tolerance=1e-10)
    np.testing.assert_allclose(np.sort(found.values), np.sort(values), atol=1e-13)


def test_a_search_that_is_cut_short_says_so():
    found = found_in(bulk(), tolerance=1e-6, max_products=14)
    assert not found.converged
    assert found.products == 10  # two blocks of five; a third would be too much
    assert (found.errors > 1e-6 * np.abs(found.values)).any()
    assert found_in(bulk(), k=5, max_products=5).values.shape == (5,)


def test_float32_does_not_claim_more_than_it_can_know():
    values = [*bulk(), 9.0, -8.0, 7.0, 6.5, -6.0]
    assert found_in(values, dtype=torch.float32, tolerance=1e-4).converged
    beyond = found_in(values, dtype=torch.float32, tolerance=1e-9)
    assert not beyond.converged
    assert (np.abs(beyond.values - top(values, 5)) <= beyond.errors).all()


def test_orthogonalising_twice_survives_cancellation():
    basis = torch.linalg.qr(torch.randn(500, 3))[0].T
    w = 1e6 * basis.sum(0) + torch.randn(500)
    rest, found = orthogonal(w, basis)
    assert (basis @ rest).abs().max() < 1e-3 * rest.norm()
    torch.testing.assert_close(found, basis @ w)


def test_bounds_use_the_gap_only_where_it_helps():
    values, residuals = np.array([10.0, 5.0, 4.99]), np.array([0.1, 0.1, 0.1])
    np.testing.assert_allclose(error_bounds(values, residuals), [0.01 / 5.0, 0.1, 0.1])


def test_a_value_that_may_still_reach_in_is_waited_for():
    values, residuals = np.array([3.0, 2.0, 1.9]), np.array([0.0, 0.0, 0.2])
    assert not settled(values, residuals, 2, 0.01)
    assert settled(values, residuals * 0.1, 2, 0.01)
    assert not settled(values[:2], residuals[:2], 2, 0.01)  # nothing known of the others


def test_impossible_questions_are_refused():
    dense = torch.eye(3)
    with pytest.raises(UserError, match="give 1 to 3"):
        largest(lambda v: dense @ v, torch.ones(1, 3), 4)
    with pytest.raises(UserError, match="need at least 2"):
        largest(lambda v: dense @ v, torch.ones(1, 3), 2, max_products=1)
    with pytest.raises(UserError, match="not finite"):
        largest(lambda v: v / 0, torch.ones(1, 3), 1)
