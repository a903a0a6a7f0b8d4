"""The state of a run on disk: named tensors as safetensors, the rest as JSON, nothing pickled.

    checkpoint/step-000000120/{model,optimizer,average}.safetensors, state.json

A checkpoint is written into a hidden folder in the same place, flushed to the disk and renamed;
only then is the last but one removed. So after ``kill -9`` at any moment, or on a full disk, the
last good one is there. ``state.json`` lists the size and CRC-32 of every file, and has a CRC-32 of
its own: a damaged checkpoint is skipped for the one before it.

The metrics log has one line per epoch; a checkpoint has the running sums of the current epoch.
"""

import json
import os
import shutil
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitascope.atomic import flush, regular, sweep
from vitascope.errors import UserError, reason
from vitascope.training.run_folder.lock import explain_write_errors, save_tensors, size_of
from vitascope.training.trainer.task import Learning

_KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state that a run resumes from: tensors by part and name, and other values."""

    step: int  # updates done
    tensors: Mapping[str, Mapping[str, Tensor]]  # part ("model", "optimizer", ...) -> name -> value
    values: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` under ``folder`` as a whole; keep the one before it, drop older ones."""
    target = folder / f"step-{checkpoint.step:09d}"
    part = folder / f".writing-{target.name}"
    needed = sum(size_of(tensors) for tensors in checkpoint.tensors.values())
    with explain_write_errors(target, needed):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            files = {}
            for name, tensors in checkpoint.tensors.items():
                save_tensors(part / f"{name}.safetensors", tensors)
                files[f"{name}.safetensors"] = _size_and_crc(part / f"{name}.safetensors")
            state = {"step": checkpoint.step, "files": files, "values": dict(checkpoint.values)}
            signed = {"crc": _signature(state), **state}
            (part / "state.json").write_text(json.dumps(signed), encoding="utf-8")
            flush(part / "state.json")
            flush(part)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(part, target)
            flush(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    for old in _steps(folder)[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def latest(folder: Path) -> tuple[int | None, list[str]]:
    """Step of the newest whole checkpoint, and a message for every damaged one passed over.

    Raises:
        UserError: If there are checkpoints and none is whole.
    """
    steps = _steps(folder)
    messages = []
    for path in steps:
        step = int(path.name.removeprefix("step-"))
        try:
            load(folder, step)
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            messages.append(
                f"checkpoint {path.name} is damaged ({reason(error)}): trying the one before"
            )
        else:
            return step, messages
    if steps:
        raise UserError(
            f"no whole checkpoint in {folder}: {messages[-1].rsplit(':', 1)[0]}; start again in "
            "another folder, or put a good copy back"
        )
    return None, messages


def load(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step, checked against what was written."""
    path = folder / f"step-{step:09d}"
    state = _state(path / "state.json")
    if state["step"] != step:
        raise ValueError(f"state.json is that of step {state['step']}")
    for name, expected in state["files"].items():
        if _size_and_crc(path / name) != expected:
            raise ValueError(f"{name} is not what was written")
    tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in state["files"]}
    return Checkpoint(step=step, tensors=tensors, values=state["values"])


def _state(path: Path) -> dict[str, Any]:
    """``state.json``, if it is what was written (the first version did not sign it)."""
    state = json.loads(regular(path).read_text(encoding="utf-8"))
    kinds = {"step": int, "files": dict, "values": dict}
    if not isinstance(state, dict) or any(
        not isinstance(state.get(name), kind) for name, kind in kinds.items()
    ):
        raise ValueError("state.json is no state of a run")
    crc = state.pop("crc", None)
    if crc is not None and crc != _signature(state):
        raise ValueError("state.json is not what was written")
    return state


def _signature(state: Mapping[str, Any]) -> int:
    """CRC-32 of the JSON of a state, which reading and writing again does not change."""
    return zlib.crc32(json.dumps(state).encode())


def drop_after(folder: Path, step: int) -> None:
    """Remove checkpoints later than ``step``: they are damaged."""
    for path in _steps(folder):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path, ignore_errors=True)


def clean(folder: Path) -> None:
    """Remove what a killed run left half written in a run's folder."""
    for left in folder.glob("checkpoint/.writing-*"):
        shutil.rmtree(left, ignore_errors=True)
    for directory in (folder, folder / "weights"):
        sweep(directory)


def _steps(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("step-*") if p.is_dir()), reverse=True)


def _size_and_crc(path: Path) -> list[int]:
    """Size and CRC-32 of a file."""
    size = crc = 0
    with regular(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return [size, crc]


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
        """Return the values that a checkpoint keeps."""
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
        """Return whether the row has the best metric so far."""
        metric = self.task.metric
        return all(row[metric] > r[metric] for r in self.rows if r[metric] is not None)

    def is_lowest(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row has the lowest loss on the measured images so far."""
        losses = [r["test_nll"] for r in self.rows if r.get("test_nll") is not None]
        return all(row["test_nll"] < loss for loss in losses)

    @property
    def lowest(self) -> dict[str, Any]:
        """The row with the lowest loss on the measured images, the first of equal ones."""
        measured = [row for row in self.rows if row.get("test_nll") is not None]
        return min(measured, key=lambda row: row["test_nll"])

    def line(self) -> str:
        """The last row as a line of text."""
        row = self.rows[-1]
        text = f"epoch {row['epoch']}/{self.total_epochs}  loss {row['train_loss']:.4f}"
        if row[self.task.metric] is not None:
            text += f"  {self.task.label} {100 * row[self.task.metric]:.1f} %"
        text += f"  lr {row['lr']:.2g}"
        if self.labels is not None:
            text += f"  {row['images_per_second']:.0f} img/s"
        return text

    def _epoch_seconds(self) -> float:
        return self.epoch_seconds + time.perf_counter() - self.epoch_since
