"""Accuracy under noise of one frequency band at a time.

Noise of one band of frequencies is added to the images (Park & Kim 2022,
https://arxiv.org/abs/2202.06709, Fig. 2b):

    x' = x + g F^-1(F(delta) * M_f),   M_f = [f - window/2 <= |k| < f + window/2]

delta is white Gaussian noise, |k| the radial frequency in units of pi: 1 is Nyquist along an axis,
sqrt(2) the corner. The window is 0.1, the paper's. g makes the noise of every image and every f
equally strong: its root mean square is ``rms``, of pixels in [0, 1]. The paper's amplitude is not
stated; without g a band far out, which holds more frequencies, would have more energy.

The paper says ViTs suffer from low frequencies and ResNets from high ones. Accuracies are
fractions, 0 to 1.

Deviations. The mask is radial (the paper does not say). Pixels are not clipped unless
``clamp=True``: clipping spreads the noise over other frequencies. A small image has no frequency in
some windows (8 x 8 has steps of 0.25): those are ``left_out``, or refused when asked for. An
image's noise comes from the seed and its number, the same at every f before it is filtered.

Shapes: B images, C channels, H x W pixels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.robustness.changed_images import (
    ChangedImageResult,
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
    drawn,
)
from vitascope.settings import checked

__all__ = ["Frequency", "band", "filtered", "frequency", "radius"]

FREQUENCIES = tuple(round(0.1 * step, 1) for step in range(11))  # 0.0 to 1.0 pi, as Fig. 2b
WHOLE = 1e-9  # a frequency this close below an edge lies on it


@dataclass(frozen=True, kw_only=True)
class Frequency(ChangedImageResult, kind="frequency"):
    """Accuracy, 0 to 1, with noise of each frequency."""

    frequencies: tuple[float, ...]  # centres of the windows, in pi
    left_out: tuple[float, ...]  # the images have no frequency there
    window: float  # width, in pi
    rms: float  # of the noise, pixels in [0, 1]
    clamp: bool
    seed: int

    def summary(self) -> dict[str, Any]:
        """Return why some frequencies are left out."""
        why = "the images have no frequency in this window"
        return {"left_out": {f"{frequency:g} pi": why for frequency in self.left_out}}


def radius(height: int, width: int) -> Tensor:
    """Radial frequency of each entry of a 2-D transform, in pi. (H, W) float64"""
    down, across = (2 * torch.fft.fftfreq(n, dtype=torch.float64) for n in (height, width))
    return torch.hypot(down[:, None], across[None, :])


def band(height: int, width: int, centre: float, window: float) -> Tensor:
    """The frequencies of a window, closed below and open above. (H, W) bool"""
    away = radius(height, width) - centre
    return (away >= -window / 2 - WHOLE) & (away < window / 2 - WHOLE)


def filtered(spectrum: Tensor, mask: Tensor, rms: float) -> Tensor:
    """The noise of (B, C, H, W) transforms inside a mask, each image's at one strength."""
    noise = torch.fft.ifft2(spectrum * mask).real  # the mask is even, so nothing is imaginary
    strength = noise.square().mean((1, 2, 3), keepdim=True).sqrt()
    return noise * (rms / strength)


@checked
def frequency(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    frequencies: Sequence[float] | None = None,
    window: float = 0.1,
    rms: float = 0.1,
    clamp: bool = False,
    seed: int = 0,
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
) -> Frequency:
    """Measure accuracy with noise of one frequency after the other.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels) of one size, normalised with ``mean`` and ``std``.
        mean: Of each channel, for pixels in [0, 1].
        std: Of each channel.
        frequencies: Centres in pi, 0 to sqrt(2); 0.0, 0.1, ..., 1.0 when left out.
        window: Width in pi.
        rms: Strength of the noise, for pixels in [0, 1].
        clamp: Clip the noisy pixels to [0, 1]; spreads the noise over other frequencies.
        seed: Of the noise; each image has its own.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
    """
    wanted = FREQUENCIES if frequencies is None else tuple(dict.fromkeys(map(float, frequencies)))
    if not wanted or not all(0 <= centre <= np.sqrt(2) for centre in wanted):
        raise UserError(f"frequencies are in pi, from 0 to 1.41; got {list(wanted)}")
    if not 0 < window <= 2 or not rms > 0:
        raise UserError(f"give a window in (0, 2] and an rms above 0, not {window} and {rms}")
    space = Pixels(mean=mean, std=std)
    masks: dict[tuple[int, int], dict[float, Tensor]] = {}

    def change(batch: LabelledBatch) -> Iterable[tuple[float, Tensor]]:
        pixels = space.of(batch.images)
        height, width = size = (pixels.shape[-2], pixels.shape[-1])
        if size not in masks:
            every = {centre: band(height, width, centre, window) for centre in wanted}
            masks[size] = {centre: mask for centre, mask in every.items() if mask.any()}
            _same(masks, None if frequencies is None else wanted, window)
        shape = pixels.shape[1:]
        white = drawn(seed, batch.numbers, lambda rng: rng.standard_normal(shape))
        spectrum = torch.fft.fft2(white)
        for centre, mask in masks[size].items():
            noisy = pixels + filtered(spectrum, mask, rms).to(pixels)
            yield centre, space.normalised(noisy.clamp(0, 1) if clamp else noisy)

    measured = accuracy_on_changed_images(model, batches, change, on_step=on_step, name="frequency")
    return Frequency.of(
        measured,
        frequencies=tuple(measured.accuracy),
        left_out=tuple(centre for centre in wanted if centre not in measured.accuracy),
        window=window,
        rms=rms,
        clamp=clamp,
        seed=seed,
    )


def _same(
    masks: dict[tuple[int, int], dict[float, Tensor]], asked: Sequence[float] | None, window: float
) -> None:
    """Check that all images have the same windows, including the requested ones."""
    (first, there), *others = masks.items()
    size = f"images of {first[0]} x {first[1]}"
    if any(other.keys() != there.keys() for _, other in others):
        raise UserError(f"{size} and of {others[-1][0]} have other frequencies: give one size")
    missing = [] if asked is None else [centre for centre in asked if centre not in there]
    if missing or not there:
        wrong = ", ".join(f"{centre:g}" for centre in missing) or "any of the centres"
        step = 2 / max(first)
        raise UserError(
            f"{size} have no frequency within {window:g} pi around {wrong}: theirs are {step:.3g} "
            "pi apart; give other frequencies or a wider window"
        )
