"""One update of the weights: forward, loss, backward, clip, step, average.

Randomness inside the model (drop path, dropout) is seeded anew from (seed, step, rank) before each
update, so a run that resumes at step n needs nothing but n. The batch is cut into
``recipe.accumulation`` parts whose losses are weighted by their size: the update is that of the
whole batch.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import heads_of, logits_of
from vitascope.data import Batch
from vitascope.training.distributed import TrainingProcess
from vitascope.training.recipes.config import Recipe
from vitascope.training.trainer.distill import Teacher, distillation_loss
from vitascope.training.trainer.optimizer import (
    Average,
    ascend,
    descend,
    frozen_running_statistics,
    set_lr,
)
from vitascope.training.trainer.task import Task


def reseed(seed: int, step: int, rank: int) -> None:
    """Seed torch's generators from the seed, the step and the rank."""
    torch.manual_seed(int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0]))


def memory_format_of(model: nn.Module) -> torch.memory_format:
    """The order of the images' channels in memory: last for networks of convolutions.

    With 16 images on one CPU core EfficientNet-Lite0 trains 1.4 (64 pixels) to 1.5 times (96) as
    fast so, RegNetY 1.2 times, a ResNet-18 as fast. Networks that hold most of their weights
    elsewhere keep channels first, those that choose for themselves (``memory_format``) are left to
    it. With AVX2 oneDNN writes past the gradient of a strided 1 x 1 convolution that has fewer than
    eight channels last, so narrow networks keep channels first, too.
    """
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    inside = sum(m.weight.numel() for m in convolutions)
    narrow = any(
        m.in_channels < 8 and m.kernel_size == (1, 1) and m.stride != (1, 1) for m in convolutions
    )
    mostly = 2 * inside > sum(p.numel() for p in model.parameters())
    if mostly and not narrow and not hasattr(model, "memory_format"):
        return torch.channels_last
    return torch.contiguous_format


class Update:
    """Model, optimizer, EMA, and teacher or task, and the update that joins them."""

    def __init__(
        self,
        process: TrainingProcess,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        *,
        seed: int,
        teacher: Teacher | None = None,
        task: Task | None = None,
    ) -> None:
        self.process, self.model, self.recipe, self.seed = process, model, recipe, seed
        self.optimizer: Any = process.accelerator.prepare_optimizer(optimizer)
        self.teacher, self.task = teacher, task  # no task: classification
        self.learning = [p for p in model.parameters() if p.requires_grad]
        plain = process.plain(model)
        self.average = Average(plain, recipe.ema) if recipe.ema is not None else None
        self.memory_format = memory_format_of(plain)

    def __call__(self, batch: Any, step: int, lr: float) -> tuple[Tensor, Tensor, int]:
        """Make update number ``step``; return loss and NLL as sums over so many images.

        The images are this process's. A task has its mean loss twice, counted once.
        """
        set_lr(self.optimizer, lr)
        self.optimizer.zero_grad()
        sums = self._backward(batch, step)
        if self.recipe.sam is not None:
            before = ascend(self.learning, self.recipe.sam)
            with frozen_running_statistics(self.model):
                self._backward(batch, step)
            descend(before)
        if self.recipe.clip_grad is not None:
            self.process.accelerator.unscale_gradients(self.optimizer)
            nn.utils.clip_grad_norm_(self.learning, self.recipe.clip_grad)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.process.plain(self.model))
        return sums

    def _backward(self, batch: Any, step: int) -> tuple[Tensor, Tensor, int]:
        """Add the gradients of the batch's mean loss to what is there."""
        reseed(self.seed, step, self.process.rank)
        if self.task is None:
            return (*self._classify(batch), len(batch))
        with self.process.accelerator.autocast():
            loss = self.task.loss(self.model, batch, self.process.device)
        self.process.accelerator.backward(loss)
        return loss.detach(), loss.detach(), 1

    def _classify(self, batch: Batch) -> tuple[Tensor, Tensor]:
        device, parts = self.process.device, min(self.recipe.accumulation, len(batch))
        images, targets = batch.images, batch.targets
        losses, nlls = [], []
        for part in range(parts):
            rows = slice(len(batch) * part // parts, len(batch) * (part + 1) // parts)
            share = (rows.stop - rows.start) / len(batch)
            x = images[rows].to(device, memory_format=self.memory_format, non_blocking=True)
            y = targets[rows].to(device, non_blocking=True)
            with self.process.unsynced(self.model, last=part == parts - 1):
                with self.process.accelerator.autocast():
                    output = self.model(x)
                loss = self._loss(output, x, y)
                self.process.accelerator.backward(loss * share if parts > 1 else loss)
            losses.append(loss.detach() * (rows.stop - rows.start))
            if batch.targets.ndim > 1 or self.teacher is not None:
                labels = batch.labels[rows].to(device, non_blocking=True)
                nll = F.cross_entropy(logits_of(output).detach(), labels, reduction="sum")
            else:
                nll = losses[-1]
            nlls.append(nll)
        return sum(losses[1:], losses[0]), sum(nlls[1:], nlls[0])

    def _loss(self, output: Any, images: Tensor, targets: Tensor) -> Tensor:
        if self.teacher is None:
            return F.cross_entropy(logits_of(output), targets)
        recipe = self.recipe
        cls, dist = heads_of(output)
        with self.process.accelerator.autocast():
            taught = self.teacher(images)
        return distillation_loss(
            cls,
            dist,
            targets,
            taught,
            recipe.distillation,
            recipe.distillation_alpha,
            recipe.distillation_temperature,
        )

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors of a checkpoint, unsharded, by part and name; every process takes part."""
        process = self.process
        parts = {
            "model": process.model_state(self.model),
            "optimizer": process.optimizer_state(self.model, self.optimizer.optimizer),
        }
        if self.average is not None:
            parts["average"] = process.whole(self.average.state)
        return parts

    def values(self) -> dict[str, Any]:
        """Return the state that is not a tensor: the fp16 loss scale."""
        scaler = self.process.accelerator.scaler
        return {"scaler": scaler.state_dict()} if scaler is not None else {}

    def load(self, tensors: Any, values: Any) -> None:
        """The reverse of :meth:`tensors` and :meth:`values`."""
        self.process.load_model(self.model, tensors["model"])
        optimizer = self.optimizer.optimizer
        self.process.load_optimizer(self.model, optimizer, tensors["optimizer"])
        if self.average is not None:
            self.process.share_into(self.average.state, tensors["average"])
        if values.get("scaler") and self.process.accelerator.scaler is not None:
            self.process.accelerator.scaler.load_state_dict(values["scaler"])
