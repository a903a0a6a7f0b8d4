"""Predictions of a classifier: for every image the class, its probability and the label.

Enough for paired tests, class-wise and balanced accuracies and their intervals, without the model.
A run keeps it as ``predictions.safetensors``, 12 bytes per image (16 beyond 65,536 classes).
Reading them does not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vitascope.atomic import replacing
from vitascope.errors import UserError, reason
from vitascope.training.run_folder.lock import explain_write_errors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Collector", "Predictions", "load_predictions", "save_predictions"]

FILE = "predictions.safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """One entry per image, in the order of the set; classes are numbers of the model's outputs."""

    predicted: np.ndarray  # (N,) uint16, or int32 for more than 65,536 classes
    probability: np.ndarray  # (N,) float32, of the true class
    label: np.ndarray  # (N,) like predicted
    confidence: np.ndarray | None = None  # (N,) float32, of the predicted class; old runs have none

    @property
    def correct(self) -> np.ndarray:
        """Correctly classified images. (N,) bool"""
        return np.asarray(self.predicted == self.label)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The predictions as named arrays, for a file."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    def at(self, which: slice | np.ndarray) -> "Predictions":
        """Return the predictions for some of the images."""
        return Predictions(**{name: array[which] for name, array in self.arrays.items()})


class Collector:
    """Gathers predictions batch by batch."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []  # each (5, b): index, and the entries of Predictions

    def add(self, logits: "Tensor", labels: "Tensor", indices: "Tensor") -> None:
        """One batch.

        Args:
            logits: (b, K)
            labels: (b,)
            indices: Position of each image in its set. (b,)
        """
        import torch

        log_p = torch.log_softmax(logits.detach().cpu().double(), dim=-1)
        labels = labels.cpu()
        # the first of five, as for top-1: ties are broken alike
        predicted = log_p.topk(min(5, log_p.shape[-1]), dim=-1).indices[:, 0]
        true, confidence = (log_p.gather(1, k[:, None])[:, 0].exp() for k in (labels, predicted))
        self.rows.append(torch.stack([indices.cpu().double(), predicted, true, labels, confidence]))

    def joined(
        self,
        num_classes: int,
        num_images: int,
        combine: "Callable[[Tensor], Tensor] | None" = None,
    ) -> Predictions:
        """All images of all processes, by their position.

        Args:
            num_classes: Decides the type of the numbers.
            num_images: Over all processes.
            combine: Adds a tensor up over processes, which hold disjoint parts.
        """
        import torch

        rows = torch.cat(self.rows, dim=1) if self.rows else torch.zeros(5, 0)
        if combine is None:
            columns = rows[1:, rows[0].argsort(stable=True)]
        else:
            columns = torch.zeros(4, num_images, dtype=torch.float64)
            columns[:, rows[0].long()] = rows[1:].double()
            columns = combine(columns)
        predicted, probability, label, confidence = columns.numpy()
        kind = np.uint16 if num_classes <= 2**16 else np.int32
        return Predictions(
            predicted=predicted.astype(kind),
            probability=probability.astype(np.float32),
            label=label.astype(kind),
            confidence=confidence.astype(np.float32),
        )


def save_predictions(folder: Path, predictions: Predictions) -> None:
    """Write a run's predictions; the file appears whole or not at all."""
    with explain_write_errors(folder / FILE), replacing(folder / FILE) as temporary:
        save_file(predictions.arrays, temporary)


def load_predictions(folder: Path) -> Predictions | None:
    """The predictions that a run kept; None if there are none.

    Raises:
        UserError: If the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return Predictions(**load_file(path))
    except (OSError, SafetensorError, TypeError) as error:
        raise UserError(f"{path} holds no predictions: {reason(error)}") from None
