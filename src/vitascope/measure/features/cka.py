"""CKA: similarity of the representations of all pairs of units.

Linear centred kernel alignment, with the unbiased HSIC_1 summed over minibatches before the
division (Nguyen et al. 2021; Park & Kim 2022, Fig. 10a and D.3):

    CKA(X, Y) = sum_b HSIC_1(K_b, L_b) / sqrt(sum_b HSIC_1(K_b, K_b) sum_b HSIC_1(L_b, L_b))
    HSIC_1(K, L) = [tr(K'L') + (1'K'1)(1'L'1)/((n-1)(n-2)) - 2/(n-2) 1'K'L'1] / (n(n-3))

with K = XX', L = YY', and K', L' their copies with a zero diagonal. 1 is the same geometry up to
rotation and scale; about 0 (a little below is possible) independent features. HSIC_1 is the inner
product of U-centred Grams, so all pairs of units are one matrix product per batch, in float64.

Deviations. Batches smaller than 4 are refused, and ``left_out`` names the units whose features do
not differ between images, are not finite or have no row per image: released codes give NaN there.
The features are the residual stream after a unit, every token flattened; ``at="unit"`` takes the
unit's own output instead.

Shapes: n images in a batch, U and V units.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure, grouped
from vitascope.measure.streaming.one_pass import StreamingInstrument, run_instrument
from vitascope.settings import checked

__all__ = ["CKA", "StreamingCKA", "cka", "u_centred"]


@dataclass(frozen=True)
class CKA(InstrumentResult, kind="cka"):
    """Similarity of every unit of one model to every unit of the same or another."""

    similarity: np.ndarray  # (U, V)
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    num_images: int
    num_batches: int
    row_kinds: tuple[str, ...] = ()  # attention, mlp, ...
    row_stages: tuple[int, ...] = ()
    column_kinds: tuple[str, ...] = ()
    column_stages: tuple[int, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # unit -> why

    def summary(self) -> dict[str, Any]:
        """Return the matrix, which is a value of the record."""
        return {"similarity": self.similarity}

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return no arrays."""
        return {}


def u_centred(features: Tensor) -> Tensor:
    """The U-centred Gram matrix of (n, ...) features, flattened. (n * n,)

    Inner products of two, over n (n - 3), are HSIC_1. U-centring removes what is common to all
    images; centring the features first avoids cancellation.

    >>> u_centred(torch.eye(5)).reshape(5, 5).sum(0).abs().max().item() < 1e-12
    True
    """
    apart = features.flatten(1).to(torch.float64, copy=True)
    n = len(apart)
    common = apart.mean(0)
    apart -= common
    gram = apart @ apart.mT
    spread = gram.trace()  # the squared norm of what differs
    if not bool(torch.isfinite(spread)):
        raise ValueError("are not finite")
    if bool(spread <= 1e-12 * (spread + n * common.dot(common))):  # what float32 can tell apart
        raise ValueError("are the same for all images")
    gram.fill_diagonal_(0)
    rows = gram.sum(0) / (n - 2)
    centred = gram - rows[:, None] - rows[None, :] + rows.sum() / (n - 1)
    return centred.fill_diagonal_(0).flatten()


class _Side:
    """One model's centred Grams of the current batch."""

    def __init__(self, structure: ModelStructure, pattern: str | Iterable[str], at: str):
        if at not in ("stream", "unit"):
            raise UserError(f"unknown place to look {at!r}; there are: stream, unit")
        self.structure, self.at = structure, at
        self.chosen = structure.chosen_units(pattern)
        self.names = tuple(unit.name for unit in self.chosen)
        self.left_out: dict[str, str] = {}
        self.seen: dict[str, Tensor] = {}
        self.energy: Any = 0.0  # sum over batches of HSIC_1(K, K)

    def add(self, name: str, tensor: Tensor) -> None:
        if name in self.left_out:
            return
        try:
            self.seen[name] = u_centred(tensor)
        except ValueError as error:
            self.left_out[name] = f"its features {error}"

    def run(self, images: Tensor) -> None:
        """Run a model that is not part of the pass."""
        model, names = self.structure.model, list(self.names)
        if self.at == "stream":
            look = capture.streams(model, self.structure.units, names, self.add)
        else:
            look = capture.features(model, names, reduce=self.add)
        with capture.evaluating(model), look:
            model(images)

    def take(self, n: int) -> Tensor:
        """The batch's Grams, zeros for units that are left out. (U, n * n)"""
        for name, gram in self.seen.items():
            if len(gram) != n * n:
                rows = round(len(gram) ** 0.5)
                self.left_out[name] = f"it has {rows} rows for {n} images"
        seen = {name: gram for name, gram in self.seen.items() if name not in self.left_out}
        self.seen = {}
        if not seen:
            raise UserError(f"no CKA: in {self.structure.kind} {grouped(self.left_out)}")
        zeros = torch.zeros_like(next(iter(seen.values())))
        grams = torch.stack([seen.get(name, zeros) for name in self.names])
        self.energy = self.energy + grams.square().sum(1) / (n * (n - 3))
        return grams

    @property
    def remaining(self) -> list[int]:
        """Indices of the units that are not left out."""
        return [i for i, name in enumerate(self.names) if name not in self.left_out]

    @property
    def units(self) -> list[capture.Unit]:
        """The units that are not left out."""
        return [self.chosen[i] for i in self.remaining]


