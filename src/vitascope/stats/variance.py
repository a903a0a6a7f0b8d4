"""How far an estimate can lie from the truth when its variance has two parts.

A difference of accuracies has the variance

    V = V_images + max(0, V_seeds - V_residual).

V_images is well known: there are hundreds of test images. V_seeds comes from two to five runs, so
it has few degrees of freedom f, and it may be far too small by chance. Satterthwaite's t with the
estimated V takes too many degrees of freedom just then: simulated intervals of 95 % covered 92 to
93 % with two seeds. So the unknown V_seeds is averaged over instead. f V_seeds / chi^2_f stands for
the true one (its fiducial distribution), and the estimate's distance from the truth is a mixture,

    P(|error| < h) = 2 E[Phi(h / sqrt(V_images + max(0, f V_seeds / chi^2_f - V_residual)))] - 1.

With V_images = V_residual = 0 this is Student's t with f degrees of freedom, with V_seeds = 0 the
normal distribution; between the two it is what Behrens and Fisher did with two means. Few groups
(patients) behind V_images widen it by (t / z)^2 at 95 %.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

__all__ = ["POWER", "ErrorVariance", "Estimate"]

POWER = 0.8  # with which the minimum detectable effect would be found
Array = np.ndarray
_Z = float(ndtri(0.975))


@dataclass(frozen=True)
class ErrorVariance:
    """The parts of a variance; numbers, or arrays with one entry a trial of a simulation."""

    images: Any  # of the mean over seeds, by the images
    seeds: Any = 0.0  # by the runs, as measured on these images
    residual: Any = 0.0  # what of ``seeds`` the images have counted already
    freedom: Any = 0.0  # degrees of freedom of ``seeds``; 0: one run each, nothing is known
    images_freedom: float = np.inf

    @property
    def total(self) -> Any:
        """V as one number.

        >>> float(ErrorVariance(images=1.0, seeds=3.0, residual=1.0, freedom=4).total)
        3.0
        """
        return self.images + np.maximum(0.0, np.subtract(self.seeds, self.residual))[()]

    def _plausible(self) -> tuple[Array, Array]:
        """Values that V may have, along a last axis, and their weights."""
        images = np.asarray(self.images, float) * (stdtrit(self.images_freedom, 0.975) / _Z) ** 2
        if not np.any(self.freedom):
            return images[..., None], np.ones(1)
        ratio, weights = _inverse_chi2(self.freedom)
        seeds = np.asarray(self.seeds, float)[..., None] * ratio
        free = np.maximum(0.0, seeds - np.asarray(self.residual, float)[..., None])
        return images[..., None] + free, weights

    def confidence(self, distance: Any) -> Any:
        """Probability that the estimate exceeds the truth by less than ``distance``.

        >>> round(float(ErrorVariance(images=1.0).confidence(1.96)), 3)
        0.975
        """
        values, weights = self._plausible()
        return ndtr(np.asarray(distance, float)[..., None] / np.sqrt(values)) @ weights

    def half_width(self, level: float = 0.95) -> Any:
        """Half of the interval around the estimate.

        >>> round(float(ErrorVariance(images=0.0, seeds=1.0, freedom=2).half_width()), 2)
        4.3
        """
        values, weights = self._plausible()
        wanted = (1 + level) / 2
        scale = np.sqrt(values)
        lowest = ndtri(wanted) * scale.min(-1)
        half = ndtri(wanted) * np.sqrt(values @ weights)
        for _ in range(60):  # Newton; the mixture is concave, so it comes from below
            z = half[..., None] / scale
            density = (np.exp(-0.5 * z**2) / scale) @ weights / np.sqrt(2 * np.pi)
            step = (wanted - ndtr(z) @ weights) / density
            half = np.maximum(lowest, half + step)
            if np.all(np.abs(step) <= 1e-7 * half):
                break
        return half[()]


@lru_cache(maxsize=64)
def _nodes(count: int = 48) -> tuple[Array, Array]:
    """Gauss-Legendre in v with u = v^4: small chi^2, where V is large, is met closely."""
    x, weights = np.polynomial.legendre.leggauss(count)
    v = (x + 1) / 2
    return v**4, weights / 2 * 4 * v**3


def _inverse_chi2(freedom: Any) -> tuple[Array, Array]:
    """f / chi^2_f at the nodes, and their weights; chi^2 of f is twice a gamma of f / 2."""
    if np.ndim(freedom) == 0:
        return _one_inverse_chi2(float(freedom))
    u, weights = _nodes()
    half = np.asarray(freedom, float)[..., None] / 2
    return half / gammaincinv(half, u), weights


@lru_cache(maxsize=256)
def _one_inverse_chi2(freedom: float) -> tuple[Array, Array]:
    u, weights = _nodes()
    return freedom / 2 / gammaincinv(freedom / 2, u), weights


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; accuracies and their differences in points (percent)."""

    value: float
    low: float
    high: float
    p_value: float  # two-sided, of the value being 0
    variance: ErrorVariance
    one_run: bool = False  # speaks of these runs alone: what another seed would give is unknown

    @classmethod
    def of(
        cls, value: float, variance: ErrorVariance, level: float = 0.95, **more: Any
    ) -> "Estimate":
        """Return the estimate with the interval and the p-value that the variance gives."""
        variance = ErrorVariance(**{name: float(part) for name, part in vars(variance).items()})
        half = float(variance.half_width(level))
        p_value = 2 * (1 - float(variance.confidence(abs(value))))
        return cls(
            **{
                "value": float(value),
                "low": float(value) - half,
                "high": float(value) + half,
                "p_value": p_value,
                "variance": variance,
                **more,
            }
        )

    def p_at(self, margin: float) -> float:
        """Two-sided p-value of the true value being ``margin``."""
        if margin == 0:
            return self.p_value
        return 2 * (1 - float(self.variance.confidence(abs(self.value - margin))))

    @property
    def detectable(self) -> float:
        """The minimum detectable effect: a true difference found four times of five.

        >>> round(Estimate.of(0.0, ErrorVariance(images=1.0)).detectable, 2)
        2.8
        """
        half = float(self.variance.half_width())
        return half + float(ndtri(POWER)) * float(np.sqrt(self.variance.total))
