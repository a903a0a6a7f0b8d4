"""Density of all eigenvalues of the Hessian, and its trace.

Stochastic Lanczos quadrature (Ghorbani et al. 2019, https://arxiv.org/abs/1901.10159, after Golub &
Welsch): m Lanczos steps from a random direction v give nodes θ_i and weights ω_i with

    v' f(H) v = sum_i ω_i f(θ_i)      exactly for polynomials f up to degree 2m - 1,

and the mean over directions is the density of the spectrum, 1/n sum_j δ(λ - λ_j). Error bars come
from the spread over directions; that m steps smear sharp features is not in them.

The trace is by Hutch++ (Meyer et al. 2021, https://arxiv.org/abs/2010.09649): exact on the range Q
of a few products, random on the rest,

    tr H = tr Q'HQ + (n - P) E[ u'Hu ],      Q = orth(H S),  u uniform on the unit sphere next to Q,

whose error falls as 1/P; Hutchinson's (n times the density's mean) falls as 1/sqrt(P). Since all
directions have one length, a multiple of the identity, as the l2 term is, adds no error to either.

Shapes: n weights, P probes (random directions), m Lanczos steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.curvature.eigenvalues import Product, orthogonal
from vitascope.measure.curvature.objective import fixed_batches
from vitascope.measure.curvature.products import HessianProducts
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["HessianDensity", "density", "hutch_plus_plus", "quadrature"]


@dataclass(frozen=True, kw_only=True)
class HessianDensity(InstrumentResult, kind="density"):
    """Nodes and weights of every probe; each row of weights sums to 1."""

    nodes: np.ndarray  # (P, m)
    weights: np.ndarray  # (P, m)
    num_weights: int  # n
    num_images: int
    trace: float  # by Hutch++
    trace_error: float  # its standard error
    products: int
    settings: dict[str, Any]

    def moment(self, power: int) -> tuple[float, float]:
        """Mean of λ^power over all eigenvalues, and its standard error."""
        return _mean((self.weights * self.nodes**power).sum(1))

    def below(self, bound: float) -> tuple[float, float]:
        """Share of the eigenvalues below a bound, and its standard error."""
        return _mean((self.weights * (self.nodes < bound)).sum(1))

    def density(self, grid: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues per unit, smoothed by a Gaussian of this width, and its standard error."""
        away = (np.asarray(grid)[:, None, None] - self.nodes) / width
        bumps = np.exp(-(away**2) / 2) / (width * np.sqrt(2 * np.pi))
        curves = (bumps * self.weights).sum(2)  # (grid, P)
        return curves.mean(1), curves.std(1, ddof=1) / np.sqrt(curves.shape[1])

    def summary(self) -> dict[str, Any]:
        """Return the share of negative eigenvalues."""
        return {"share_below_zero": self.below(0.0)}


def _mean(samples: np.ndarray) -> tuple[float, float]:
    """Mean and standard error."""
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples)))


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """A Rademacher vector: entries +1 or -1 at random. (n,)"""
    drawn = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.int8)
    return (2 * drawn - 1).to(like)


def quadrature(product: Product, start: Tensor, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights from ``start``, padded with 0 if the Krylov space ends early. (m,), (m,)

    >>> nodes, weights = quadrature(lambda v: 3 * v, torch.ones(4), 2)
    >>> nodes.round(5).tolist(), weights.round(5).tolist()
    ([3.0, 0.0], [1.0, 0.0])
    """
    basis = start.new_empty(steps, start.numel())
    matrix = np.zeros((steps, steps))
    direction, used = start / start.norm(), 0
    for j in range(steps):
        basis[j], used = direction, j + 1
        rest, overlaps = orthogonal(product(direction), basis[:used])
        matrix[:used, j] = matrix[j, :used] = overlaps.double().cpu().numpy()
        length = float(rest.norm())
        if length <= 10 * torch.finfo(start.dtype).eps * np.abs(matrix[:used, :used]).max():
            break
        direction = rest / length
    nodes, vectors = np.linalg.eigh(matrix[:used, :used])
    missing = steps - used
    return np.pad(nodes, (0, missing)), np.pad(vectors[0] ** 2, (0, missing))


def hutch_plus_plus(
    product: Product, like: Tensor, num_probes: int, generator: torch.Generator
) -> tuple[float, float]:
    """The trace by 3 x ``num_probes`` products, and its standard error."""
    sketch = torch.stack([product(signs(like, generator)) for _ in range(num_probes)])
    basis = torch.linalg.qr(sketch.T)[0].T  # (P, n)
    caught = float(sum((row @ product(row)).double() for row in basis))
    left = []
    for _ in range(num_probes):
        drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like)
        probe = orthogonal(drawn, basis)[0]
        probe = probe / probe.norm()
        left.append(float(probe @ product(probe)))
    rest = len(like) - len(basis)
    mean, error = _mean(np.array(left))
    return caught + rest * mean, rest * error


@checked
def density(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    num_probes: int = 8,
    num_steps: int = 40,
    weight_decay: float = 0.05,
    dtype: torch.dtype = torch.float32,
    batch_norm: str = "running",
    seed: int = 0,
) -> HessianDensity:
    """Density and trace of the Hessian of the mean loss over all batches.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, targets), augmented already; their graphs are all kept in memory.
        num_probes: Random directions, at least 2: the error bars come from their spread.
        num_steps: Lanczos steps from each; more resolve finer features.
        weight_decay: Of the l2 term, which shifts the density by itself.
        dtype: torch.float32 or torch.float64.
        batch_norm: ``"running"`` statistics, or each ``"batch"``'s own.
        seed: Of the directions.
    """
    if num_probes < 2 or num_steps < 1:
        raise UserError(
            f"{num_probes} probes of {num_steps} steps: give at least 2 probes and 1 step"
        )
    pairs = list(fixed_batches(batches, model))
    product = HessianProducts(
        model, pairs, weight_decay=weight_decay, dtype=dtype, batch_norm=batch_norm
    )
    steps, probes = min(num_steps, product.size), min(num_probes, max(2, product.size // 4))
    generator = torch.Generator().manual_seed(seed)
    like = product.gradient
    rules = [quadrature(product, signs(like, generator), steps) for _ in range(num_probes)]
    trace, error = hutch_plus_plus(product, like, probes, generator)
    return HessianDensity(
        nodes=np.stack([nodes for nodes, _ in rules]),
        weights=np.stack([weights for _, weights in rules]),
        num_weights=product.size,
        num_images=sum(len(images) for images, _ in pairs),
        trace=trace,
        trace_error=error,
        products=num_probes * steps + 3 * probes,
        settings={
            "num_probes": num_probes,
            "num_steps": num_steps,
            "weight_decay": weight_decay,
            "dtype": str(dtype).removeprefix("torch."),
            "batch_norm": batch_norm,
            "seed": seed,
        },
    )
