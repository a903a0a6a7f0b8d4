"""Eigenvalues of largest magnitude of a symmetric matrix known only by its products.

Lanczos with full orthogonalisation and thick restarts (Wu & Simon 2000): from a start vector v the
space span{v, Hv, H^2 v, ...} is built one product at a time, and the eigenvalues of H projected
onto it (Ritz values) are looked at after each. The search ends when the k wanted are known well
enough and no other can still reach in (:mod:`~vitascope.measure.ritz`).

Each product also shows its own rounding, as the asymmetry q_i.Hq_j against q_j.Hq_i: that ``noise``
is part of every residual and error.

One start vector finds one vector of a repeated eigenvalue. When the space closes early (then H has
few distinct eigenvalues), or with ``multiple=True``, fresh random directions follow until one
brings nothing new. Blocks of two vectors needed a third more products on the benchmark's network.

Shapes: n weights, k wanted, m vectors in the basis, j of them in use.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitascope.errors import UserError
from vitascope.measure.ritz import error_bounds, settled

__all__ = ["Eigenpairs", "largest", "orthogonal"]

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Eigenpairs:
    """What was found, by falling magnitude, and how well."""

    values: np.ndarray  # (k,)
    vectors: Tensor  # (k, n), rows of length one
    residuals: np.ndarray  # (k,) |Hx - θx| by the recurrence, noise included
    errors: np.ndarray  # (k,) estimates of how far the eigenvalue is, noise included
    converged: bool
    products: int


def orthogonal(w: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """``w`` without its part in the rows of ``basis``, and that part's coordinates. (n,), (j,)"""
    before, found = w.norm(), basis @ w
    w = w - found @ basis
    if w.norm() < 0.7 * before:  # what cancels leaves rounding behind: twice is enough
        again = basis @ w
        w, found = w - again @ basis, found + again
    return w, found


class _Space:
    """An orthonormal basis with the matrix projected onto it."""

    def __init__(self, product: Product, start: Tensor, size: int):
        self.product, self.size = product, size
        self.basis = start.new_empty(size, start.numel())  # (m, n)
        self.matrix = np.zeros((size, size))
        self.loose = np.zeros(size)  # length of each Hq that lies outside of the space
        self.expected = np.zeros(size)  # q_i.Hq of the next q, known from Hq_i
        self.count = self.products = 0
        self.noise = 0.0

    def grow(self, direction: Tensor) -> None:
        """One product: with ``direction``, of length one and orthogonal to the space."""
        j = self.count
        self.basis[j] = direction
        image = self.product(direction)
        self.products += 1
        if not bool(torch.isfinite(image).all()):
            raise UserError("a product with the matrix is not finite; try float64")
        self.rest, found = orthogonal(image, self.basis[: j + 1])
        column = found.double().cpu().numpy()
        if not self.loose[:j].any():  # only then is it known what to expect
            self.noise = max(self.noise, float(np.linalg.norm(column[:j] - self.expected[:j])))
        self.matrix[: j + 1, j] = self.matrix[j, : j + 1] = column
        self.loose[j] = float(self.rest.norm())
        self.count += 1

    def solve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ritz values by falling magnitude (j,), their coordinates (j, j), residuals (j,)."""
        values, vectors = np.linalg.eigh(self.matrix[: self.count, : self.count])
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
        return values, vectors, np.abs(vectors.T) @ self.loose[: self.count]

    def close(self) -> bool:
        """Whether the last product brought nothing: the space then maps onto itself."""
        scale = np.abs(self.matrix[: self.count, : self.count]).max()
        eps = torch.finfo(self.basis.dtype).eps
        closed = bool(self.loose[self.count - 1] <= 10 * eps * scale)
        if closed:
            self.loose[self.count - 1] = 0.0
        return closed

    def onward(self) -> Tensor:
        """The Krylov direction: what the last product brought."""
        self.expected[: self.count] = 0.0
        last = self.count - 1
        self.expected[last], self.loose[last] = self.loose[last], 0.0
        return self.rest / self.expected[last]

    def aside(self, generator: torch.Generator) -> Tensor:
        """A random direction out of the space; what the last product brought stays loose."""
        self.expected[: self.count] = 0.0
        fresh = torch.randn(self.rest.shape, generator=generator, dtype=self.rest.dtype)
        fresh = fresh.to(self.rest.device)
        for _ in range(2):
            fresh = orthogonal(fresh / fresh.norm(), self.basis[: self.count])[0]
        return fresh / fresh.norm()

    def shrink(self, keep: int) -> None:
        """Restart from the Ritz vectors of largest magnitude; the next direction stays known."""
        values, vectors, _ = self.solve()
        vectors = vectors[:, :keep]
        self.expected[:keep] = vectors.T @ self.expected[: self.count]
        self.loose[:keep] = np.abs(vectors.T) @ self.loose[: self.count]
        turn = torch.from_numpy(vectors.T.copy()).to(self.basis)
        self.basis[:keep] = turn @ self.basis[: self.count]
        self.matrix[:keep, :keep] = np.diag(values[:keep])
        self.count = keep


def largest(
    product: Product,
    start: Tensor,
    k: int,
    *,
    tolerance: float = 1e-3,
    max_products: int = 500,
    basis_size: int = 32,
    multiple: bool = False,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """The ``k`` eigenvalues of largest magnitude of the symmetric matrix behind ``product``.

    Args:
        product: v -> Hv, on vectors like ``start``.
        start: Any vector (n,) that is not zero; one near the wanted space saves products.
        k: How many, at most n.
        tolerance: An eigenvalue is found when its residual is so small against its magnitude.
        max_products: Give up after so many; the result then says it has not converged.
        basis_size: Vectors kept at most (n numbers each): more memory, fewer products.
        multiple: Look for further vectors of repeated eigenvalues.
        generator: For the random directions.
    """
    n = start.numel()
    if not 1 <= k <= n:
        raise UserError(f"{k} eigenvalues asked of a matrix of size {n}: give 1 to {n}")
    if max_products < k:
        raise UserError(f"max_products is {max_products}: {k} eigenvalues need at least {k}")
    if not float(start.norm()) > 0:
        raise UserError("the start vector is zero or not finite")
    size = min(n, max(basis_size, k + 4))
    generator = generator or torch.Generator().manual_seed(0)
    space = _Space(product, start, size)
    direction, known, wait, since = start / start.norm(), None, 0, 0
    while True:
        space.grow(direction)
        values, vectors, residuals = space.solve()
        done = settled(values, residuals, k, tolerance)
        closed = space.close()
        if space.count == n or space.products >= max_products:
            break
        leave = closed
        if done and (closed or space.products - since >= wait):
            news = known is None or not np.allclose(values[:k], known, rtol=tolerance, atol=0)
            if not ((closed or multiple) and news):
                break
            leave, known, wait, since = True, values[:k], space.products - since, space.products
            if not closed:
                space.shrink(k)
        direction = space.aside(generator) if leave else space.onward()
        if space.count == size:
            space.shrink(min(size - 2, k + (size - k) // 2))
    turn = torch.from_numpy(vectors[:, :k].T.copy()).to(space.basis)
    residuals_seen = np.hypot(residuals[:k], space.noise)
    within = bool((residuals_seen <= tolerance * np.abs(values[:k])).all())
    return Eigenpairs(
        values=values[:k],
        vectors=turn @ space.basis[: space.count],
        residuals=residuals_seen,
        errors=error_bounds(values, residuals)[:k] + space.noise,
        converged=(done or space.count == n) and within,
        products=space.products,
    )
