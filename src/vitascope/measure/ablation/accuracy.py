"""Which images a model gets right, for masking and lesions."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError


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
