"""Tasks for the trainer: batches, loss and evaluation."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vitascope.data import Batch, EvalBatches, TrainBatches
from vitascope.training.distributed import TrainingProcess
from vitascope.training.evaluation import evaluate


class Learning(Protocol):
    """Interface that the trainer needs: :class:`Classification`, or a :class:`Task`."""

    metric: str  # the number that says how good a model is, larger is better: "miou"
    label: str  # the same in words: "mean IoU"
    columns: tuple[str, ...]  # all that is measured
    steps: int  # batches of an epoch

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """The batches of an epoch from number ``start`` on."""

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Return ``columns`` on the test data, and ``predictions`` to keep when training ends."""


class Task(Learning, Protocol):
    """A task other than classification."""

    name: str  # "segmentation"

    def config(self) -> dict[str, Any]:
        """Describe the data for ``config.yaml``."""

    def loss(self, model: nn.Module, batch: Any, device: torch.device) -> Tensor:
        """The mean loss of a batch."""


class Classification:
    """Images with a class each; several processes measure disjoint parts of the test images."""

    metric, label = "top1", "top-1"
    columns: tuple[str, ...] = ("test_nll", "test_error", "top1", "top5", "ece")

    def __init__(
        self, process: TrainingProcess, training: TrainBatches, tests: EvalBatches
    ) -> None:
        self.process, self.training, self.tests = process, training, tests
        self.steps = len(training)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from number ``start`` on."""
        return self.training.epoch(epoch, start=start)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Accuracies, NLL and calibration on the test images, with the predictions."""
        rounds, process = None, self.process
        if process.fsdp:
            mine = torch.tensor([float(len(self.tests))], device=process.device)
            rounds = int(process.accelerator.gather(mine).max())
        result = evaluate(model, self.tests, combine=process.total, rounds=rounds)
        numbers = (result.nll, result.error, result.top1, result.top5, result.ece)
        return {
            **dict(zip(self.columns, numbers, strict=True)),
            "predictions": result.predictions,
        }
