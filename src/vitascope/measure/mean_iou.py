"""Mean intersection over union (mIoU) of a segmentation model.

    IoU[k] = TP[k] / (TP[k] + FP[k] + FN[k]),      mIoU = mean over the classes k that occur,

over all pixels of all images together, as on ADE20K (Zhou et al. 2017) and PASCAL VOC: one
confusion matrix for the whole set, not a mean over images. Pixels labelled ``ignore_index`` do not
count. A class that is neither in the labels nor predicted has no IoU (NaN) and is left out of the
mean; one that is predicted but never there counts as 0.

An image larger than ``window`` is seen through square windows that overlap by a third and whose
logits are averaged, and the logits are interpolated to the size of the mask: the protocol of the
published numbers. 0 to 1.

Shapes: B images, K classes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope import capture
from vitascope.capture.input_check import require_weights
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.batches import each_batch, normal_tensor, split
from vitascope.settings import checked

__all__ = ["MeanIoU", "class_iou", "confusion", "miou", "windowed_logits"]


@dataclass(frozen=True, kw_only=True)
class MeanIoU(InstrumentResult, kind="miou"):
    """Intersection over union of every class, and the pixels behind it."""

    confusion: np.ndarray  # (K, K) pixels, rows are labels and columns predictions
    num_images: int

    @property
    def per_class(self) -> np.ndarray:
        """IoU, 0 to 1; NaN for classes that do not occur. (K,)"""
        return class_iou(self.confusion)

    @property
    def mean(self) -> float:
        """mIoU over the classes that occur."""
        return float(np.nanmean(self.per_class))

    @property
    def pixel_accuracy(self) -> float:
        """Share of labelled pixels that are right."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    def summary(self) -> dict[str, Any]:
        """Return the means over classes and pixels."""
        return {
            "miou": self.mean,
            "pixel_accuracy": self.pixel_accuracy,
            "num_classes": len(self.confusion),
        }

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return the confusion matrix, and the IoU of each class."""
        return {**super().record_arrays(), "per_class": self.per_class}


def confusion(
    predicted: Tensor, labels: Tensor, num_classes: int, ignore_index: int = 255
) -> Tensor:
    """Count pixels by label (row) and prediction (column). (K, K)

    Matrices of several batches add up.

    >>> confusion(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 255]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    if predicted.shape != labels.shape:
        raise UserError(f"predictions {tuple(predicted.shape)} and labels {tuple(labels.shape)}")
    counted = labels != ignore_index
    labels, predicted = labels[counted].long(), predicted[counted].long()
    for name, values in (("label", labels), ("prediction", predicted)):
        wrong = values[(values < 0) | (values >= num_classes)]
        if len(wrong):
            raise UserError(
                f"{name} {int(wrong[0])} is out of range; {num_classes} classes run from 0 to "
                f"{num_classes - 1}, and {ignore_index} is ignored"
            )
    pairs = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return pairs.view(num_classes, num_classes)


def class_iou(matrix: np.ndarray) -> np.ndarray:
    """IoU of each class from a confusion matrix; NaN where the class does not occur. (K,)

    >>> class_iou(np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]])).round(3).tolist()
    [0.75, 0.667, nan]
    """
    right = np.diag(matrix).astype(float)
    union = matrix.sum(0) + matrix.sum(1) - right
    return np.divide(right, union, out=np.full(len(matrix), np.nan), where=union > 0)


def starts(size: int, window: int) -> Iterator[int]:
    """Return where windows begin that cover an axis, overlapping by a third.

    >>> list(starts(20, 9)), list(starts(9, 9))
    ([0, 6, 11], [0])
    """
    stride = max(1, window * 2 // 3)
    for index in range(max(0, -(-(size - window) // stride)) + 1):
        yield min(index * stride, size - window)


def windowed_logits(model: nn.Module, images: Tensor, window: int | None) -> Tensor:
    """Logits of images of any size, averaged over windows. (B, K, height, width)"""
    height, width = images.shape[2:]
    if window is None or (height, width) == (window, window):
        return model(images)
    if min(height, width) < window:
        raise UserError(f"images of {height} x {width} are smaller than the window, {window}")
    total: Any = 0.0
    count = images.new_zeros(1, 1, height, width)
    for top in starts(height, window):
        for left in starts(width, window):
            logits = model(images[..., top : top + window, left : left + window])
            outside = (left, width - left - window, top, height - top - window)
            total = total + F.pad(logits, outside)
            count[..., top : top + window, left : left + window] += 1
    return total / count


@checked
def miou(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    window: int | None = None,
    ignore_index: int = 255,
) -> MeanIoU:
    """Measure ``model`` on images with masks.

    Args:
        model: Images to logits (B, K, height, width); it is left unchanged.
        batches: (images, masks); masks hold classes from 0 and may be larger than the images.
        window: Side of the images the model takes; None hands them over whole.
        ignore_index: The label of pixels that do not count.
    """
    require_weights(model)
    matrix: Tensor | None = None
    num_images = 0
    device = next((p.device for p in model.parameters()), None)
    with capture.evaluating(model):
        for batch in each_batch(batches):
            images, masks = split(batch)
            if masks is None or masks.ndim != 3:
                raise UserError("miou needs batches of (images, masks), masks (B, height, width)")
            logits = windowed_logits(model, normal_tensor(images.to(device)), window)
            if logits.ndim != 4:
                raise UserError(f"miou needs logits of every pixel, got {tuple(logits.shape)}")
            if logits.shape[2:] != masks.shape[1:]:
                size = tuple(masks.shape[1:])
                logits = F.interpolate(logits, size, mode="bilinear", align_corners=False)
            counts = confusion(logits.argmax(1).cpu(), masks.cpu(), logits.shape[1], ignore_index)
            matrix = counts if matrix is None else matrix + counts
            num_images += len(images)
    if matrix is None or not int(matrix.sum()):
        raise UserError("no labelled pixels to measure on: the batches are empty or all ignored")
    return MeanIoU(confusion=matrix.numpy(), num_images=num_images)
