"""The trainer: state of a run between two steps, and its epochs.

Order of events at the end of an epoch: measure, observe, ``metrics.jsonl``, checkpoint. A kill
between any two of them repeats the epoch from the last checkpoint, to the same bits.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vitascope.errors import Interrupted
from vitascope.progress import Progress
from vitascope.training.distributed import TrainingProcess
from vitascope.training.observe import PROJECT, Observer, flat_config, log_pictures, restoring_state
from vitascope.training.predictions import Predictions, save_predictions
from vitascope.training.recipes.config import Recipe
from vitascope.training.run_folder import checkpoints
from vitascope.training.run_folder.checkpoints import Checkpoint, MetricsLog
from vitascope.training.run_folder.lock import save_tensors
from vitascope.training.run_folder.run import Run, finish, write_metrics
from vitascope.training.trainer.optimizer import learning_rate, training_mode
from vitascope.training.trainer.stop import StopRequest, diverged
from vitascope.training.trainer.task import Learning
from vitascope.training.trainer.update import Update

LOWEST = "lowest.safetensors"  # weights with the lowest loss so far, while a run is under way


class Trainer:
    """State of a run, and the loop over its epochs."""

    def __init__(
        self,
        process: TrainingProcess,
        update: Update,
        recipe: Recipe,
        folder: Path,
        task: Learning,
        request: StopRequest,
        config: Mapping[str, Any],
        spare: nn.Module,
    ) -> None:
        self.process, self.update, self.recipe, self.folder = process, update, recipe, folder
        self.task, self.request, self.config = task, request, config
        self.spare = spare  # an unsharded model for observers
        self.model = process.plain(update.model)
        self.lr = learning_rate(recipe, task.steps)
        self.observers: Sequence[Observer] = ()
        self.progress = Progress(quiet=True)
        self.messages: list[str] = []
        self.step = 0
        labels = not recipe.augmentation.mixes if update.task is None else None
        self.metrics_log = MetricsLog(recipe.total_epochs, task, labels)
        self.saved = -1  # step of the last checkpoint
        self.pending: list[tuple[Tensor, Tensor, int]] = []
        # looking at the loss waits for the device: every step on a CPU, now and then elsewhere
        alone = process.world_size == 1 and process.device.type == "cpu"
        self.look_every = 1 if alone else 8
        guess = math.log(max(2, config["data"]["num_classes"]))  # the loss of a uniform guess
        self.limit = recipe.explode * guess if update.task is None else math.inf

    def restore(self) -> None:
        """Load the last good checkpoint, or write the first."""
        if self.process.main:
            checkpoints.clean(self.folder)
        home = self.folder / "checkpoint"
        step, self.messages = self.process.agreed(
            checkpoints.latest(home) if self.process.main else (None, [])
        )
        if step is None:
            self.save()
            return
        checkpoint = checkpoints.load(home, step)
        self.update.load(checkpoint.tensors, checkpoint.values)
        self.step = self.saved = checkpoint.step
        self.metrics_log.load(checkpoint.values, self.process.main)
        if self.process.main:
            checkpoints.drop_after(home, checkpoint.step)
            write_metrics(self.folder, self.metrics_log.rows)

    def run(self) -> Run:
        """All epochs that are left, then the final weights and the record."""
        self._greet()
        self.process.accelerator.init_trackers(PROJECT, flat_config(self.config))
        epochs, steps = self.recipe.total_epochs, self.task.steps
        if self.step == 0:
            self._observe(0)
        while len(self.metrics_log.rows) < epochs:
            epoch = len(self.metrics_log.rows)
            self._epoch(epoch, self.step - epoch * steps)
            stop = self._anywhere(bool(self.request)) and epoch + 1 < epochs
            if stop or (epoch + 1) % self.recipe.checkpoint_epochs == 0 or epoch + 1 == epochs:
                self.save()
            if stop:
                raise Interrupted(self.folder, self.step, self.request.signal_name or "a signal")
        return self._end()

    def _epoch(self, epoch: int, start: int) -> None:
        training_mode(self.update.model)
        self.metrics_log.begin()
        every = self.recipe.checkpoint_steps
        for batch in self.task.batches(epoch, start):
            self.pending.append(self.update(batch, self.step, self.lr(self.step)))
            self.step += 1
            self.progress.advance(self.recipe.batch_size)
            if self.step % self.look_every == 0 or self.step % self.task.steps == 0:
                self._look()
            if every is not None and self.step % every == 0:
                self.save()
        self.metrics_log.close(self._measure(epoch + 1))
        self._observe(epoch + 1)
        if self.process.main:
            write_metrics(self.folder, self.metrics_log.rows)
            row = self.metrics_log.rows[-1]
            numbers = {k: v for k, v in row.items() if isinstance(v, (int, float))}
            self.process.accelerator.log(numbers, step=self.step)
            self.progress.tell(self.metrics_log.line())

    def _look(self) -> None:
        """Check the losses; stop at one that is not finite, or when a stop was requested."""
        if not self.pending:
            return
        counts = [count for _, _, count in self.pending]
        table = torch.stack([torch.stack([a, b]) for a, b, _ in self.pending]).double().cpu()
        self.pending = []
        means = table[:, 0] / torch.tensor(counts)
        worst = float(means.max()) if bool(means.isfinite().all()) else math.nan
        stop = self._anywhere(bool(self.request))
        if self._anywhere(not worst <= self.limit):
            raise self._diverged(worst)
        for (a, b), count in zip(table.tolist(), counts, strict=True):
            self.metrics_log.add(a, b, count)
        if stop and self.step % self.task.steps:  # at an epoch's end it is measured first
            self.save()
            raise Interrupted(self.folder, self.step, self.request.signal_name or "a signal")

    def _measure(self, epoch: int) -> dict[str, Any]:
        row = self.metrics_log.row(epoch, self.step, self.lr(self.step - 1), self._summed())
        if epoch % self.recipe.eval_every and epoch < self.recipe.total_epochs:
            return row
        numbers, predictions = self._measured()
        row |= numbers
        result = epoch == self.recipe.total_epochs
        if self.recipe.finish == "best":
            result = self.metrics_log.is_lowest(row)
            state = self.process.model_state(self.update.model) if result else {}
            if result and self.process.main:
                save_tensors(self.folder / LOWEST, state)
        if result and predictions and self.process.main:
            save_predictions(self.folder, predictions)
        if self.update.average is not None:
            with self.update.average.applied(self.model):
                row |= {f"ema_{name}": value for name, value in self._measured()[0].items()}
        if self.recipe.keep_best and self.metrics_log.is_best(row):
            state = self.process.model_state(self.update.model)
            if self.process.main:
                save_tensors(self.folder / "best.safetensors", state)
        return row

    def _measured(self) -> tuple[dict[str, Any], Predictions | None]:
        with self.process.accelerator.autocast():
            numbers = self.task.measure(self.model)
        return numbers, numbers.pop("predictions", None)

    def _observe(self, epoch: int) -> None:
        state = self.process.model_state(self.update.model) if self.process.fsdp else None
        if self.process.main:
            model = self.spare if self.process.fsdp else self.model
            if state is not None:
                model.load_state_dict(state)
            with restoring_state(model):
                for observer in self.observers:
                    pictures = observer(epoch, self.step, model, self.folder)
                    log_pictures(self.process.accelerator.trackers, pictures or {}, self.step)
        self.process.accelerator.wait_for_everyone()

    def save(self) -> None:
        """Write a checkpoint, unless this step has one or its weights are not finite."""
        self._look()
        if self.saved == self.step:
            return
        tensors = self.update.tensors()
        good = all(bool(t.isfinite().all()) for t in tensors["model"].values())
        if not self.process.agreed(good):
            raise self._diverged(math.nan)
        values = {**self.update.values(), **self.metrics_log.values(self._summed())}
        with self.process.main_writes() as writer:
            if writer:
                checkpoints.save(self.folder / "checkpoint", Checkpoint(self.step, tensors, values))
        self.saved = self.step

    def _summed(self) -> list[float]:
        """This epoch's sums over all processes; exact for one."""
        if self.process.world_size == 1:
            return list(self.metrics_log.sums)
        sums = torch.tensor(self.metrics_log.sums, dtype=torch.float64, device=self.process.device)
        return self.process.total(sums).tolist()

    def _anywhere(self, flag: bool) -> bool:
        """Return whether a flag is up on any process."""
        if self.process.world_size == 1:
            return flag
        return bool(self.process.total(torch.tensor([float(flag)], device=self.process.device)) > 0)

    def _diverged(self, loss: float) -> Exception:
        checkpoint = (
            self.folder / "checkpoint" / f"step-{self.saved:09d}" if self.saved >= 0 else None
        )
        return diverged(loss, self.step, self.lr(max(0, self.step - 1)), self.limit, checkpoint)

    def _greet(self) -> None:
        for message in self.messages:
            self.progress.tell(message)
        count = sum(p.numel() for p in self.model.parameters())
        where = f"{self.process.world_size} process" + ("es" if self.process.world_size > 1 else "")
        begin = f"from step {self.step}" if self.step else "from the start"
        epochs = f"{self.recipe.total_epochs} epoch" + "s" * (self.recipe.total_epochs != 1)
        self.progress.tell(
            f"{self.config['data']['name']}: {count:,} parameters, "
            f"{epochs} of {self.task.steps} steps "
            f"on {where} ({self.process.device}), {begin}"
        )

    def _end(self) -> Run:
        """Final weights, then the record that makes the run finished."""
        parts, final = dict(self.update.tensors()), self.metrics_log.rows[-1]
        if self.recipe.finish == "best":
            self.process.accelerator.wait_for_everyone()
            parts["model"], final = load_file(self.folder / LOWEST), self.metrics_log.lowest
            if not self.process.fsdp:
                self.model.load_state_dict(parts["model"])
        run = None
        with self.process.main_writes() as writer:
            if writer:
                save_tensors(self.folder / "model.safetensors", parts["model"])
                if "average" in parts:
                    save_tensors(self.folder / "ema.safetensors", parts["average"])
                run = finish(
                    self.folder,
                    self.metrics_log.rows,
                    self.config,
                    self.task.metric,
                    final=final,
                    seconds=self.metrics_log.total_seconds(),
                    epochs=len(self.metrics_log.rows),
                    steps=self.step,
                    world_size=self.process.world_size,
                )
                (self.folder / LOWEST).unlink(missing_ok=True)
                for tracker in self.process.accelerator.trackers:
                    tracker.finish()
        return self.process.agreed(run)
