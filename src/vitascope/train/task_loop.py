"""Train a model on another task than classification, into a folder that can be resumed.

A task says what a batch is, what the loss is and how the model is measured; the loop is the same
for all: AdamW (or any optimizer of the recipe), its schedule, warm-up and clipping, a checkpoint an
epoch, ``metrics.jsonl``, and a record of kind ``task`` that makes the run finished. Randomness
inside the model is seeded from (seed, step), and batches depend on (seed, epoch) alone, so a run
that was killed and resumed ends with the same bits on a CPU. One process; a recipe's augmentation
is of images with labels and not used: a task has its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vitascope import record
from vitascope.errors import UserError
from vitascope.progress import Progress
from vitascope.record import Record, load_config
from vitascope.settings import Seed, check_value
from vitascope.train.distributed import TrainingProcess
from vitascope.train.recipes.config import Recipe
from vitascope.train.run_folder import resume_file
from vitascope.train.run_folder.files import explain_write_errors, save_tensors
from vitascope.train.run_folder.lock import lock_folder
from vitascope.train.run_folder.resume_file import Checkpoint
from vitascope.train.run_folder.run import differences, enter, write_metrics
from vitascope.train.trainer.optimizer import build_optimizer, frozen, set_lr, training_mode
from vitascope.train.trainer.schedule import learning_rate
from vitascope.train.trainer.stop import Interrupted, StopRequest, catch_stop_signals, diverged
from vitascope.train.trainer.update import reseed


class Task(Protocol):
    """What is learned, from what, and how it is measured."""

    name: str  # "segmentation"
    metric: str  # the number that says how good a model is, larger is better: "miou"
    metric_name: str  # in words: "mean IoU"
    steps: int  # batches of an epoch

    def config(self) -> dict[str, Any]:
        """What ``config.yaml`` says about the data."""

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """The batches of an epoch from number ``start`` on."""

    def loss(self, model: nn.Module, batch: Any, device: torch.device) -> Tensor:
        """The mean loss of a batch."""

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Numbers on the test data, ``metric`` among them."""


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """A finished run."""

    folder: Path
    task: str
    metric: str
    final: Mapping[str, Any]  # the last line of metrics.jsonl
    best: Mapping[str, Any]  # the line with the highest metric
    epochs: int
    steps: int
    seconds: float

    @property
    def config(self) -> dict[str, Any]:
        """``config.yaml``."""
        return load_config(self.folder)

    @property
    def weights(self) -> Path:
        """The final weights."""
        return self.folder / "model.safetensors"


def load_task_run(folder: str | Path) -> TaskRun | None:
    """The finished run of a task in ``folder``; None if there is another thing, or nothing."""
    folder = Path(folder)
    if not (folder / "record.json").is_file():
        return None
    stored = record.load(folder / "record.json")
    if stored.kind != "task":
        return None
    try:
        return TaskRun(folder=folder, seconds=stored.seconds or 0.0, **stored.values)
    except TypeError:
        raise UserError(f"{folder / 'record.json'} is not a whole record of a task") from None


def train_task(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    out: str | Path,
    *,
    seed: int = 0,
    resume: bool = False,
    device: str | None = None,
    quiet: bool = False,
    model_config: Mapping[str, Any] | None = None,
) -> TaskRun:
    """Train ``model`` in place.

    Args:
        model: What the task's loss takes; the caller gave it its first weights.
        task: See :class:`Task`.
        recipe: How long and how fast.
        out: The run's folder.
        seed: Of the order, the variation and the randomness inside the model.
        resume: Go on with the run in ``out``, if there is one.
        device: "cpu", "cuda", "mps"; None: the best there is.
        quiet: No progress.
        model_config: How the model was built.

    Raises:
        UserError: For what cannot work, before anything is written.
        Interrupted: After Ctrl-C or SIGTERM, with everything saved.
    """
    out = Path(out)
    check_value(seed, Seed, "seed")
    for name in ("ema", "sam"):
        if getattr(recipe, name) is not None:
            raise UserError(f"recipe field {name} is for classification; leave it null here")
    if recipe.distillation != "none" or recipe.accumulation != 1 or recipe.subset.fraction != 1:
        raise UserError("distillation, accumulation and fractions are for classification alone")
    config = {
        "task": task.name,
        "recipe": recipe.to_dict(),
        "model": dict(model_config or {"class": type(model).__name__}),
        "data": task.config(),
        "teacher": None,
        "seed": seed,
    }
    done = _finished(out, config) if resume else None
    if done is not None:
        model.load_state_dict(load_file(done.weights))
        return done
    process = TrainingProcess(recipe, device=device)
    if process.world_size > 1:
        raise UserError(f"{task.name} runs in one process; start it without torchrun")
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(frozen(model, recipe.freeze))
        prepared = process.prepare(model)
        stack.callback(process.release, prepared)
        loop = _Loop(process, prepared, task, recipe, out, config, seed)
        stack.enter_context(lock_folder(out))
        enter(out, config, resume)
        loop.request = stack.enter_context(catch_stop_signals())
        loop.restore()
        total = recipe.total_epochs * task.steps
        loop.progress = stack.enter_context(
            Progress("", total, start=loop.step, unit="step", quiet=quiet)
        )
        return loop.run()


