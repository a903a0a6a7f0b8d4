"""One pass over the data, one number or array per unit: what the unit instruments share."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.batches import first_images, images_in

__all__ = ["chosen_units", "image_means", "observing"]


def chosen_units(
    model: nn.Module, images: Tensor, pattern: str | Iterable[str]
) -> tuple[tuple[capture.Unit, ...], list[capture.Unit]]:
    """All units of the model, and those that match."""
    units = capture.units(model, images)
    names = capture.matching(pattern, [unit.name for unit in units], "unit")
    return units, [unit for unit in units if unit.name in names]


def observing(
    model: nn.Module,
    units: tuple[capture.Unit, ...],
    names: list[str],
    reduce: Callable[[str, Tensor], Any],
    at: str,
) -> AbstractContextManager[dict[str, Any]]:
    """Read the stream after each unit (``at="stream"``) or its own output (``at="unit"``)."""
    if at == "stream":
        return capture.streams(model, units, names, reduce)
    if at == "unit":
        return capture.features(model, names, reduce=reduce)
    raise UserError(f"unknown place to look {at!r}; there are: stream, unit")


def image_means(
    model: nn.Module,
    batches: Iterable[Any],
    pattern: str | Iterable[str],
    statistic: Callable[[Tensor], Tensor],
    what: str,
) -> tuple[list[capture.Unit], dict[str, Tensor], int]:
    """Mean over images of ``statistic((B, C, h, w)) -> (B, ...)`` after each image-like unit.

    Returns:
        The units measured, the means by name in float64, and the number of images.
    """
    images, batches = first_images(batches, model)
    units, chosen = chosen_units(model, images, pattern)
    able = {unit.name: unit for unit in chosen if unit.grid is not None and max(unit.grid) > 1}
    if not able:
        raise UserError(
            f"{what} needs feature maps on a grid; of the units of {type(model).__name__} that "
            f"match none has one: {', '.join(unit.name for unit in chosen[:5])}"
        )
    sums: dict[str, Tensor] = {}
    num_images = 0

    def reduce(name: str, tensor: Tensor) -> None:
        value = statistic(able[name].as_image(tensor).float()).sum(0).double().cpu()
        sums[name] = sums[name] + value if name in sums else value

    for images in images_in(batches, model):
        with capture.evaluating(model), observing(model, units, list(able), reduce, "stream"):
            model(images)
        num_images += len(images)
    for name, value in sums.items():
        if not bool(torch.isfinite(value).all()):
            raise UserError(f"{what}: the features of {name} are not finite")
    return list(able.values()), {n: sums[n] / num_images for n in able}, num_images
