"""A batch of images, corrupted as in CIFAR-C and ImageNet-C.

Hendrycks & Dietterich 2019, https://arxiv.org/abs/1903.12261: 15 corruptions of 5 severities, with
the published constants of :mod:`.constants`. Images may have any size and 1 or 3 channels. The
result is quantised to the 256 levels of a byte as the published sets are (cut off, not rounded, as
their programs do). The same seed gives the same images, whatever the batch; work is done on the
CPU, so the device does not matter either. Severity 0 is the clean image, untouched.

Deviations: frost's photographs are replaced by synthetic textures; ImageNet-C was stored as JPEG of
quality 85 after each corruption, which is not repeated here; OpenCV warps on a grid of 1/32 pixel,
here the position is exact.

Shapes: B images, C channels, h x w pixels.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitascope.errors import UserError, unknown
from vitascope.measure.robustness.corruptions import blur, digital, noise, weather
from vitascope.measure.robustness.corruptions.constants import CORRUPTIONS, strength, table_for
from vitascope.measure.robustness.corruptions.draws import Draws

GRACE = 1e-3  # of a level: a result that is whole but for rounding is not cut down
CACHE = 2**20  # values worked on at a time: they stay near the processor
BEYOND = 2e-3  # what un-normalising may leave outside [0, 1]

Maker = Callable[[Tensor, Any, Draws], Tensor]
MAKERS: dict[str, Maker] = {
    name: getattr(family, name)
    for family in (noise, blur, weather, digital)
    for name in CORRUPTIONS
    if hasattr(family, name)
}


def to_levels(images: Tensor) -> Tensor:
    """Images as whole levels. (B, C, h, w) uint8

    Raises:
        UserError: If they are no batch of bytes or of floats in [0, 1].
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise UserError(
            "images to corrupt must be (B, C, h, w) with 1 or 3 channels; "
            f"got {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise UserError(f"images to corrupt must be uint8 or floats, not {images.dtype}")
    if len(images):
        low, high = (float(bound) for bound in images.aminmax())
        if not (low >= -BEYOND and high <= 1 + BEYOND):  # NaN fails it too
            raise UserError(
                f"images to corrupt must lie in [0, 1] but reach from {low:.3g} to {high:.3g}; "
                "give pixels, or the mean and std they were normalised with"
            )
    return images.float().mul(255).round_().clamp_(0, 255).byte()


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    constants: str = "auto",
) -> Tensor:
    """Corrupted images, of the type and on the device of those given. (B, C, h, w)

    Args:
        images: uint8, or floats in [0, 1] (taken at the nearest of 256 levels).
        name: One of :data:`~vitascope.measure.robustness.corruptions.constants.CORRUPTIONS`.
        severity: 1 to 5; 0 gives the images back.
        seed: Of everything random.
        indices: Number of each image: what its random numbers depend on. By default 0, 1, ...
        constants: "cifar", "imagenet", or "auto" by size.
    """
    if name not in MAKERS:
        raise unknown("corruption", name, CORRUPTIONS)
    if severity not in range(6):
        raise UserError(f"severity {severity} is out of range; give 1 to 5, or 0 for clean images")
    if seed < 0:
        raise UserError(f"seed {seed} is out of range; give 0 or more")
    levels = to_levels(images)
    table = table_for(images.shape[2], images.shape[3], constants)
    if severity == 0 or len(images) == 0:
        return images
    numbers = range(len(images)) if indices is None else [int(index) for index in indices]
    if len(numbers) != len(images) or min(numbers) < 0:
        raise UserError(
            f"{len(images)} images came with {len(numbers)} indices; give one of 0 or more for each"
        )
    maker = MAKERS[name]
    if name == "frost":
        maker = partial(weather.frost, shrunk=table == "cifar")
    made = torch.empty(levels.shape, dtype=torch.uint8)
    some = max(1, CACHE // levels[0].numel())
    with torch.no_grad():
        for start in range(0, len(levels), some):
            part = slice(start, start + some)
            draws = Draws(seed, name, severity, numbers[part])
            out = maker(levels[part].cpu(), strength(name, severity, table), draws)
            if out.dtype != torch.uint8:
                out = out.add_(GRACE).clamp_(0, 255)
            made[part] = out
    made = made.to(images.device)
    return made if images.dtype == torch.uint8 else made.to(images.dtype) / 255
