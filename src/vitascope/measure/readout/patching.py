"""Activation patching: which layers carry what makes two images differ?

Run the model on one image, keep what each unit puts out, then run it on another image with one
unit's output replaced by the kept one (Vig et al. 2020, https://arxiv.org/abs/2004.12265; Zhang and
Nanda 2023, https://arxiv.org/abs/2309.16042). How far the answer moves towards the first image's
says how much of the difference passes through that unit:

    moved(u) = (y(x' with u of x) - y(x')) / (y(x) - y(x'))

for the score y: the logit of x's class minus that of the class of x'. 0: the unit carries nothing
of it; 1: all. The shares of units need not add to 1, because what a unit carries may pass through
others. With ``tokens`` only these places of the unit's output are replaced.

Shapes: images (1, C, H, W), T tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.batches import on_device
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.settings import checked

__all__ = ["Patching", "patching"]


@dataclass(frozen=True, kw_only=True)
class Patching(InstrumentResult, kind="patching", rows="units"):
    """Share of the way that each unit of one image moves the answer to another."""

    moved: Mapping[str, float]
    kind: Mapping[str, str]
    classes: tuple[int, int]  # predicted for the two images
    scores: tuple[float, float]  # y of each
    tokens: tuple[int, ...] | None = None


@checked
def patching(
    model: nn.Module,
    source: Tensor,
    target: Tensor,
    *,
    units: str | Iterable[str] = "*",
    classes: tuple[int, int] | None = None,
    tokens: Sequence[int] | None = None,
) -> Patching:
    """Patch what each unit puts out for ``source`` into the run on ``target``.

    Args:
        model: Any classifier; it is left unchanged.
        source: The image to take from (1, C, H, W), normalised as the model wants it.
        target: The image to patch into, of the same shape.
        units: Wildcards for the units to patch, one at a time.
        classes: Whose logits are compared; what the model predicts for the two images when left
            out.
        tokens: Indices along the tokens of an output (B, T, C); all when left out.
    """
    source, target = on_device(source, model), on_device(target, model)
    if source.shape != target.shape or source.ndim != 4 or len(source) != 1:
        raise UserError(
            f"patching takes two images of shape (1, C, H, W), not {tuple(source.shape)} and "
            f"{tuple(target.shape)}"
        )
    structure = ModelStructure(model, source)
    chosen = [unit for unit in structure.chosen_units(units) if unit.kind != "head"]
    names = [unit.name for unit in chosen]
    if not names:
        raise UserError(f"no unit of {type(model).__name__} can be patched")
    with capture.evaluating(model):
        with capture.features(model, names) as kept:
            first = capture.logits_of(model(source))[0]
        second = capture.logits_of(model(target))[0]
        pair = classes or (int(first.argmax()), int(second.argmax()))
        if pair[0] == pair[1]:
            raise UserError(
                f"both images are given class {pair[0]}; give two that differ, or classes="
            )
        high, low = (float(logits[pair[0]] - logits[pair[1]]) for logits in (first, second))
        if high == low:
            raise UserError("both images have the same logits, so there is nothing to move")
        moved = {}
        for name in names:
            run = name if "@" in name else f"{name}@1"
            with capture.edit(model, {run: _replaced(kept[name], tokens, name)}):
                logits = capture.logits_of(model(target))[0]
            moved[name] = (float(logits[pair[0]] - logits[pair[1]]) - low) / (high - low)
    return Patching(
        moved=moved,
        kind={unit.name: unit.kind for unit in chosen},
        classes=pair,
        scores=(high, low),
        tokens=None if tokens is None else tuple(tokens),
    )


def _replaced(kept: Tensor, tokens: Sequence[int] | None, name: str) -> Any:
    """The edit that puts a kept output, or some of its tokens, in place of the unit's own."""
    if tokens is None:
        return lambda output: kept
    if kept.ndim != 3 or not all(-kept.shape[1] <= token < kept.shape[1] for token in tokens):
        raise UserError(f"{name} puts out {tuple(kept.shape)}, which has no tokens {list(tokens)}")

    def some(output: Tensor) -> Tensor:
        output = output.clone()
        output[:, list(tokens)] = kept[:, list(tokens)]
        return output

    return some
