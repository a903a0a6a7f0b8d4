"""Semantic segmentation in the layout of ADE20K: any backbone under a head, measured by mIoU.

The context-broadcasting paper (Hyeon-Woo et al. 2023) trains its backbones on ADE20K under UPerNet.
Its recipe is not in our documents: the recipe ``segmentation`` is Swin's.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.data import SegmentationFolder
from vitascope.errors import UserError
from vitascope.measure.mean_iou import MeanIoU, miou
from vitascope.models.segmentation.segmenter import Segmenter, segmenter
from vitascope.record import Record
from vitascope.training.trainer.segmentation import pixel_loss


def class_names(root: str | Path) -> tuple[str, ...]:
    """Names of the classes 1, 2, ... of the masks: ``classes.txt``, one per line, or ADE20K's 150.

    ADE20K's release says them in ``objectInfo150.txt``; the last column is the name.
    """
    own, theirs = Path(root) / "classes.txt", Path(root) / "objectInfo150.txt"
    if own.is_file():
        names = [line.strip() for line in own.read_text(encoding="utf-8").splitlines()]
        names = [name for name in names if name]
        if not names:
            raise UserError(f"{own} is empty; write the name of a class on each line")
        return tuple(names)
    if theirs.is_file():
        lines = theirs.read_text(encoding="utf-8").splitlines()[1:]
        return tuple(line.split("\t")[-1].strip() for line in lines if line.strip())
    return tuple(f"class {number}" for number in range(1, 151))


class Segmentation:
    """A class for every pixel."""

    name, metric, label = "segmentation", "miou", "mean IoU"
    columns: tuple[str, ...] = ("miou", "pixel_accuracy")

    def __init__(
        self, root: str | Path, *, side: int, batch_size: int, seed: int = 0, num_workers: int = 0
    ) -> None:
        self.root, self.side, self.batch_size = Path(root), side, batch_size
        self.classes, self.num_workers = class_names(root), num_workers
        shared: dict[str, Any] = {"side": side, "num_classes": len(self.classes), "seed": seed}
        self.train = SegmentationFolder(root, "training", **shared)
        self.test = SegmentationFolder(root, "validation", **shared)
        if batch_size > len(self.train):
            raise UserError(
                f"batches of {batch_size} from {len(self.train)} images; give --set batch_size="
            )
        self.steps = len(self.train) // batch_size

    def config(self) -> dict[str, Any]:
        """Location, number and classes of the images, for ``config.yaml``."""
        return {
            "name": f"ade20k:{self.root}",
            "size": [3, self.side, self.side],
            "num_classes": len(self.classes),
            "classes": list(self.classes),
            "train_images": len(self.train),
            "test_images": len(self.test),
        }

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """Shuffled, cropped and mirrored; (images, masks)."""
        batches = self.train.batches(self.batch_size, epoch=epoch, num_workers=self.num_workers)
        yield from islice(batches, start, None)

    def loss(self, model: nn.Module, batch: Any, device: torch.device) -> Tensor:
        """Return the cross-entropy over labelled pixels."""
        images, masks = (part.to(device) for part in batch)
        return pixel_loss(model(images), masks)

    def miou(self, model: nn.Module) -> MeanIoU:
        """Return the mean IoU over all validation images, whole, through windows of ``side``."""
        return miou(model, self.test.batches(1, num_workers=self.num_workers), window=self.side)

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Return mIoU and pixel accuracy."""
        result = self.miou(model)
        return {"miou": result.mean, "pixel_accuracy": result.pixel_accuracy}

    def record(self, model: nn.Module) -> Record:
        """Return a record of the measurement with every class."""
        record = self.miou(model).to_record()
        return replace(record, values={**record.values, "classes": list(self.classes)})


def build_segmenter(name: str, task: Segmentation, **how: Any) -> Segmenter:
    """A head on a backbone by name, for the task's crops; ``how`` is of :func:`segmenter`."""
    count = len(task.classes)
    try:
        return segmenter(name, count, img_size=task.side, **how)
    except UserError as error:
        if "img_size" not in str(error):
            raise
        return segmenter(name, count, **how)  # a network that takes any size
