"""Which units see the images alike?

Linear centred kernel alignment, with the unbiased HSIC_1 summed over minibatches before the
division (Nguyen et al. 2021; Park & Kim 2022, Fig. 10a and D.3):

    CKA(X, Y) = sum_b HSIC_1(K_b, L_b) / sqrt(sum_b HSIC_1(K_b, K_b) sum_b HSIC_1(L_b, L_b))
    HSIC_1(K, L) = [tr(K'L') + (1'K'1)(1'L'1)/((n-1)(n-2)) - 2/(n-2) 1'K'L'1] / (n(n-3))

with K = XX', L = YY', and K', L' their copies with a zero diagonal. 1 is the same geometry up to
rotation and scale; about 0 (a little below is possible) independent features. HSIC_1 is the inner
product of U-centred Grams, so all pairs of units are one matrix product a batch, in float64.

Deviations. Batches smaller than 4 and features that do not differ between images are refused:
released codes give NaN there. The features are what the network carries on after a unit, every
token flattened; ``at="unit"`` takes the unit's own output instead.

Shapes: n images in a batch, U and V units.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.batches import first_images, images_in
from vitascope.measure.over_units import chosen_units, observing
from vitascope.record import Record

__all__ = ["CKA", "cka", "u_centred"]


@dataclass(frozen=True)
class CKA:
    """Similarity of every unit of one model to every unit of the same or another."""

    similarity: np.ndarray  # (U, V)
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    num_images: int
    num_batches: int

    def to_record(self) -> Record:
        """Names as values, the matrix as an array."""
        values = {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "num_images": self.num_images,
            "num_batches": self.num_batches,
        }
        return Record(kind="cka", values=values, arrays={"similarity": self.similarity})


def u_centred(features: Tensor) -> Tensor:
    """The U-centred Gram matrix of (n, ...) features, flattened. (n * n,)

    Inner products of two, over n (n - 3), are HSIC_1. U-centring takes away what is common to all
    images; doing so first, on the features, keeps the digits.

    >>> u_centred(torch.eye(5)).reshape(5, 5).sum(0).abs().max().item() < 1e-12
    True
    """
    x = features.flatten(1).double()
    n = len(x)
    apart = x - x.mean(0)
    if not bool(torch.isfinite(apart).all()):
        raise ValueError("are not finite")
    if bool(apart.norm() <= 1e-6 * x.norm()):  # what float32 can tell apart
        raise ValueError("are the same for all images")
    gram = (apart @ apart.mT).fill_diagonal_(0)
    rows = gram.sum(0) / (n - 2)
    centred = gram - rows[:, None] - rows[None, :] + rows.sum() / (n - 1)
    return centred.fill_diagonal_(0).flatten()


class _Side:
    """One model's centred Grams of the current batch."""

    def __init__(self, model: nn.Module, images: Tensor, pattern: str | Iterable[str], at: str):
        self.model, self.at = model, at
        self.units, chosen = chosen_units(model, images, pattern)
        self.names = [unit.name for unit in chosen]
        self.energy: Tensor | float = 0.0  # sum over batches of HSIC_1(K, K)

    def grams(self, images: Tensor) -> Tensor:
        """(U, n * n)"""
        with (
            capture.evaluating(self.model),
            observing(self.model, self.units, self.names, self._reduce, self.at) as seen,
        ):
            self.model(images)
        return torch.stack([seen[name] for name in self.names])

    def _reduce(self, name: str, tensor: Tensor) -> Tensor:
        try:
            return u_centred(tensor)
        except ValueError as error:
            raise UserError(f"no CKA: the features of {name} {error}; leave it out") from None


def cka(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    other: nn.Module | None = None,
    units: str | Iterable[str] = "*",
    other_units: str | Iterable[str] = "*",
    at: str = "stream",
) -> CKA:
    """Compare all units of ``model`` with each other, or with those of ``other``, in one pass.

    Args:
        model: Any vision model; it is left as it came.
        batches: Images (B, C, height, width), B at least 4, or (images, labels).
        other: A second model, run on the same images.
        units: Wildcards for the units of ``model``.
        other_units: Wildcards for those of ``other``.
        at: ``"stream"`` after the unit, or the ``"unit"``'s own output.
    """
    images, batches = first_images(batches, model)
    left = _Side(model, images, units, at)
    right = left if other is None else _Side(other, images, other_units, at)
    joint: Tensor | float = 0.0
    num_images = num_batches = 0
    for images in images_in(batches, model):
        n = len(images)
        if n < 4:
            raise UserError(f"CKA needs at least 4 images a batch, got {n}; drop the last batch")
        a = left.grams(images)
        b = a if right is left else right.grams(images)
        joint = joint + (a @ b.mT) / (n * (n - 3))
        left.energy = left.energy + a.square().sum(1) / (n * (n - 3))
        if right is not left:
            right.energy = right.energy + b.square().sum(1) / (n * (n - 3))
        num_images, num_batches = num_images + n, num_batches + 1
    energy = torch.as_tensor(left.energy)[:, None] * torch.as_tensor(right.energy)[None, :]
    similarity = torch.as_tensor(joint) / energy.sqrt()
    return CKA(
        similarity.cpu().numpy(), tuple(left.names), tuple(right.names), num_images, num_batches
    )
