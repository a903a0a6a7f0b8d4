"""Spatial variance of the feature map after each unit.

The variance of the feature map over space, averaged over channels and images, after each unit (Park
& Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 9 and D.1):

    V = mean_{b, c} [ 1/(hw) sum_yx (x[b, c, y, x] - mean_yx x[b, c])^2 ]

in the units of the feature squared; a normalised white map has 1. It is the population variance
(divided by hw); the map is the residual stream after the unit, without class tokens.
According to the paper attention, which averages, lowers it; MLPs and convolutions raise it.

Shapes: B images, C channels, h x w patches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from vitascope.measure.features.per_unit import UnitMeans
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import run_instrument
from vitascope.settings import checked

__all__ = ["StreamingVariance", "Variance", "spatial_variance", "variance"]


@dataclass(frozen=True)
class Variance(InstrumentResult, kind="variance", rows="units"):
    """Spatial variance after every unit, in order of execution."""

    variance: Mapping[str, float]
    kind: Mapping[str, str]
    stage: Mapping[str, int]
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # unit -> why


def spatial_variance(x: Tensor) -> Tensor:
    """Return the variance over space, averaged over channels. (B, C, h, w) -> (B,)"""
    return (x - x.mean((2, 3), keepdim=True)).square().mean((1, 2, 3))


class StreamingVariance(UnitMeans, name="variance"):
    """Means of spatial variances."""

    def __init__(self, structure: ModelStructure, units: str | Iterable[str] = "*"):
        super().__init__(structure, units, spatial_variance, "variance")

    def result(self, num_images: int) -> Variance:
        """Means over images."""
        variance = {name: float(value) for name, value in self.means(num_images).items()}
        return Variance(variance, self.kinds, self.stages, num_images, self.left_out)


@checked
def variance(
    model: nn.Module, batches: Iterable[Any], *, units: str | Iterable[str] = "*", **layout: Any
) -> Variance:
    """Measure the spatial variance after every unit of ``model`` that has a grid.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        units: Wildcards for the units.
        layout: ``level="block"`` for one unit per residual block of convolutions; ``grid=(h, w)``
            and ``num_prefix_tokens`` of units that cannot be traced.
    """
    return run_instrument(StreamingVariance, model, batches, layout, units=units)
