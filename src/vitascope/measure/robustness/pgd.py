"""PGD: accuracy under an adversarial attack of many gradient steps.

PGD (Madry et al. 2018, https://arxiv.org/abs/1706.06083) climbs the loss from a random start and
never leaves the box of FGSM (:mod:`vitascope.measure.robustness.fgsm`):

    x' <- clip(proj(x' + a sign(dL/dx'))),   proj onto |x' - x| <= eps,   a = 2.5 eps / steps

in *pixels* in [0, 1], as epsilon and the step size a. One step of size epsilon from the image
itself is FGSM. The random start of an image comes from the seed and its number, not from its batch.

Shapes: B images, C channels, H x W pixels.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.robustness.changed_images import (
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
    drawn,
)
from vitascope.measure.robustness.fgsm import (
    EPSILONS,
    Attack,
    attacked_labels,
    gradient,
    one_step,
    strengths,
)
from vitascope.settings import checked

__all__ = ["pgd", "steps_of"]


class PGD(Attack, kind="pgd"):
    """Accuracy under many steps along the gradient's sign."""


def steps_of(
    model: nn.Module,
    start: Tensor,
    pixels: Tensor,
    labels: Tensor,
    space: Pixels,
    *,
    epsilon: float,
    steps: int,
    step_size: float,
) -> Tensor:
    """PGD: ``steps`` steps uphill from ``start`` within epsilon of ``pixels``."""
    for _ in range(steps):
        slope = gradient(model, start, labels, space)
        start = one_step(start, pixels, slope, step_size, epsilon)
    return start


@checked
def pgd(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    epsilons: Sequence[float] = EPSILONS,
    steps: int = 10,
    step_size: float | None = None,
    random_start: bool = True,
    against: Literal["label", "prediction"] = "label",
    seed: int = 0,
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
) -> Attack:
    """Measure accuracy under many steps along the gradient's sign.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), normalised with ``mean`` and ``std``.
        mean: Of each channel, for pixels in [0, 1].
        std: Of each channel.
        epsilons: Largest changes of a pixel; 1/255 is one step of 8 bits.
        steps: Gradients taken.
        step_size: Of each step, in pixels; 2.5 epsilon / steps when left out, as Madry et al.
        random_start: Begin anywhere within epsilon rather than at the image.
        against: The loss's labels: the true ones, or the model's own.
        seed: Of the random start; each image has its own.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
    """
    epsilons, space = strengths(epsilons), Pixels(mean=mean, std=std)
    if steps < 1 or (step_size is not None and not step_size > 0):
        raise UserError(f"PGD takes at least 1 step of a size above 0; got {steps} of {step_size}")
    sizes = tuple(2.5 * e / steps if step_size is None else step_size for e in epsilons)

    def change(batch: LabelledBatch) -> Iterable[tuple[float, Tensor]]:
        pixels, labels = space.of(batch.images), attacked_labels(model, batch, against)
        offset = torch.zeros_like(pixels)
        if random_start:
            shape = pixels.shape[1:]
            offset = drawn(seed, batch.numbers, lambda rng: rng.uniform(-1, 1, shape)).to(pixels)
        for epsilon, size in zip(epsilons, sizes, strict=True):
            start = (pixels + epsilon * offset).clamp(0, 1)
            attacked = steps_of(
                model, start, pixels, labels, space, epsilon=epsilon, steps=steps, step_size=size
            )
            yield epsilon, space.normalised(attacked)

    measured = accuracy_on_changed_images(model, batches, change, on_step=on_step, name="pgd")
    return PGD.of(
        measured,
        epsilons=epsilons,
        against=against,
        steps=steps,
        step_sizes=sizes,
        random_start=random_start,
        seed=seed,
    )
