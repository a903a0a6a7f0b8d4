"""Does a unit gather or spread its feature map?

The variance of the feature map over space, averaged over channels and images, after each unit (Park
& Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 9 and D.1):

    V = mean_{b, c} [ 1/(hw) sum_yx (x[b, c, y, x] - mean_yx x[b, c])^2 ]

in the units of the feature squared; a normalised white map has 1. It is the population variance
(divided by hw); the map is what the network carries on after the unit, class tokens dropped.
The paper says averaging lowers it (attention) and MLPs and convolutions raise it.

Shapes: B images, C channels, h x w patches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitascope.measure.over_units import image_means
from vitascope.record import Record

__all__ = ["Variance", "spatial_variance", "variance"]


@dataclass(frozen=True)
class Variance:
    """Spatial variance after every unit, in order of execution."""

    variance: Mapping[str, float]
    kind: Mapping[str, str]
    stage: Mapping[str, int]
    num_images: int

    def to_record(self) -> Record:
        """Everything as values."""
        names = list(self.variance)
        values = {
            "units": names,
            "kind": [self.kind[n] for n in names],
            "stage": [self.stage[n] for n in names],
            "variance": list(self.variance.values()),
            "num_images": self.num_images,
        }
        return Record(kind="variance", values=values)


def spatial_variance(x: Tensor) -> Tensor:
    """Of (B, C, h, w), averaged over channels. (B,)"""
    return x.flatten(2).var(dim=2, correction=0).mean(1)


def variance(
    model: nn.Module, batches: Iterable[Any], *, units: str | Iterable[str] = "*"
) -> Variance:
    """Measure the spatial variance after every unit of ``model`` that has a grid.

    Args:
        model: Any vision model; it is left as it came.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        units: Wildcards for the units.
    """
    measured, means, num_images = image_means(model, batches, units, spatial_variance, "variance")
    return Variance(
        {unit.name: float(means[unit.name]) for unit in measured},
        {unit.name: unit.kind for unit in measured},
        {unit.name: unit.stage for unit in measured},
        num_images,
    )
