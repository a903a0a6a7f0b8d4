"""Metrics log of a run: one line per epoch, and the running sums of the current epoch."""

import time
from collections.abc import Mapping
from typing import Any

from vitascope.train.evaluation import Evaluation


class MetricsLog:
    """Rows of ``metrics.jsonl`` and what the next one is made of; all of it fits in JSON."""

    def __init__(self, total_epochs: int, labels: bool) -> None:
        self.total_epochs = total_epochs
        self.labels = labels  # whether an image has one label: not when images are mixed
        self.rows: list[dict[str, Any]] = []
        self.sums = [0.0, 0.0, 0.0]  # loss, NLL and images of this epoch on this process
        self.seconds = 0.0  # before this process took over
        self.epoch_seconds = 0.0
        self.since = self.epoch_since = time.perf_counter()

    def begin(self) -> None:
        """The clock of an epoch, or of the rest of one, starts."""
        self.epoch_since = time.perf_counter()

    def add(self, loss: float, nll: float, images: int) -> None:
        """One more update, with sums over its images."""
        self.sums = [self.sums[0] + loss, self.sums[1] + nll, self.sums[2] + images]

    def row(self, epoch: int, step: int, lr: float, sums: list[float]) -> dict[str, Any]:
        """The line of an epoch whose images have been trained on, still without a measurement."""
        loss, nll, images = sums
        return {
            "epoch": epoch,
            "step": step,
            "train_loss": loss / images,
            "train_nll": (nll if self.labels else loss) / images,
            "train_nll_of": "labels" if self.labels else "loss on mixed targets",
            **dict.fromkeys(("test_nll", "test_error", "top1", "top5", "ece")),
            "lr": lr,
            "images_per_second": images / self._epoch_seconds(),
        }

    def close(self, row: dict[str, Any]) -> None:
        """The epoch is over and measured."""
        self.rows.append({**row, "seconds": self._epoch_seconds()})
        self.sums, self.epoch_seconds = [0.0, 0.0, 0.0], 0.0
        self.begin()

    def total_seconds(self) -> float:
        """Of the whole run, over all its resumptions."""
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
        self.seconds, self.epoch_seconds = values["seconds"], values["epoch_seconds"]
        self.sums = list(values["sums"]) if main else [0.0, 0.0, 0.0]

    def is_best(self, row: Mapping[str, Any]) -> bool:
        """Whether no epoch before had as high a top-1."""
        return all(row["top1"] > r["top1"] for r in self.rows if r["top1"] is not None)

    def line(self) -> str:
        """The last row, for a reader."""
        row = self.rows[-1]
        top1 = "" if row["top1"] is None else f"  top-1 {100 * row['top1']:.1f} %"
        return (
            f"epoch {row['epoch']}/{self.total_epochs}  loss {row['train_loss']:.4f}{top1}  "
            f"lr {row['lr']:.2g}  {row['images_per_second']:.0f} img/s"
        )

    def _epoch_seconds(self) -> float:
        return self.epoch_seconds + time.perf_counter() - self.epoch_since


def columns(found: Evaluation, prefix: str = "") -> dict[str, Any]:
    """A measurement as columns of a row."""
    return {
        f"{prefix}test_nll": found.nll,
        f"{prefix}test_error": found.error,
        f"{prefix}top1": found.top1,
        f"{prefix}top5": found.top5,
        f"{prefix}ece": found.ece,
    }
