"""Eigenvalues of largest magnitude of a symmetric matrix known only by its products.

Block Lanczos with full orthogonalisation and thick restarts (Golub & Underwood 1977, Wu & Simon
2000): from a block of k vectors V the space span{V, HV, H^2 V, ...} is built one block at a time,
and the eigenvalues of H projected onto it (Ritz values) are looked at after each. A Ritz value θ
with its vector x, |x| = 1, has an eigenvalue within r, and about within err (Parlett, The Symmetric
Eigenvalue Problem, 1998, 10-5 and 11-7):

    r = |Hx - θx|,      err = min(r, r^2 / gap),

with gap the distance to the nearest other Ritz value. The search ends when the k wanted have a
small r and no other can still reach in by its err.

An eigenvalue that occurs m times is found as often as the block has independent parts in its
eigenspace: a block of k random vectors finds all copies that are asked for, one start vector finds
one until rounding brings in the next. Of 20 rotations of the spectrum (3, 3, 3, -2, -2, 1.5, bulk)
with 600 weights, at tolerance 1e-3, one vector lost copies in 20 (22 products), the block in none
(42). That safety costs products: five eigenvalues of a small ViT's Hessian (24 thousand weights,
tolerance 0.03, errors near 0.1 %) took 16 products from one vector and 40 to 45 from a block.
``eigsh`` with a second run that looks for copies took 54, to a far smaller error.

Each product also shows its own rounding, as the asymmetry q_i.Hq_j against q_j.Hq_i: that ``noise``
is part of every residual and error.

Shapes: n weights, k wanted, p vectors of a block, j vectors in the basis.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitascope.errors import UserError

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Eigenpairs:
    """Eigenvalues and eigenvectors by falling magnitude, with their residuals."""

    values: np.ndarray  # (k,)
    vectors: Tensor  # (k, n), rows of length one
    residuals: np.ndarray  # (k,) |Hx - θx| by the recurrence, noise included
    errors: np.ndarray  # (k,) estimates of how far the eigenvalue is, noise included
    converged: bool
    products: int


def orthogonal(w: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """``w`` without its part in the rows of ``basis``, and that part's coordinates.

    What cancels leaves rounding behind, so it is done twice, which is enough. ``w`` is (n,) or
    (p, n), its coordinates (j,) or (p, j).
    """
    overlaps = w @ basis.T
    w = w - overlaps @ basis
    again = w @ basis.T
    return w - again @ basis, overlaps + again


def error_bounds(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """``min(r, r^2 / gap)`` of every Ritz value.

    >>> error_bounds(np.array([3.0, 1.0]), np.array([0.2, 4.0])).round(3).tolist()
    [0.02, 4.0]
    """
    apart = np.abs(values[:, None] - values[None, :])
    np.fill_diagonal(apart, np.inf)
    gap = apart.min(1) if len(values) > 1 else np.zeros(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sharp = np.where(residuals > 0, residuals**2 / gap, 0.0)
    return np.fmin(residuals, sharp)


def settled(values: np.ndarray, residuals: np.ndarray, k: int, tolerance: float) -> bool:
    """Return whether the ``k`` Ritz values of largest magnitude have converged."""
    if len(values) <= k:
        return False
    converged = residuals[:k] <= tolerance * np.abs(values[:k])
    reach = np.abs(values[k:]) + error_bounds(values, residuals)[k:]
    return bool(converged.all() and (reach <= (1 + tolerance) * abs(values[k - 1])).all())


def _random(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    """Random rows of length one."""
    drawn = torch.randn(shape, generator=generator, dtype=like.dtype).to(like.device)
    return drawn / drawn.norm(dim=-1, keepdim=True)


def _append(basis: Tensor, old: int, rows: Tensor, least: float, fresh: torch.Generator) -> None:
    """Orthonormal directions of ``rows`` after the first ``old`` of the basis.

    The rows are orthogonal to those of old up to rounding, which is divided by their lengths: the
    block is made orthogonal to them once more, as a whole. A row that brings nothing longer than
    ``least`` is replaced by a random direction: in an invariant subspace, the search continues
    outside it.
    """
    new = range(old, old + len(rows))
    for j, row in zip(new, rows, strict=True):
        w = orthogonal(row, basis[old:j])[0]
        if float(w.norm()) <= least:
            w = orthogonal(_random(row.shape, row, fresh), basis[:j])[0]
        basis[j] = w / w.norm()
    block = basis[old : new.stop]
    block[:] = orthogonal(block, basis[:old])[0]
    for j in new:
        w = orthogonal(basis[j], basis[old:j])[0]
        basis[j] = w / w.norm()


def largest(
    product: Product,
    near: Tensor,
    k: int,
    *,
    tolerance: float = 1e-3,
    max_products: int = 500,
    basis_size: int = 32,
    seed: int = 0,
) -> Eigenpairs:
    """The ``k`` eigenvalues of largest magnitude of the symmetric matrix behind ``product``.

    Args:
        product: v -> Hv, on vectors (n,).
        near: Up to k vectors (p, n) near the wanted space, which save products; they are mixed with
            random ones, and random ones make up the block. Zeros do no harm.
        k: How many, at most n.
        tolerance: Residual, relative to its magnitude, at which an eigenvalue counts as found.
        max_products: At most so many; the result says when it has not converged by then.
        basis_size: Vectors kept at most (n numbers each), at least 3k: more memory, fewer products.
        seed: Of the random directions.
    """
    n = near.shape[-1]
    if not 1 <= k <= n:
        raise UserError(f"{k} eigenvalues asked of a matrix of size {n}: give 1 to {n}")
    if max_products < k:
        raise UserError(f"max_products is {max_products}: {k} eigenvalues need at least {k}")
    size = min(n, max(basis_size, 3 * k))
    basis = near.new_empty(size, n)
    matrix = np.zeros((size, size))  # q_i.Hq_j
    loose = np.zeros((size, k))  # what lies outside of the space, HQ - matrix Q = loose rest
    eps = torch.finfo(near.dtype).eps
    fresh = torch.Generator().manual_seed(seed)
    rest = _random((k, n), near, fresh)
    given = near[:k] / near[:k].norm(dim=1, keepdim=True).clamp_min(torch.finfo(near.dtype).tiny)
    rest[: len(given)] = given + 0.3 * rest[: len(given)]
    count, products, noise, scale = 0, 0, 0.0, 0.0
    while True:
        old, count = count, min(count + k, size)
        width = count - old
        _append(basis, old, rest[:width], 10 * eps * scale, fresh)
        block = basis[old:count]
        expected = loose[:old] @ (rest @ block.T).double().cpu().numpy()
        images = torch.stack([product(row) for row in block])
        products += width
        if not bool(torch.isfinite(images).all()):
            raise UserError("a product with the matrix is not finite; try float64")
        rest, overlaps = orthogonal(images, basis[:count])
        columns = overlaps.double().cpu().numpy().T  # (j, p)
        noise = max(noise, float(np.linalg.norm(columns[:old] - expected, axis=0).max()))
        columns[old:] = (columns[old:] + columns[old:].T) / 2
        matrix[:count, old:count], matrix[old:count, :count] = columns, columns.T
        loose[:count] = np.eye(count, k, -old)
        scale = float(np.abs(matrix[:count, :count]).max())

        values, vectors = np.linalg.eigh(matrix[:count, :count])
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
        outside = vectors.T @ loose[:count, :width]
        gram = (rest @ rest.T).double().cpu().numpy()
        residuals = np.sqrt(np.einsum("ip,pq,iq->i", outside, gram, outside).clip(0))
        if count == n:
            residuals[:] = 0.0  # nothing is outside
        done = count == n or settled(values, residuals, k, tolerance)
        if done or products + k > max_products:
            break
        if size < n and count + k > size:
            count = size // 2
            turn = torch.from_numpy(vectors[:, :count].T.copy()).to(basis)
            basis[:count] = turn @ basis[: len(values)]
            matrix[:count, :count] = np.diag(values[:count])
            loose[:count] = vectors[:, :count].T @ loose[: len(values)]
    turn = torch.from_numpy(vectors[:, :k].T.copy()).to(basis)
    seen = np.hypot(residuals[:k], noise)
    return Eigenpairs(
        values=values[:k],
        vectors=turn @ basis[:count],
        residuals=seen,
        errors=error_bounds(values, residuals)[:k] + noise,
        converged=done and bool((seen <= tolerance * np.abs(values[:k])).all()),
        products=products,
    )
