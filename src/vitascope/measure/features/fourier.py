"""Fourier spectrum of the feature map after each unit.

For every image and channel the log amplitude of the feature map's spectrum, averaged, relative to
the zero frequency, along the diagonal from 0 to pi in both directions (Park & Kim 2022,
https://arxiv.org/abs/2202.06709, Fig. 2a, 8 and D.2):

    Delta log amplitude(f) = (mean log |F[f, f]| - e(f)) - (mean log |F[0, 0]| - e(0))

in natural logarithms, with e(f) = -(ln 2)/2 where the coefficient of a real map is real, at
frequency 0 and on even grids at pi, and e(f) = 0 elsewhere. White noise of zero mean is flat at 0,
a smooth map goes far below. The measured map is the residual stream after the unit, without class
tokens.

The term e is that of white noise: the logarithm of a real normal number is (ln 2)/2 = 0.35 lower on
average than that of a complex one of the same variance. The paper has no such term, so its curves
lie 0.35 higher between their ends, and one that reaches pi drops by 0.35 there for no reason in the
image. Differences between units are the same with and without it.

Deviations. The released half-diagonal stops one step short of Nyquist on even grids: here index
n/2 is the last point, frequency 1.0 pi. ``end="released"`` gives the released curve, without that
point and without e. Frequencies are normalised per axis, so on an h x w grid the curve runs from
(0, 0) to (pi, pi) along that grid's diagonal. Odd sizes have no sample at pi, and unequal sizes few
on the diagonal: there the averaged log spectrum, periodic and symmetric, is read by bilinear
interpolation. Amplitudes below 1e-6 count as 1e-6 (the released code adds 1e-6).

Shapes: B images, C channels, h x w patches, F frequencies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.errors import unknown
from vitascope.measure.features.per_unit import UnitMeans
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import run_instrument
from vitascope.settings import checked

__all__ = [
    "Fourier",
    "StreamingFourier",
    "diagonal",
    "fourier",
    "log_amplitude",
    "over_white_noise",
    "released_diagonal",
]

FLOOR = 1e-6
End = Literal["nyquist", "released"]  # of a curve


@dataclass(frozen=True)
class Fourier(InstrumentResult, kind="fourier", rows="units"):
    """Delta log amplitude of every unit against normalised frequency."""

    frequency: Mapping[str, np.ndarray]  # unit -> (F,), in units of pi, 0 to 1
    amplitude: Mapping[str, np.ndarray]  # unit -> (F,), relative to the zero frequency
    kind: Mapping[str, str]  # attention, mlp, ...
    stage: Mapping[str, int]
    grid: Mapping[str, tuple[int, int]]
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # unit -> why
    end: End = "nyquist"

    @property
    def high(self) -> dict[str, float]:
        """Delta log amplitude of each unit at the last frequency, 1.0 pi unless as released."""
        return {name: float(curve[-1]) for name, curve in self.amplitude.items()}

    def summary(self) -> dict[str, Any]:
        """Return the ends of the curves."""
        unit = "natural log, relative to the zero frequency"
        return {"high": list(self.high.values()), "unit": unit}


def log_amplitude(x: Tensor) -> Tensor:
    """Mean over channels of the log spectrum of (B, C, h, w): half of it. (B, h, w // 2 + 1)"""
    return torch.fft.rfft2(x).abs().clamp(min=FLOOR).log().mean(1)


def diagonal(half: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (in pi) and values of a half spectrum (h, w // 2 + 1) from 0 to Nyquist.

    >>> frequency, value = diagonal(np.zeros((4, 3)), 4)
    >>> frequency.tolist()
    [0.0, 0.5, 1.0]
    """
    height = len(half)
    at = np.linspace(0, 1, max(height, width) // 2 + 1 if max(height, width) > 1 else 2)

    def read(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        v = v % width
        mirrored = v > width // 2  # F[u, v] and F[-u, -v] have one amplitude
        return half[np.where(mirrored, -u, u) % height, np.where(mirrored, width - v, v)]

    y, x = at * height / 2, at * width / 2
    (y0, x0) = np.floor(y).astype(int), np.floor(x).astype(int)
    dy, dx = y - y0, x - x0
    value = (1 - dy) * (1 - dx) * read(y0, x0) + (1 - dy) * dx * read(y0, x0 + 1)
    value += dy * (1 - dx) * read(y0 + 1, x0) + dy * dx * read(y0 + 1, x0 + 1)
    return at, value


def over_white_noise(half: np.ndarray, width: int) -> np.ndarray:
    """A half spectrum (h, w // 2 + 1) less what white noise has where coefficients are real.

    >>> over_white_noise(np.zeros((3, 2)), 3).round(3).tolist()
    [[0.347, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    height, corrected = len(half), half.copy()
    rows = [0, height // 2] if height % 2 == 0 else [0]
    columns = [0, width // 2] if width % 2 == 0 else [0]
    corrected[np.ix_(sorted({*rows}), sorted({*columns}))] += np.log(2) / 2
    return corrected


def released_diagonal(half: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Like :func:`diagonal`, at the frequencies of the released code: those sampled below pi.

    >>> released_diagonal(np.zeros((4, 3)), 4)[0].tolist()
    [0.0, 0.5]
    """
    height = len(half)
    if height != width:
        frequency, value = diagonal(half, width)
        return frequency[:-1], value[:-1]
    index = np.arange((height + 1) // 2)
    return 2 * index / height, half[index, index]


class StreamingFourier(UnitMeans, name="fourier"):
    """Means of log spectra."""

    def __init__(
        self, structure: ModelStructure, units: str | Iterable[str] = "*", end: End = "nyquist"
    ):
        if end not in get_args(End):
            raise unknown("end", end, get_args(End))
        super().__init__(structure, units, log_amplitude, "fourier")
        self.end: End = end

    def result(self, num_images: int) -> Fourier:
        """The diagonals of the means."""
        means = self.means(num_images)
        frequency, amplitude, grid = {}, {}, {}
        for name, unit in self.units.items():
            assert unit.grid is not None
            half, width = means[name].numpy(), unit.grid[1]
            if self.end == "released":
                at, value = released_diagonal(half, width)
            else:
                at, value = diagonal(over_white_noise(half, width), width)
            frequency[name], amplitude[name], grid[name] = at, value - value[0], unit.grid
        named = self.kinds, self.stages, grid
        return Fourier(frequency, amplitude, *named, num_images, self.left_out, self.end)


@checked
def fourier(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    units: str | Iterable[str] = "*",
    end: End = "nyquist",
    **layout: Any,
) -> Fourier:
    """Measure the spectrum after every unit of ``model`` that has a grid.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        units: Wildcards for the units.
        end: The last frequency: 1.0 pi, or as in the authors' released code.
        layout: ``level="block"`` for one unit per residual block of convolutions; ``grid=(h, w)``
            and ``num_prefix_tokens`` of units that cannot be traced.
    """
    return run_instrument(StreamingFourier, model, batches, layout, units=units, end=end)
