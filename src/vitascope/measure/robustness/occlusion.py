"""Accuracy with the centre of the image hidden.

A box in the centre, ``size`` of the height by ``size`` of the width, is filled with zeros, and the
accuracy on what is left is measured. With 0.5, half the side, it is the "Occ" of context
broadcasting's supplement (Table S2: ViT-S 74.6 %, with CB 75.1 %): a quarter of the area is hidden.

    box = floor(size * side + 1/2) pixels, from (side - box) // 2 on

so that an odd rest lies below and to the right. The paper does not say which zero. ``"black"``,
the default, is pixel 0; ``"mean"`` is 0 after normalisation, the mean of the images. They differ:
black makes an edge, the mean is what padded convolutions see. Accuracies are fractions, 0 to 1.

Deviation: where an image is not square, neither is the box; it hides the same share.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.robustness.changed_images import (
    ChangedImageResult,
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
)
from vitascope.settings import checked

__all__ = ["Occlusion", "box", "occlude", "occlusion"]


@dataclass(frozen=True, kw_only=True)
class Occlusion(ChangedImageResult, kind="occlusion"):
    """Accuracy, 0 to 1, with a box of each size over the centre."""

    sizes: tuple[float, ...]  # of the side
    fill: str


def box(side: int, size: float) -> slice:
    """The pixels of one side that are hidden.

    >>> box(8, 0.5), box(7, 0.5), box(7, 1.0)
    (slice(2, 6, None), slice(1, 5, None), slice(0, 7, None))
    """
    length = min(int(size * side + 0.5), side)
    start = (side - length) // 2
    return slice(start, start + length)


def occlude(images: Tensor, size: float, value: Tensor | float = 0.0) -> Tensor:
    """A copy whose centre is ``value``; the rest is as it was. (B, C, H, W)"""
    rows, columns = (box(side, size) for side in images.shape[-2:])
    changed = images.clone()
    changed[..., rows, columns] = value
    return changed


@checked
def occlusion(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    sizes: Sequence[float] = (0.25, 0.5, 0.75),
    fill: Literal["black", "mean"] = "black",
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
) -> Occlusion:
    """Measure accuracy with the centre of the images hidden.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), normalised with ``mean`` and ``std``.
        mean: Of each channel, for pixels in [0, 1].
        std: Of each channel.
        sizes: Shares of the side, above 0, at most 1; 0.5 is the paper's.
        fill: What is put there: pixel 0, or 0 after normalisation.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
    """
    if not len(sizes) or not all(0 < size <= 1 for size in sizes):
        raise UserError(f"sizes are shares of the side, above 0, at most 1; got {list(sizes)}")
    sizes = tuple(dict.fromkeys(float(size) for size in sizes))
    pixels = Pixels(mean=mean, std=std)

    def change(batch: LabelledBatch) -> Iterable[tuple[float, Tensor]]:
        black = pixels.normalised(batch.images.new_zeros(1, batch.images.shape[1], 1, 1))
        for size in sizes:
            yield size, occlude(batch.images, size, black if fill == "black" else 0.0)

    measured = accuracy_on_changed_images(model, batches, change, on_step=on_step, name="occlusion")
    return Occlusion.of(measured, sizes=sizes, fill=fill)
