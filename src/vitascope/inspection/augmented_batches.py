"""Augmented training images: the fixed batches on which curvature is measured."""

from itertools import count, islice
from pathlib import Path
from typing import Any

from torch import Tensor

from vitascope.data import TrainBatches, subset
from vitascope.errors import UserError
from vitascope.loading.session import Session
from vitascope.training import Recipe, load_run, recipe


def recipe_of(subject: str, name: str | None = None) -> Recipe:
    """The recipe a run was trained with; for any other model the one named (laptop)."""
    if Path(subject).is_dir() and name is None:
        return load_run(subject).recipe
    return recipe(name or "laptop")


def augmented_batches(
    session: Session, plan: Recipe, *, num_batches: int, batch_size: int, seed: int = 0
) -> list[tuple[Tensor, Tensor]]:
    """Images and targets of the first batches that training with this seed would see.

    Mixing and label smoothing make the targets probabilities; they are part of the loss. The
    images are those of the recipe's subset, in the model's normalisation.
    """
    if num_batches < 1 or batch_size < 1:
        raise UserError(f"give at least 1 batch of 1 image, not {num_batches} of {batch_size}")
    images = session.images
    mean, std = session.statistics
    batches = TrainBatches(
        subset(images.train, plan.subset),
        batch_size=batch_size,
        augmentation=plan.augmentation,
        num_classes=len(images.classes),
        mean=mean,
        std=std,
        flips=images.flips,
        seed=seed,
        one_class=True,
    )

    def endless() -> Any:
        for epoch in count():
            yield from batches.epoch(epoch)

    device = session.device
    return [
        (batch.images.to(device), batch.targets.to(device))
        for batch in islice(endless(), num_batches)
    ]
