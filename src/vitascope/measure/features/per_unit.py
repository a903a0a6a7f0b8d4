"""Mean over images of a statistic after each unit with a grid, for Fourier and variance."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from vitascope import capture
from vitascope.capture.coordinates.tokens import CHOSEN, UNKNOWN
from vitascope.errors import UserError
from vitascope.measure.streaming.model_structure import ModelStructure, grouped
from vitascope.measure.streaming.one_pass import StreamingInstrument


class UnitMeans(StreamingInstrument):
    """Mean over images of ``statistic((B, C, h, w)) -> (B, ...)`` after each image-like unit."""

    wildcards = "units"

    def __init__(
        self,
        structure: ModelStructure,
        pattern: str | Iterable[str],
        statistic: Callable[[Tensor], Tensor],
        name: str,
    ):
        self.statistic, self.name = statistic, name
        chosen = structure.chosen_units(pattern)
        self.units, self.left_out = on_a_grid(chosen, name, structure.kind)
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
        for unit, value in self.sums.items():
            if not bool(torch.isfinite(value).all()):
                raise UserError(f"{self.name}: the features of {unit} are not finite")
        return {name: value / num_images for name, value in self.sums.items()}


def on_a_grid(
    units: Iterable[capture.Unit], instrument: str, kind: str
) -> tuple[dict[str, capture.Unit], dict[str, str]]:
    """The units that have a feature map, by name, and why the others have none.

    Raises:
        UserError: If no unit has one, with the reasons.
    """
    units = list(units)
    left_out = {unit.name: why for unit in units if (why := no_grid(unit))}
    able = {unit.name: unit for unit in units if unit.name not in left_out}
    if not able:
        raise UserError(f"{instrument} needs feature maps on a grid; in {kind} {grouped(left_out)}")
    return able, left_out


def no_grid(unit: capture.Unit) -> str | None:
    """Why a unit has no feature map; None where it has one."""
    if unit.grid is not None:
        return None if max(unit.grid) > 1 else "a single place is left"
    if unit.shape[0] > 1:
        return f"its batch has {unit.shape[0]} windows an image"
    if len([size for size in unit.shape[1:] if size > 1]) <= 1:
        return "one vector an image"
    if unit.chosen:
        return CHOSEN
    return f"{UNKNOWN}; if they are patches, state the grid of {unit.shape[1:]}"
