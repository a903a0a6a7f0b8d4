"""Top-1 accuracy, for masking and lesions."""

from collections.abc import Sequence

from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError

__all__ = ["accuracy"]


def accuracy(model: nn.Module, pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Share of images, 0 to 1, whose largest logit is their label's; soft labels by their peak."""
    right = total = 0
    with capture.evaluating(model):
        for images, labels in pairs:
            logits = capture.logits_of(model(images))
            if logits.ndim != 2:
                raise UserError(f"accuracy needs logits (B, classes), got {tuple(logits.shape)}")
            target = labels.argmax(1) if labels.ndim == 2 else labels
            right += int((logits.argmax(1) == target).sum())
            total += len(images)
    return right / total
