"""One update of a segmentation model: cross-entropy over the pixels that have a label."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError

__all__ = ["pixel_loss", "segmentation_step"]


def pixel_loss(logits: Tensor, masks: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Mean cross-entropy over labelled pixels; 0 where there are none.

    Args:
        logits: (B, K, height, width).
        masks: Classes from 0, or ``ignore_index``. (B, height, width)

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


def segmentation_step(
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    optimizer: torch.optim.Optimizer,
    *,
    ignore_index: int = 255,
) -> float:
    """Make one update and return the loss before it.

    Raises:
        UserError: If the loss is not finite; the weights are left as they are.
    """
    model.train()
    optimizer.zero_grad()
    loss = pixel_loss(model(images), masks, ignore_index=ignore_index)
    if not loss.isfinite():
        raise UserError(f"the loss is {loss.item()}; lower the learning rate")
    loss.backward()
    optimizer.step()
    return loss.item()
