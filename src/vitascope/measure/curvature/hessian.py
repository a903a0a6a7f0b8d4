"""Largest Hessian eigenvalues of the loss: how curved and how convex is it at the weights?

The Hessian max-eigenvalue spectrum (Park & Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 1c and
4, appendices A.1 and C): for each mini-batch of augmented training images, the few eigenvalues of
largest magnitude of the Hessian of NLL + l2, all of them in one histogram p, and two numbers,

    NEP = int_{-inf}^0 p(λ) dλ,      APE = int_0^inf λ p(λ) dλ / int_0^inf p(λ) dλ,

the share below zero (how far from convex) and the mean of the positive ones (how sharp). At a
minimum of the loss over the batch itself NEP is 0.

Deviations. Block Lanczos (:mod:`~vitascope.measure.curvature.eigenvalues`) stands in for power
iteration with deflation: it needs fewer products, tells how far it got, finds repeated eigenvalues
as often as they occur, and does not stop short of an eigenvalue because its steps have become
small. The augmented batch is fixed first, then all its products see the same images;
:mod:`~vitascope.measure.curvature.objective` has the objective and its mode. Each batch starts from
the eigenvectors of the batch before it, so runs in parts agree with one run to the tolerance, not
to the last digit.

Shapes: b mini-batches, k eigenvalues of each, n weights.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.input_check import require_weights
from vitascope.errors import UserError
from vitascope.measure.curvature.eigenvalues import Eigenpairs, largest
from vitascope.measure.curvature.objective import fixed_batches
from vitascope.measure.curvature.products import HessianProducts
from vitascope.measure.curvature.resume import ResumeFile, fingerprint
from vitascope.measure.curvature.spectrum import HessianSpectrum
from vitascope.settings import checked

__all__ = ["HessianSpectrum", "eigenvectors", "hessian"]


def _checked(num_eigenvalues: int, tolerance: float, weight_decay: float, dtype: Any) -> None:
    if num_eigenvalues < 1:
        raise UserError(f"num_eigenvalues is {num_eigenvalues}: give at least 1")
    if not 0 < tolerance < 1:
        raise UserError(f"tolerance is {tolerance}: give a relative error between 0 and 1")
    if not 0 <= weight_decay < float("inf"):
        raise UserError(f"weight_decay is {weight_decay}: give 0 or more")
    if dtype not in (torch.float32, torch.float64):
        raise UserError(f"dtype is {dtype}: give torch.float32 or torch.float64")


@checked
def hessian(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    num_eigenvalues: int = 5,
    weight_decay: float = 0.05,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float32,
    batch_norm: str = "running",
    max_products: int = 500,
    basis_size: int = 32,
    seed: int = 0,
    warm_start: bool = True,
    first_batch: int = 0,
    resume: str | Path | None = None,
    on_batch: Callable[[int], object] = lambda number: None,
) -> HessianSpectrum:
    """The eigenvalues of largest magnitude of the Hessian, mini-batch by mini-batch.

    Args:
        model: Any classifier; it is left unchanged. Weights that do not train do not count.
        batches: (images, targets), augmented already; targets are classes (B,) or probabilities
            (B, K). The paper takes 16 images per batch.
        num_eigenvalues: k of each mini-batch; 5 in the paper.
        weight_decay: Of the l2 term, which adds it to every eigenvalue; the paper's recipe has
            0.05.
        tolerance: Residual, relative to its magnitude, at which an eigenvalue counts as found; its
            error is smaller, often by far.
        dtype: float32 resolves about 1e-5 of the largest eigenvalue; or float64.
        batch_norm: ``"running"`` statistics, or each ``"batch"``'s own.
        max_products: Limit per batch; the result says which batches did not converge.
        basis_size: Vectors kept at most, n numbers each: lower it where memory is short.
        seed: Of the start vectors.
        warm_start: Start from the batch before.
        first_batch: Number of the first batch, where ``batches`` are one part of several;
            ``HessianSpectrum.merge`` joins the parts that several processes measured.
        resume: A file that keeps finished batches; a call with the same settings continues from it.
        on_batch: Called with each batch's number when it is done.
    """
    require_weights(model)
    _checked(num_eigenvalues, tolerance, weight_decay, dtype)
    settings = {
        "num_eigenvalues": num_eigenvalues,
        "weight_decay": weight_decay,
        "tolerance": tolerance,
        "dtype": str(dtype).removeprefix("torch."),
        "batch_norm": batch_norm,
        "max_products": max_products,
        "basis_size": basis_size,
        "seed": seed,
        "warm_start": warm_start,
        "weights": fingerprint(chain(model.parameters(), model.buffers())),
    }
    done = ResumeFile(resume, {**settings, "first_batch": first_batch})
    for number, (images, targets) in enumerate(fixed_batches(batches, model)):
        name = fingerprint([images, targets])
        if number < len(done.rows):
            if str(done.rows[number]["fingerprint"]) != name:
                raise UserError(
                    f"{resume} holds batch {first_batch + number} of other images; "
                    "give the same batches or another file"
                )
            continue
        product = HessianProducts(
            model,
            [(images, targets)],
            weight_decay=weight_decay,
            dtype=dtype,
            batch_norm=batch_norm,
        )
        _enough(num_eigenvalues, product.size)
        near = product.gradient[None]
        if warm_start and done.carry is not None:
            near = torch.from_numpy(done.carry).to(near)
        spectrum = largest(
            product,
            near,
            num_eigenvalues,
            tolerance=tolerance,
            max_products=max_products,
            basis_size=basis_size,
            seed=seed + first_batch + number,
        )
        row = {
            "eigenvalues": spectrum.values,
            "residuals": spectrum.residuals,
            "errors": spectrum.errors,
            "converged": spectrum.converged,
            "products": spectrum.products,
            "loss": product.loss,
            "batches": first_batch + number,
            "num_images": len(images),
            "fingerprint": name,
        }
        done.add(row, spectrum.vectors.cpu().numpy() if warm_start else None)
        on_batch(first_batch + number)
    columns = done.columns()
    del columns["fingerprint"]
    return HessianSpectrum(**columns, settings=settings)


def eigenvectors(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    num_eigenvalues: int = 2,
    weight_decay: float = 0.05,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float32,
    batch_norm: str = "running",
    seed: int = 0,
) -> tuple[Eigenpairs, list[dict[str, Tensor]]]:
    """Top eigenpairs of the Hessian of the mean loss over all batches, vectors by weight's name.

    The batches' graphs are all kept in memory.
    """
    _checked(num_eigenvalues, tolerance, weight_decay, dtype)
    pairs = list(fixed_batches(batches, model))
    product = HessianProducts(
        model, pairs, weight_decay=weight_decay, dtype=dtype, batch_norm=batch_norm
    )
    _enough(num_eigenvalues, product.size)
    near = product.gradient[None]
    spectrum = largest(product, near, num_eigenvalues, tolerance=tolerance, seed=seed)
    return spectrum, [product.parts(vector) for vector in spectrum.vectors]


def _enough(num_eigenvalues: int, size: int) -> None:
    if num_eigenvalues > size:
        raise UserError(
            f"{num_eigenvalues} eigenvalues asked of {size} weights: give at most {size}"
        )
