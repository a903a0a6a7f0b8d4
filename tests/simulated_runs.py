"""Made-up runs whose truth is known: by these the intervals and verdicts are checked.

An image is classified right when a sum of normal parts is positive,

    m_k + t_k seed + sqrt(shared) image + sqrt(own) image_k + sqrt(1 - shared - own) image_k,seed,

for model k: some images are hard for all models (shared), some for one architecture (own), and the
rest changes with each run. m_k and t_k are such that the accuracy over all images has the wanted
mean and standard deviation between seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

__all__ = ["World"]


@dataclass(frozen=True, kw_only=True)
class World:
    """True accuracies and spreads between seeds, in percent and points, one per model."""

    accuracies: tuple[float, ...]
    spreads: tuple[float, ...]
    seeds: int = 3
    images: int = 500
    shared: float = 0.6  # of the latent variance: 9 in 100 images change between runs at 88 %
    own: float = 0.2

    def trials(self, count: int, seed: int = 0) -> Iterator[np.ndarray]:
        """Was each image right? (models, seeds, images) a trial, all from one seed."""
        rng = np.random.default_rng(seed)
        shares = (self.shared, self.own, 1 - self.shared - self.own)
        everyone, one, noise = (np.float32(np.sqrt(share)) for share in shares)
        latent = [_latent(a / 100, s / 100) for a, s in self.pairs()]
        for _ in range(count):
            image = everyone * rng.standard_normal(self.images, dtype=np.float32)
            found = np.empty((len(latent), self.seeds, self.images), bool)
            for correct, (mean, slope) in zip(found, latent, strict=True):
                level = mean + slope * rng.standard_normal((self.seeds, 1))
                own = image + one * rng.standard_normal(self.images, dtype=np.float32)
                each = rng.standard_normal((self.seeds, self.images), dtype=np.float32)
                np.greater(noise * each + own, -level.astype(np.float32), out=correct)
            yield found

    def stacked(self, count: int, seed: int = 0, at_once: int = 250) -> Iterator[np.ndarray]:
        """Trials in stacks. (trials, models, seeds, images)"""
        stack: list[np.ndarray] = []
        for trial in self.trials(count, seed):
            stack.append(trial)
            if len(stack) == at_once:
                yield np.stack(stack)
                stack = []
        if stack:
            yield np.stack(stack)

    def pairs(self) -> Sequence[tuple[float, float]]:
        """Accuracy and spread of each model."""
        return list(zip(self.accuracies, self.spreads, strict=True))


@lru_cache(maxsize=256)
def _latent(accuracy: float, spread: float) -> tuple[float, float]:
    """m and t such that Phi(m + t x), x normal, has this mean and standard deviation.

    >>> round(_latent(0.5, 0.0)[0], 6), round(ndtr(_latent(0.9, 0.0)[0]), 6)
    (0.0, np.float64(0.9))
    """
    x, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    low, high = 0.0, 20.0
    for _ in range(60):  # the spread grows with t
        slope = (low + high) / 2
        mean = ndtri(accuracy) * np.sqrt(1 + slope**2)
        found = np.sqrt(weights @ (ndtr(mean + slope * x) - accuracy) ** 2)
        low, high = (slope, high) if found < spread else (low, slope)
    return float(mean), float(slope)
