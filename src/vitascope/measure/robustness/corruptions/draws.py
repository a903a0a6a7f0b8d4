"""Random numbers per image, independent of the batch.

Every image has a generator of its own, seeded by the seed, the corruption, the severity and the
image's number. Image 17 is corrupted in the same way alone or in any batch.

Shapes: B images, ... as asked for.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS


class Draws:
    """The generators of a batch of images; each call goes on where the last one ended."""

    def __init__(self, seed: int, name: str, severity: int, indices: Sequence[int]):
        self.key = (seed, CORRUPTIONS.index(name), severity)
        self.indices = indices

    @cached_property
    def generators(self) -> list[np.random.Generator]:
        """One per image, made when first needed."""
        return [
            np.random.Generator(np.random.SFC64(np.random.SeedSequence((*self.key, index))))
            for index in self.indices
        ]

    def normal(self, *shape: int) -> Tensor:
        """Of mean 0 and deviation 1. (B, ...) float32"""
        out = np.empty((len(self.indices), *shape), dtype=np.float32)
        for row, generator in zip(out, self.generators, strict=True):
            generator.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(out)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Between low and high. (B, ...) float32"""
        out = np.empty((len(self.indices), *shape), dtype=np.float32)
        for row, generator in zip(out, self.generators, strict=True):
            generator.random(out=row, dtype=np.float32)
        return torch.from_numpy(out).mul_(high - low).add_(low)

    def words(self, *shape: int) -> np.ndarray:
        """Whole numbers below 65536. (B, ...) uint16"""
        length = int(np.prod(shape))
        rows = [np.frombuffer(g.bytes(2 * length), np.uint16) for g in self.generators]
        return np.stack(rows).reshape(len(rows), *shape)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high - 1. (B, ...) int64"""
        rows = [g.integers(low, high, shape, dtype=np.int16) for g in self.generators]
        return torch.from_numpy(np.stack(rows)).long()
