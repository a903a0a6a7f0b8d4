"""FGSM: accuracy under an adversarial attack of one gradient step.

FGSM (Goodfellow et al. 2015, https://arxiv.org/abs/1412.6572) takes one step along the sign of the
loss's gradient:

    x' = clip(x + eps sign(dL/dx))

x are *pixels* in [0, 1] and so is epsilon: 1/255 is one step of an 8-bit image, in every channel,
whatever the model normalises by. clip is to [0, 1]. L is the cross-entropy with the label, or with
the model's own prediction (``against="prediction"``), which leaks no label. The context
broadcasting supplement (Table S2: ViT-S 11.8 %, with CB 15.5 %) does not give its epsilon.

Deviation: instead of L = -log p the gradient is taken of log((1 - p) / p). Its sign is the same,
for it rises with L; but where p rounds to 1 the gradient of L rounds to 0 and a confident model
would look robust. Images whose gradient is still zero everywhere (a dead ReLU) are counted in
``num_stuck``: the accuracy is too high there. The model is in eval mode, its parameters get no
gradient. Accuracies are fractions, 0 to 1.

Shapes: B images, C channels, H x W pixels, K classes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.curvature.objective import differentiable_output
from vitascope.measure.robustness.changed_images import (
    ChangedImageResult,
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
    classes_of,
)
from vitascope.settings import checked

__all__ = ["Attack", "attacked_labels", "fgsm", "gradient", "log_odds", "one_step", "strengths"]

EPSILONS = (1 / 255, 2 / 255, 4 / 255, 8 / 255)

OnStep = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class Attack(ChangedImageResult):
    """Accuracy, 0 to 1, under attacks of each strength."""

    epsilons: tuple[float, ...]  # largest change of a pixel in [0, 1]
    against: str
    num_stuck: int | None = None  # images without any gradient; of FGSM
    steps: int = 1
    step_sizes: tuple[float, ...] = ()  # of each epsilon
    random_start: bool = False
    seed: int | None = None


class FGSM(Attack, kind="fgsm"):
    """Accuracy under one step along the gradient's sign."""


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """log((1 - p) / p) of the labels: of logits (B, K), as exact for p near 1 as near 0. (B,)"""
    if logits.shape[1] < 2:
        raise UserError("an attack needs two classes to choose between; the model has one")
    label = labels[:, None]
    others = logits.scatter(1, label, -torch.inf)
    return others.logsumexp(1) - logits.gather(1, label)[:, 0]


def gradient(model: nn.Module, pixels: Tensor, labels: Tensor, space: Pixels) -> Tensor:
    """Gradient of the log odds against the label with respect to the pixels. (B, C, H, W)"""
    with torch.enable_grad():
        leaf = pixels.detach().clone().requires_grad_(True)
        logits = capture.logits_of(differentiable_output(model, space.normalised(leaf)))
        (grad,) = torch.autograd.grad(log_odds(logits, labels).sum(), leaf)
    return grad


def one_step(start: Tensor, pixels: Tensor, slope: Tensor, step: float, epsilon: float) -> Tensor:
    """From ``start`` along the sign of ``slope``, no further than epsilon from ``pixels``."""
    moved = start + step * slope.sign()
    return moved.clamp(min=pixels - epsilon, max=pixels + epsilon).clamp(0, 1)


@checked
def fgsm(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    epsilons: Sequence[float] = EPSILONS,
    against: Literal["label", "prediction"] = "label",
    on_step: OnStep = lambda step, ahead: None,
) -> Attack:
    """Measure accuracy under one step along the gradient's sign.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), normalised with ``mean`` and ``std``.
        mean: Of each channel, for pixels in [0, 1].
        std: Of each channel.
        epsilons: Largest changes of a pixel; 1/255 is one step of 8 bits.
        against: The loss's labels: the true ones, or the model's own.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
    """
    epsilons, space, stuck = strengths(epsilons), Pixels(mean=mean, std=std), [0]

    def change(batch: LabelledBatch) -> Iterable[tuple[float, Tensor]]:
        pixels, labels = space.of(batch.images), attacked_labels(model, batch, against)
        slope = gradient(model, pixels, labels, space)
        stuck[0] += int((slope.flatten(1) == 0).all(1).sum())
        for epsilon in epsilons:
            yield epsilon, space.normalised(one_step(pixels, pixels, slope, epsilon, epsilon))

    measured = accuracy_on_changed_images(model, batches, change, on_step=on_step, name="fgsm")
    return FGSM.of(
        measured, epsilons=epsilons, against=against, num_stuck=stuck[0], step_sizes=epsilons
    )


def strengths(epsilons: Sequence[float]) -> tuple[float, ...]:
    """The epsilons, each once."""
    if not len(epsilons) or not all(0 <= epsilon <= 1 for epsilon in epsilons):
        raise UserError(
            "epsilons are changes of pixels between 0 and 1, such as 8/255 = 0.0314; "
            f"got {list(epsilons)}"
        )
    return tuple(dict.fromkeys(float(epsilon) for epsilon in epsilons))


def attacked_labels(model: nn.Module, batch: LabelledBatch, against: str) -> Tensor:
    """Labels that the attack moves predictions away from. (B,)"""
    if against == "label":
        return batch.labels
    return classes_of(capture.logits_of(model(batch.images)), batch.labels)
