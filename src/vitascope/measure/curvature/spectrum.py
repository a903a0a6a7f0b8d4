"""The eigenvalues of many mini-batches as one result: NEP, APE, the two sides of the histogram.

Parts measured by several processes are joined by :meth:`HessianSpectrum.merge`, records read back
by :meth:`HessianSpectrum.from_record`.

Shapes: b mini-batches, k eigenvalues of each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.record import Record

PER_BATCH = (
    "eigenvalues",
    "residuals",
    "errors",
    "converged",
    "products",
    "loss",
    "batches",
    "num_images",
)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the histogram; the shares of both sides sum to 1."""

    edges: np.ndarray  # (bins + 1,), rising
    share: np.ndarray  # (bins,) of all eigenvalues, whatever their sign


def side(values: np.ndarray, total: int, bins: int, reach: float) -> Side:
    """Shares of ``values`` in equal bins between 0 and ``reach``, which may be negative.

    >>> side(np.array([-1.0, -3.0]), 4, 2, -4.0).share.tolist()
    [0.25, 0.25]
    """
    edges = np.linspace(min(reach, 0.0), max(reach, 0.0), bins + 1)
    return Side(edges=edges, share=np.histogram(values, edges)[0] / total)


def negative_share(eigenvalues: np.ndarray) -> float:
    """NEP: the share of eigenvalues below 0."""
    return float((eigenvalues < 0).mean())


def positive_mean(eigenvalues: np.ndarray) -> float:
    """APE: the mean of the eigenvalues above 0; not a number without any."""
    positive = eigenvalues[eigenvalues > 0]
    return float(positive.mean()) if positive.size else np.nan


@dataclass(frozen=True, kw_only=True)
class HessianSpectrum(InstrumentResult, kind="hessian"):
    """The k eigenvalues of largest magnitude of every mini-batch, and how well they are known."""

    eigenvalues: np.ndarray  # (b, k), by falling magnitude
    residuals: np.ndarray  # (b, k) |Hx - λx|
    errors: np.ndarray  # (b, k) how far the true eigenvalue may be
    converged: np.ndarray  # (b,) bool: all of the batch's errors within the tolerance
    products: np.ndarray  # (b,) Hessian-vector products
    loss: np.ndarray  # (b,) NLL + l2
    batches: np.ndarray  # (b,) numbers of the batches
    num_images: np.ndarray  # (b,)
    settings: Mapping[str, Any]

    @property
    def nep(self) -> float:
        """Negative max-eigenvalue proportion: the share of all eigenvalues below 0."""
        return negative_share(self.eigenvalues)

    @property
    def ape(self) -> float | None:
        """Average of the positive max eigenvalues; None where there is none."""
        mean = positive_mean(self.eigenvalues)
        return None if np.isnan(mean) else mean

    @property
    def note(self) -> str:
        """Say how many batches did not converge; empty if all did."""
        missed = int((~self.converged).sum())
        if not missed:
            return ""
        size = np.abs(self.eigenvalues).clip(1e-300)
        residual, error = (float((x / size).max()) for x in (self.residuals, self.errors))
        return (
            f"{missed} of {len(self.converged)} batches did not converge to a residual of "
            f"{100 * self.settings['tolerance']:g} %; the worst has {100 * residual:.2g} %, its "
            f"eigenvalue about {100 * error:.2g} %"
        )

    def histogram(self, bins: int = 40, reach: float | None = None) -> dict[str, Side]:
        """The spectrum, ``negative`` and ``positive`` sides apart, as in Fig. 4.

        Args:
            bins: Of each side.
            reach: Magnitude at which both sides end, for figures of several models; by default each
                side ends at its own largest eigenvalue. What lies beyond is not shown.
        """
        values = self.eigenvalues.ravel()
        sides = {"negative": values[values < 0], "positive": values[values >= 0]}
        counts = {}
        for name, part in sides.items():
            far = reach if reach is not None else float(np.abs(part).max(initial=0.0)) or 1.0
            counts[name] = side(part, values.size, bins, -far if name == "negative" else far)
        return counts

    @classmethod
    def merge(cls, parts: Iterable["HessianSpectrum"]) -> "HessianSpectrum":
        """Parts of one measurement, each on its own batches, as one."""
        parts = sorted(parts, key=lambda part: int(part.batches.min()))
        if not parts:
            raise UserError("no parts to merge")
        for part in parts[1:]:
            differ = [k for k, v in parts[0].settings.items() if part.settings.get(k) != v]
            if differ:
                raise UserError(f"parts of different measurements: {', '.join(differ)} differ")
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_BATCH
        }
        order = np.argsort(joined["batches"], kind="stable")
        numbers = joined["batches"][order]
        twice = numbers[1:][numbers[1:] == numbers[:-1]]
        if twice.size:
            raise UserError(f"batch {twice[0]} is in two parts; give each part its first_batch")
        ordered = {name: column[order] for name, column in joined.items()}
        return cls(**ordered, settings=parts[0].settings)

    def summary(self) -> dict[str, Any]:
        """Return the numbers over all mini-batches."""
        return {
            "nep": self.nep,
            "ape": self.ape,
            "num_batches": len(self.converged),
            "num_images": self.num_images.sum(),
            "num_unconverged": (~self.converged).sum(),
            "products_per_batch": self.products.mean(),
            "note": self.note,
        }

    @classmethod
    def from_record(cls, record: Record) -> "HessianSpectrum":
        """The result that a record was made from."""
        if record.kind != "hessian":
            raise UserError(f"a record of {record.kind} is no Hessian spectrum")
        columns = {name: record.arrays[name] for name in PER_BATCH}
        return cls(**columns, settings=dict(record.config))
