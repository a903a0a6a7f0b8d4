"""One cell of a study: train what is not trained yet, and read off what is wanted.

A cell is an ordinary run in ``OUT/runs/<training>/seed-<n>``; a reading is a record in its folder
``readings``. Both are made once: an interrupted study goes on, and studies that need the same
training share it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from vitascope import record
from vitascope.data import Dataset, load, subset
from vitascope.errors import unknown
from vitascope.record import Record
from vitascope.settings import changed, command_line
from vitascope.studies.grid.comparison_cells import look
from vitascope.studies.grid.one_training import teacher_from
from vitascope.studies.inspection.curvature import Curvature
from vitascope.studies.inspection.inspect import (
    MEASURES,
    ON_REQUEST,
    InspectRequest,
    inspect_subject,
)
from vitascope.studies.papers.plan import Reading, Training
from vitascope.studies.session.evaluation import evaluate_subject
from vitascope.studies.session.models import build
from vitascope.train import Recipe, Run, log_spaced, recipe, train

__all__ = ["READINGS", "command", "folder_of", "recipe_of", "run_cell", "run_of"]

KEPT = 6  # epochs whose weights a run keeps, the first weights among them


@lru_cache(maxsize=2)
def images_of(source: str, image_size: int | None) -> Dataset:
    """Loaded once in each process."""
    return load(source, image_size=image_size)


def folder_of(training: Training, seed: int, out: Path) -> Path:
    """Where the run of a training is."""
    return Path(out) / "runs" / training.key / f"seed-{seed}"


def recipe_of(training: Training, dataset: Dataset | None) -> Recipe:
    """The complete recipe; batches shrink so that few images still make four steps.

    Without the images at hand the batches stay as they are.
    """
    base = recipe(training.recipe)
    changes = dict(training.changes)
    if training.epochs is not None:
        changes.setdefault("warmup_epochs", base.warmup_epochs * training.epochs / base.epochs)
        changes["epochs"] = training.epochs
    if training.teacher is not None:
        changes.setdefault("distillation", "hard")
    plan = recipe(training.recipe, **changes)
    batch = plan.batch_size
    if dataset is not None:
        batch = min(batch, max(2, len(subset(dataset.train, plan.subset)) // 4 // 2 * 2))
    more = max(1, round(plan.epoch_factor))  # short epochs are measured and saved as rarely
    return plan.override(
        batch_size=batch,
        keep_epochs=tuple(sorted(log_spaced(plan.total_epochs, KEPT))),
        eval_every=plan.eval_every * more,
        checkpoint_epochs=plan.checkpoint_epochs * more,
    )


def run_of(training: Training, seed: int, out: Path, **how: Any) -> Run:
    """The finished run, trained here unless it is there."""
    dataset = images_of(training.data, training.image_size)
    plan = recipe_of(training, dataset)
    subject = build(
        training.model, dataset, seed=seed, drop_path=plan.drop_path, **training.model_args
    )
    teacher = training.teacher
    if isinstance(teacher, Training):
        teacher = str(folder_of(teacher, seed, out))
    return train(
        subject.model, dataset, plan, folder_of(training, seed, out), seed=seed, resume=True,
        teacher=teacher_from(teacher) if teacher else None, model_config=subject.config,
        trackers=(), quiet=True, **how)  # fmt: skip


def run_cell(
    *, training: Training, readings: Sequence[Reading], seed: int, study: Path, out: Path
) -> None:
    """Train one cell and read it; what is finished costs nothing. ``out`` is the run's folder."""
    torch.set_num_threads(1)
    run = run_of(training, seed, study)
    for reading in readings:
        target = out / "readings" / reading.key
        if not target.with_name(target.name + ".json").exists():
            read(run, reading, training).save(target)


def read(run: Run, reading: Reading, training: Training) -> Record:
    """One reading of a finished run, as a record."""
    started = perf_counter()
    if reading.name not in READINGS:
        raise unknown("reading", reading.name, READINGS)
    found = READINGS[reading.name](run, dict(reading.options), training)
    config = {**found.config, "run": str(run.folder.name), "options": dict(reading.options)}
    return replace(found, config=config, seed=run.seed, seconds=perf_counter() - started)


def _final(run: Run, options: dict[str, Any], training: Training) -> Record:
    """The last line of the run, with its size and cost."""
    values = {**run.final, "best_top1": run.best["top1"], "seconds": run.seconds,
              "epochs": run.epochs, "train_images": run.config["data"]["train_images"],
              "num_test": run.config["data"]["test_images"]}  # fmt: skip
    return Record(kind="final", values=values)


def _curves(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Accuracy and losses over the epochs that were measured."""
    rows = [row for row in run.metrics if row["top1"] is not None]
    names = ("epoch", "top1", "test_nll", "train_nll", "train_loss", "ece")
    return Record(kind="curves", values={n: [row.get(n) for row in rows] for n in names})


def _looks(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Gates and nonlocality at the epochs that were kept."""
    dataset = images_of(training.data, training.image_size)
    return look(run.folder, dataset, run.recipe.keep_epochs)


def _elsewhere(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Accuracy on other test images with labels of the same classes: ``data``."""
    return evaluate_subject(str(run.folder), **options)


def _instrument(name: str, run: Run, options: dict[str, Any], training: Training) -> Record:
    """An instrument of ``vitascope inspect``; ``epoch`` may be a share of the training."""
    share = options.pop("at", None)
    if share is not None:
        kept = run.recipe.keep_epochs
        options["epoch"] = min(kept, key=lambda epoch: abs(epoch - share * run.epochs))
    curved = {key: options.pop(key) for key in tuple(options) if hasattr(Curvature, key)}
    asked = InspectRequest(
        subject=str(run.folder), data=training.data, measures=(name,), seed=run.seed,
        curvature=Curvature(**curved), **options)  # fmt: skip
    return inspect_subject(asked).records[name]


READINGS: Mapping[str, Callable[[Run, dict[str, Any], Training], Record]] = {
    "final": _final,
    "curves": _curves,
    "looks": _looks,
    "elsewhere": _elsewhere,
    **{name: partial(_instrument, name) for name in (*MEASURES, *ON_REQUEST)},
}


def command(
    training: Training, seed: int, out: Path, dataset: Dataset | None, launcher: str = ""
) -> str:
    """The training as ``vitascope train``, for a launcher or a scheduler."""
    plan = recipe_of(training, dataset)
    teacher = training.teacher
    if isinstance(teacher, Training):
        teacher = str(folder_of(teacher, seed, out))
    options = [
        ("--model", training.model), ("--data", training.data), ("--recipe", training.recipe),
        ("--image-size", training.image_size), ("--model-args", changed(training.model_args)),
        ("--set", changed(plan.to_dict(), recipe(training.recipe).to_dict())),
        ("--teacher", teacher), ("--distillation", plan.distillation if teacher else None),
        ("--seed", seed), ("--threads", 1), ("--out", folder_of(training, seed, out)),
        ("--resume", True),
    ]  # fmt: skip
    return f"{launcher} {command_line(['vitascope', 'train'], options)}".strip()


def finished(training: Training, reading: Reading, seed: int, out: Path) -> Record | None:
    """The record of a reading, if it is there."""
    path = folder_of(training, seed, out) / "readings" / reading.key
    return record.load(path) if path.with_name(path.name + ".json").exists() else None
