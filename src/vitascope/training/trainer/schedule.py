"""The learning rate at a step: a pure function, so a resumed run needs no scheduler state.

Warm-up rises in a straight line from ``warmup_lr`` and lies over the cosine rather than before it,
as in timm and so in DeiT: with 5 warm-up epochs of 300, epoch 5 is already 5/300 down the cosine.

    lr(t) = min_lr + (base - min_lr) (1 + cos(pi t / T)) / 2        t >= warm-up

With ``schedule_by="epoch"`` t counts whole epochs (DeiT); with ``"step"`` it moves every step.
"""

import math
from collections.abc import Callable

from vitascope.training.recipes.config import Recipe


def learning_rate(recipe: Recipe, steps_per_epoch: int) -> Callable[[int], float]:
    """The function from a step (0 is the first) to its learning rate."""
    per_step = recipe.schedule_by == "step"
    total = recipe.total_epochs * (steps_per_epoch if per_step else 1)
    warmup = recipe.warmup_epochs * recipe.epoch_factor * (steps_per_epoch if per_step else 1)
    base, least = recipe.base_lr, recipe.min_lr

    def lr(step: int) -> float:
        t = step if per_step else step // steps_per_epoch
        if t < warmup:
            return recipe.warmup_lr + (base - recipe.warmup_lr) * t / warmup
        if recipe.schedule == "constant":
            return base
        done = min(t / total, 1.0)
        left = (1 + math.cos(math.pi * done)) / 2 if recipe.schedule == "cosine" else 1 - done
        return least + (base - least) * left

    return lr
