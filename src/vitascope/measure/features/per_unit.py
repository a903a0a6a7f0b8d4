"""Mean over images of a statistic after each unit with a grid, for Fourier and variance."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import StreamingInstrument


class UnitMeans(StreamingInstrument):
    """Mean over images of ``statistic((B, C, h, w)) -> (B, ...)`` after each image-like unit."""

    wildcards = "units"

    def __init__(
        self,
        structure: ModelStructure,
        pattern: str | Iterable[str],
        statistic: Callable[[Tensor], Tensor],
        what: str,
    ):
        self.statistic, self.what = statistic, what
        chosen = structure.chosen_units(pattern)
        self.left_out = {unit.name: why for unit in chosen if (why := no_grid(unit))}
        self.units = {unit.name: unit for unit in chosen if unit.name not in self.left_out}
        if not self.units:
            raise UserError(
                f"{what} needs feature maps on a grid; of the units of {structure.kind} that match "
                f"none has one: {', '.join(unit.name for unit in chosen[:5])}"
            )
        self.kinds = {name: unit.kind for name, unit in self.units.items()}
        self.stages = {name: unit.stage for name, unit in self.units.items()}
        self.streams = tuple(self.units)
        self.sums: dict[str, Any] = dict.fromkeys(self.units, 0.0)

    def add_features(self, unit: str, tensor: Tensor) -> None:
        """Add a batch, in float64."""
        image = self.units[unit].as_image(tensor).float()
        self.sums[unit] += self.statistic(image).sum(0).double().cpu()

    def means(self, num_images: int) -> dict[str, Tensor]:
        """The means by unit."""
        for name, value in self.sums.items():
            if not bool(torch.isfinite(value).all()):
                raise UserError(f"{self.what}: the features of {name} are not finite")
        return {name: value / num_images for name, value in self.sums.items()}


def no_grid(unit: capture.Unit) -> str | None:
    """Why a unit has no feature map; None where it has one."""
    if unit.grid is not None:
        return None if max(unit.grid) > 1 else "a single place is left"
    if len([size for size in unit.shape[1:] if size > 1]) <= 1:
        return "one vector an image"
    return f"its places cannot be followed; state the grid of {unit.shape[1:]}"
