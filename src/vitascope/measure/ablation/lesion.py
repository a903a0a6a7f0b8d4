"""Lesions: accuracy lost when one unit of a trained network is removed.

One unit is dropped at a time, nothing retrained, and the accuracy lost is reported (Park & Kim
2022, https://arxiv.org/abs/2202.06709, Fig. 10b and D.4):

    lost(u) = accuracy(network) - accuracy(network without u)

A unit alone on a residual branch (an attention, an MLP) is left out of its sum: that is exactly the
network built without it, also where the shortcut is projected because the shape changes. A unit
inside a longer branch (one 3 x 3 convolution of a bottleneck) becomes the identity. One that is
neither, because it changes the shape itself, cannot be dropped without inventing a layer: it is
listed under ``kept`` with the reason, or refused when it was asked for by name.
Accuracies are fractions, 0 to 1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.structure.units import Level
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.streaming.batches import labelled_in
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.settings import checked

__all__ = ["Lesion", "lesion"]

KINDS = ("attention", "mlp", "convolution", "block")


@dataclass(frozen=True)
class Lesion(InstrumentResult, kind="lesion", rows="units"):
    """Accuracy, 0 to 1, without each unit, in order of execution."""

    intact: float
    accuracy: Mapping[str, float]  # without the unit
    kind: Mapping[str, str]
    stage: Mapping[str, int]
    kept: Mapping[str, str]  # units that cannot be dropped -> why
    num_images: int
    correct: np.ndarray | None = per_image(np.uint8)  # intact, then without each. (1 + units, N)

    @property
    def lost(self) -> dict[str, float]:
        """Accuracy lost by dropping each unit."""
        return {name: self.intact - value for name, value in self.accuracy.items()}

    def summary(self) -> dict[str, Any]:
        """Return the accuracies lost."""
        return {"lost": list(self.lost.values())}


def correct(model: nn.Module, pairs: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray:
    """Return whether each image's prediction is its label (argmax of soft labels). (N,) bool"""
    right = []
    with capture.evaluating(model):
        for images, labels in pairs:
            logits = capture.logits_of(model(images))
            if logits.ndim != 2:
                raise UserError(f"accuracy needs logits (B, classes), got {tuple(logits.shape)}")
            target = labels.argmax(1) if labels.ndim == 2 else labels
            right.append((logits.argmax(1) == target).cpu().numpy())
    return np.concatenate(right)


@checked
def lesion(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    units: str | Iterable[str] | None = None,
    level: Level = "unit",
    on_unit: Callable[[str, int], None] = lambda name, ahead: None,
) -> Lesion:
    """Drop units of ``model`` one at a time and evaluate what is left.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), kept in memory: every unit needs a pass over them.
        units: Wildcards; by default every attention, MLP, convolution and block.
        level: ``"block"`` for one unit per residual block of convolutions.
        on_unit: Called before each unit's pass with its name and the number of passes ahead.
    """
    pairs = labelled_in(batches, model)
    structure = ModelStructure(model, pairs[0][0], level=level)
    every, chosen = structure.units, structure.chosen_units("*" if units is None else units)
    if units is None:
        chosen = [unit for unit in chosen if unit.kind in KINDS]
    if not chosen:
        raise UserError(f"{type(model).__name__} has no unit to drop: no {', '.join(KINDS)}")
    right: dict[str, np.ndarray] = {}
    kept: dict[str, str] = {}
    for done, unit in enumerate(chosen):
        on_unit(unit.name, len(chosen) + 1 - done)
        try:
            with capture.without(model, every, unit.name):
                right[unit.name] = correct(model, pairs)
        except UserError as error:
            if units is not None:
                raise
            kept[unit.name] = str(error)
    on_unit("", 1)
    intact = correct(model, pairs)
    return Lesion(
        float(intact.mean()),
        {name: float(hits.mean()) for name, hits in right.items()},
        {unit.name: unit.kind for unit in chosen},
        {unit.name: unit.stage for unit in chosen},
        kept,
        len(intact),
        np.stack([intact, *right.values()]),
    )
