"""The loss of a segmentation model: cross-entropy over the pixels that have a label."""

from torch import Tensor
from torch.nn import functional as F

from vitascope.errors import UserError


def pixel_loss(logits: Tensor, masks: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Mean cross-entropy over labelled pixels; 0 where there are none.

    Args:
        logits: (B, K, height, width).
        masks: Classes from 0, or ``ignore_index``. (B, height, width)

    >>> import torch
    >>> round(pixel_loss(torch.zeros(1, 4, 2, 2), torch.tensor([[[0, 1], [3, 255]]])).item(), 4)
    1.3863
    >>> pixel_loss(torch.zeros(1, 4, 1, 1), torch.tensor([[[255]]])).item()
    0.0
    """
    if logits.shape[0] != masks.shape[0] or logits.shape[2:] != masks.shape[1:]:
        raise UserError(
            f"logits {tuple(logits.shape)} and masks {tuple(masks.shape)} differ in size; masks "
            "are (B, height, width) of the images"
        )
    total = F.cross_entropy(logits, masks, ignore_index=ignore_index, reduction="sum")
    return total / (masks != ignore_index).sum().clamp(min=1)
