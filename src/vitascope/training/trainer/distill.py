"""Distillation from a teacher (Touvron et al. 2020, https://arxiv.org/abs/2012.12877, section 4).

    hard:  (1 - a) CE(cls, targets) + a CE(dist, argmax teacher(x))               a = 1/2
    soft:  (1 - a) CE(cls, targets) + a T^2 KL(softmax(teacher/T) || softmax(dist/T))

x are the very images the student sees, mixed and erased. ``targets`` are the mixed ones. A model
with a distillation head gives a pair (cls, dist) in training; one without uses its only head for
both terms. The KL is a mean over images, as in the paper; DeiT's released code divides by the
number of classes as well.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import logits_of
from vitascope.errors import UserError, listed
from vitascope.training.classes import columns

__all__ = ["Teacher", "distillation_loss"]


class Teacher(nn.Module):
    """A trained model with the statistics and the size of the images it expects.

    ``mean``, ``std`` and ``image_size`` left out mean: as the student's. ``Teacher.of_timm`` takes
    them from a timm model's pretrained configuration. A teacher with the names of its ``classes``
    teaches those of the student, in the student's order; without, it must have as many.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        image_size: tuple[int, int] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.mean, self.std, self.image_size, self.classes = mean, std, image_size, classes
        self.columns: list[int] | None = None
        self.scale: Tensor | None = None
        self.shift: Tensor | None = None

    @classmethod
    def of_timm(cls, model: nn.Module) -> "Teacher":
        """A teacher with the pretrained configuration timm gave the model."""
        config: Any = model.pretrained_cfg
        return cls(
            model, mean=config["mean"], std=config["std"], image_size=config["input_size"][1:]
        )

    def meet(
        self,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        size: tuple[int, int, int],
        classes: Sequence[str],
    ) -> "Teacher":
        """Prepare for images (C, H, W) normalised with ``mean`` and ``std``; check the classes.

        Raises:
            UserError: If the teacher does not take such images, or has other classes.
        """
        if self.classes is not None and tuple(self.classes) != tuple(classes):
            try:
                self.columns = columns(classes, self.classes).tolist()
            except UserError:
                raise UserError(
                    f"the teacher knows {listed(self.classes)}, the images have {listed(classes)}; "
                    "give a teacher trained on these classes"
                ) from None
        own_mean, own_std = self.mean or mean, self.std or std
        channels = max(len(mean), len(own_mean))
        a, b, c, d = (_wide(v, channels) for v in (mean, std, own_mean, own_std))
        self.scale, self.shift = b / d, (a - c) / d
        try:
            num_outputs = self(torch.zeros(1, *size, device=next(self.parameters()).device)).shape[
                -1
            ]
        except (RuntimeError, AssertionError, ValueError) as error:
            raise UserError(
                f"the teacher does not take images of {size}: {error}; give its image_size"
            ) from error
        if num_outputs != len(classes):
            raise UserError(
                f"the teacher has {num_outputs} classes, the images have {len(classes)}; "
                "give a teacher trained on these classes"
            )
        return self

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Logits for the student's images. (b, K)"""
        self.model.eval()
        if self.scale is not None and self.shift is not None:
            images = images * self.scale.to(images) + self.shift.to(images)
        if self.image_size is not None and tuple(images.shape[-2:]) != tuple(self.image_size):
            images = F.interpolate(images, self.image_size, mode="bicubic", antialias=True)
        logits = logits_of(self.model(images))
        return logits if self.columns is None else logits[:, self.columns]


def _wide(values: tuple[float, ...], channels: int) -> Tensor:
    """One value per channel, as an image; a grey image becomes one of three equal channels."""
    tensor = torch.tensor(values, dtype=torch.float32)
    return (tensor.expand(channels) if len(values) == 1 else tensor).view(1, -1, 1, 1)


def distillation_loss(
    cls: Tensor, dist: Tensor, targets: Tensor, teacher: Tensor, kind: str, alpha: float, t: float
) -> Tensor:
    """The loss of the module's docstring, a mean over images.

    Args:
        cls: Logits of the class head. (b, K)
        dist: Logits of the distillation head, or the same again. (b, K)
        targets: Labels (b,) or distributions (b, K).
        teacher: The teacher's logits on the same images. (b, K)
        kind: "hard" or "soft".
        alpha: Share of the teacher's term.
        t: Temperature, for "soft".
    """
    own = F.cross_entropy(cls, targets)
    if kind == "hard":
        taught = F.cross_entropy(dist, teacher.argmax(dim=-1))
    else:
        taught = (
            t
            * t
            * F.kl_div(
                F.log_softmax(dist / t, dim=-1),
                F.log_softmax(teacher / t, dim=-1),
                reduction="batchmean",
                log_target=True,
            )
        )
    return (1 - alpha) * own + alpha * taught
