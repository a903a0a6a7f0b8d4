"""PCA of patch features: which patches look alike to the network, as colours.

All patches of all images are described by the features X of one layer; their first three principal
components are drawn as red, green and blue (Oquab et al. 2023, DINOv2, https://arxiv.org/abs/2304.07193,
Fig. 1). Patches of one colour have similar features, also across images:

    c_p = V^T (x_p - mean),     V the three leading eigenvectors of the covariance of all patches

each component scaled from its 2nd to its 98th percentile over all patches to 0 to 1. The sign of a
component is free: the largest entry of each eigenvector is made positive.

The layer is the last one on the grid of the image that has at least ``FEWEST`` places, unless it is
named. Prefix tokens are left out.

Shapes: n images, h x w places, C channels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.attribution.grad_cam import FEWEST
from vitascope.measure.features.per_unit import on_a_grid
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.batches import first_images, images_in
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.settings import checked

__all__ = ["PatchColours", "components", "pca"]

RANGE = (0.02, 0.98)  # quantiles that are 0 and 1 of a colour
PICTURE = 96  # pixels a side of the small images that are kept next to the colours
PICTURES = 8  # images that are drawn


@dataclass(frozen=True, kw_only=True)
class PatchColours(InstrumentResult, kind="pca"):
    """The first three components of every patch, as colours."""

    unit: str  # whose features they are
    colours: np.ndarray  # of the first images, 0 to 1. (m, h, w, 3)
    pictures: np.ndarray  # the images, small. (m, height, width, 3) uint8
    explained: tuple[float, ...]  # share of the variance of each component
    num_images: int


def components(features: Tensor, count: int = 3) -> tuple[Tensor, Tensor]:
    """Leading principal components of rows, and their shares of the variance.

    (N, C) -> (N, count), (count,)

    >>> rows = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> values, shares = components(rows, 1)
    >>> values[:, 0].tolist(), round(shares[0].item(), 3)
    ([-2.0, 2.0, 0.0, 0.0], 0.8)
    """
    centred = features.double() - features.double().mean(0)
    variances, vectors = torch.linalg.eigh(centred.mT @ centred)
    vectors = vectors.flip(-1)[:, :count]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    shares = variances.flip(0)[:count].clamp(min=0) / variances.sum().clamp(min=1e-300)
    return centred @ (vectors * largest.sign()), shares


def as_colours(values: Tensor) -> Tensor:
    """Components scaled to 0 to 1, column by column. (N, 3)"""
    low, high = torch.quantile(values[:: 1 + len(values) // 100_000], values.new_tensor(RANGE), 0)
    return ((values - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)


@checked
def pca(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    units: str | Iterable[str] = "*",
    **layout: Any,
) -> PatchColours:
    """Colour the patches of images by the principal components of their features.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        units: Wildcards for the layer: the last that matches is taken.
        layout: ``grid=(h, w)`` and ``num_prefix_tokens`` of units that cannot be traced.
    """
    first, again = first_images(batches, model)
    structure = ModelStructure(model, first, **layout)
    able, _ = on_a_grid(structure.chosen_units(units), "pca", structure.kind)
    fine = [unit for unit in able.values() if unit.grid and unit.grid[0] * unit.grid[1] >= FEWEST]
    unit = (fine or list(able.values()))[-1]
    features: list[Tensor] = []
    pictures: list[Tensor] = []
    with capture.evaluating(model):
        for images in images_in(again, model):
            with capture.streams(model, structure.units, unit.name) as seen:
                model(images)
            features.append(unit.as_image(seen[unit.name]).movedim(1, -1).float().cpu())
            pictures += list(images[: max(0, PICTURES - len(pictures))].cpu())
    patches = torch.cat(features)  # (n, h, w, C)
    if not bool(patches.isfinite().all()):
        raise UserError(f"pca: the features of {unit.name} are not finite")
    values, shares = components(patches.flatten(0, 2), min(3, patches.shape[-1]))
    values = F.pad(values, (0, 3 - values.shape[1]))
    colours = as_colours(values).unflatten(0, patches.shape[:3])[: len(pictures)]
    return PatchColours(
        unit=unit.name,
        colours=colours.float().numpy(),
        pictures=np.stack([_small(image) for image in pictures]),
        explained=tuple(float(share) for share in shares),
        num_images=len(patches),
    )


def _small(image: Tensor) -> np.ndarray:
    """An image (C, H, W) of any range as a small picture. (height, width, 3) uint8"""
    low, high = image.amin(), image.amax()
    shown = ((image - low) / (high - low).clamp(min=1e-12)).expand(3, -1, -1)[None]
    scale = min(1.0, PICTURE / max(shown.shape[-2:]))
    size = [max(1, round(side * scale)) for side in shown.shape[-2:]]
    shown = F.interpolate(shown, size, mode="area")
    return (255 * shown[0]).round().byte().permute(1, 2, 0).numpy()