def _finished(folder: Path, config: Mapping[str, Any]) -> TaskRun | None:
    done = load_task_run(folder)
    if done is not None:
        found = differences(done.config, config, ("task", "recipe", "model", "data", "seed"))
        if found:
            raise UserError(
                f"{folder} holds a run with another config: {'; '.join(found)}; resume with the "
                "same config or choose another folder"
            )
    return done


class _Loop:
    """State of a run between two steps."""

    def __init__(
        self,
        process: TrainingProcess,
        model: nn.Module,
        task: Task,
        recipe: Recipe,
        folder: Path,
        config: Mapping[str, Any],
        seed: int,
    ) -> None:
        self.process, self.model, self.task, self.recipe = process, model, task, recipe
        self.folder, self.config, self.seed = folder, config, seed
        self.optimizer = build_optimizer(process.plain(model), recipe)
        self.learning = [p for p in model.parameters() if p.requires_grad]
        self.lr = learning_rate(recipe, task.steps)
        self.request = StopRequest()
        self.progress = Progress(quiet=True)
        self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.losses = [0.0, 0.0]  # sum and number in this epoch
        self.seconds, self.started = 0.0, perf_counter()

    def restore(self) -> None:
        """Go to where the last good checkpoint left off."""
        resume_file.clean(self.folder)
        home = self.folder / "checkpoint"
        step, messages = resume_file.latest(home)
        for message in messages:
            self.progress.tell(message)
        if step is None:
            return
        found = resume_file.load(home, step)
        self.process.load_model(self.model, found.tensors["model"])
        self.process.load_optimizer(self.model, self.optimizer, found.tensors["optimizer"])
        self.step, self.rows = found.step, list(found.values["rows"])
        self.losses, self.seconds = list(found.values["losses"]), found.values["seconds"]
        resume_file.drop_after(home, found.step)

    def run(self) -> TaskRun:
        """The epochs that are left, then the final weights and the record."""
        epochs, steps = self.recipe.total_epochs, self.task.steps
        while len(self.rows) < epochs:
            epoch = len(self.rows)
            training_mode(self.model)
            for batch in self.task.batches(epoch, self.step - epoch * steps):
                self._update(batch)
                if self.request and self.step % steps:
                    self._stop()
            self._close(epoch + 1)
            if self.request and epoch + 1 < epochs:
                self._stop()
            if (epoch + 1) % self.recipe.checkpoint_epochs == 0:
                self._save()
        return self._end()

    def _update(self, batch: Any) -> None:
        lr = self.lr(self.step)
        reseed(self.seed, self.step, 0)
        set_lr(self.optimizer, lr)
        self.optimizer.zero_grad()
        with self.process.accelerator.autocast():
            loss = self.task.loss(self.model, batch, self.process.device)
        if not loss.isfinite():
            kept = self.folder / "checkpoint"
            raise diverged(float("nan"), self.step, lr, 0.0, kept if kept.exists() else None)
        self.process.accelerator.backward(loss)
        if self.recipe.clip_grad is not None:
            nn.utils.clip_grad_norm_(self.learning, self.recipe.clip_grad)
        self.optimizer.step()
        self.losses[0] += loss.item()
        self.losses[1] += 1
        self.step += 1
        self.progress.advance(1)

    def _close(self, epoch: int) -> None:
        """Measure, and add the epoch's line."""
        row: dict[str, Any] = {"epoch": epoch, "step": self.step, "lr": self.lr(self.step - 1)}
        row["train_loss"] = self.losses[0] / max(self.losses[1], 1)
        row[self.task.metric] = None
        if epoch % self.recipe.eval_every == 0 or epoch == self.recipe.total_epochs:
            row |= self.task.measure(self.process.plain(self.model))
            value = row[self.task.metric]
            self.progress.tell(
                f"epoch {epoch}: loss {row['train_loss']:.4g}, "
                f"{self.task.metric_name} {100 * value:.2f} %"
            )
        self.losses = [0.0, 0.0]
        self.rows.append(row)
        write_metrics(self.folder, self.rows)

    def _save(self) -> None:
        tensors = {
            "model": self.process.model_state(self.model),
            "optimizer": self.process.optimizer_state(self.model, self.optimizer),
        }
        values = {"rows": self.rows, "losses": self.losses, "seconds": self._spent()}
        resume_file.save(self.folder / "checkpoint", Checkpoint(self.step, tensors, values))

    def _stop(self) -> None:
        self._save()
        raise Interrupted(self.folder, self.step, self.request.signal_name or "a signal")

    def _spent(self) -> float:
        return self.seconds + perf_counter() - self.started

    def _end(self) -> TaskRun:
        metric = self.task.metric
        save_tensors(self.folder / "model.safetensors", self.process.model_state(self.model))
        measured = [row for row in self.rows if row[metric] is not None]
        values = {
            "task": self.task.name,
            "metric": metric,
            "final": self.rows[-1],
            "best": max(measured, key=lambda row: row[metric]),
            "epochs": len(self.rows),
            "steps": self.step,
        }
        with explain_write_errors(self.folder / "record.json"):
            Record(
                kind="task",
                values=values,
                config=dict(self.config),
                seed=self.seed,
                seconds=self._spent(),
            ).save(self.folder / "record")
        found = load_task_run(self.folder)
        assert found is not None
        return found
