"""Metrics log of a run: one line per epoch, and the running sums of the current epoch."""

import time
from collections.abc import Mapping
from typing import Any

from vitascope.training.trainer.task import Learning


class MetricsLog:
    """Rows of ``metrics.jsonl`` and the sums of the next one, in JSON types."""

    def __init__(self, total_epochs: int, task: Learning, labels: bool | None) -> None:
        self.total_epochs, self.task = total_epochs, task
        self.labels = labels  # whether an image has one label: not when images are mixed; None:
        # another task, whose sums are of batches
        self.rows: list[dict[str, Any]] = []
        self.sums = [0.0, 0.0, 0.0]  # loss, NLL and images of this epoch on this process
        self.seconds = 0.0  # before this process took over
        self.epoch_seconds = 0.0
        self.since = self.epoch_since = time.perf_counter()

    def begin(self) -> None:
        """Start the clock of an epoch, or of the rest of one."""
        self.epoch_since = time.perf_counter()

    def add(self, loss: float, nll: float, images: int) -> None:
        """Add an update, with sums over its images."""
        self.sums = [self.sums[0] + loss, self.sums[1] + nll, self.sums[2] + images]

    def row(self, epoch: int, step: int, lr: float, sums: list[float]) -> dict[str, Any]:
        """The row of an epoch after its updates and before its evaluation."""
        loss, nll, images = sums
        row = {"epoch": epoch, "step": step, "train_loss": loss / images}
        measured = {**dict.fromkeys(self.task.columns), "lr": lr}
        if self.labels is None:
            return row | measured
        return {
            **row,
            "train_nll": (nll if self.labels else loss) / images,
            "train_nll_of": "labels" if self.labels else "loss on mixed targets",
            **measured,
            "images_per_second": images / self._epoch_seconds(),
        }

    def close(self, row: dict[str, Any]) -> None:
        """Append the row of a finished and evaluated epoch."""
        self.rows.append({**row, "seconds": self._epoch_seconds()})
        self.sums, self.epoch_seconds = [0.0, 0.0, 0.0], 0.0
        self.begin()

    def total_seconds(self) -> float:
        """Seconds of the whole run, over all its resumptions."""
        return self.seconds + time.perf_counter() - self.since

    def values(self, sums: list[float]) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "rows": self.rows,
            "sums": sums,
            "seconds": self.total_seconds(),
            "epoch_seconds": self._epoch_seconds(),
        }

    def load(self, values: Mapping[str, Any], main: bool) -> None:
        """The reverse of :meth:`values`; sums over processes go on in the main one."""
        self.rows = list(values["rows"])
        self.seconds, self.epoch_seconds = values["seconds"], values.get("epoch_seconds", 0.0)
        if "losses" in values:  # of a task in an earlier version: loss and batches
            values = {"sums": [values["losses"][0], *values["losses"]]}
        self.sums = list(values["sums"]) if main else [0.0, 0.0, 0.0]

    def is_best(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has the best metric so far."""
        metric = self.task.metric
        return all(row[metric] > r[metric] for r in self.rows if r[metric] is not None)

    def line(self) -> str:
        """The last row as a line of text."""
        row = self.rows[-1]
        told = f"epoch {row['epoch']}/{self.total_epochs}  loss {row['train_loss']:.4f}"
        if row[self.task.metric] is not None:
            told += f"  {self.task.label} {100 * row[self.task.metric]:.1f} %"
        told += f"  lr {row['lr']:.2g}"
        if self.labels is not None:
            told += f"  {row['images_per_second']:.0f} img/s"
        return told

    def _epoch_seconds(self) -> float:
        return self.epoch_seconds + time.perf_counter() - self.epoch_since