class StreamingCKA(StreamingInstrument, name="cka"):
    """Sums HSIC_1 of all pairs over batches; a second model runs on the same images."""

    wildcards = "units"

    def __init__(
        self,
        structure: ModelStructure,
        units: str | Iterable[str] = "*",
        at: str = "stream",
        other: nn.Module | None = None,
        other_units: str | Iterable[str] = "*",
        prepare: Callable[[Tensor], Tensor] = lambda images: images,
    ):
        self.prepare = prepare
        self.left = self.right = _Side(structure, units, at)
        if other is not None:
            self.right = _Side(
                ModelStructure(other, prepare(structure.images), level=structure.level),
                other_units,
                at,
            )
        self.streams, self.outputs = (
            (self.left.names, ()) if at == "stream" else ((), self.left.names)
        )
        self.joint: Any = 0.0
        self.num_batches = 0

    def add_features(self, unit: str, tensor: Tensor) -> None:
        """Store a unit's centred Gram matrix."""
        if len(tensor) < 4:
            raise UserError(
                f"CKA needs at least 4 images a batch, got {len(tensor)}; drop the last batch"
            )
        self.left.add(unit, tensor)

    def end_batch(self, images: Tensor) -> None:
        """Add HSIC_1 of all pairs of units."""
        n = len(images)
        a = b = self.left.take(n)
        if self.right is not self.left:
            self.right.run(self.prepare(images))
            b = self.right.take(n)
        self.joint = self.joint + (a @ b.mT) / (n * (n - 3))
        self.num_batches += 1

    def result(self, num_images: int) -> CKA:
        """CKA from the sums over batches."""
        left, right = self.left, self.right
        energy = left.energy[:, None] * right.energy[None, :]
        similarity = (self.joint / energy.sqrt())[left.remaining][:, right.remaining]
        left_out = dict(left.left_out)
        if right is not left:
            left_out |= {f"{name} (other)": why for name, why in right.left_out.items()}
        return CKA(
            similarity=similarity.cpu().numpy(),
            rows=tuple(unit.name for unit in left.units),
            columns=tuple(unit.name for unit in right.units),
            num_images=num_images,
            num_batches=self.num_batches,
            row_kinds=tuple(unit.kind for unit in left.units),
            row_stages=tuple(unit.stage for unit in left.units),
            column_kinds=tuple(unit.kind for unit in right.units),
            column_stages=tuple(unit.stage for unit in right.units),
            left_out=left_out,
        )


@checked
def cka(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    other: nn.Module | None = None,
    units: str | Iterable[str] = "*",
    other_units: str | Iterable[str] = "*",
    at: str = "stream",
    prepare: Callable[[Tensor], Tensor] = lambda images: images,
) -> CKA:
    """Compare all units of ``model`` with each other, or with those of ``other``, in one pass.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), B at least 4, or (images, labels).
        other: A second model, run on the same images.
        units: Wildcards for the units of ``model``.
        other_units: Wildcards for those of ``other``.
        at: ``"stream"`` after the unit, or the ``"unit"``'s own output.
        prepare: Brings the images into the form that ``other`` takes: its statistics, its size.
    """
    options = {"units": units, "at": at, "other": other, "other_units": other_units}
    return run_instrument(StreamingCKA, model, batches, {}, prepare=prepare, **options)
