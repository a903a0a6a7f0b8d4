"""One run of a grid: its images, recipe and folder; trained unless it is there, and read.

A run lies in ``OUT/runs/<training>/seed-<n>`` and is an ordinary one; a reading is a record in its
folder ``readings``. Both are made once: interrupted runs resume, and ``compare``, ``study``
and ``buildup`` in the same OUT share their runs.

``keep`` copies what is worth keeping of finished runs, numbers but no weights. Of every finished
run its config, metrics, predictions, record and readings; of the folder its records. Weights and
checkpoints, nearly all of the size, stay behind. Studies are answered from the copy as from the
folder, as long as they ask for nothing that must be read off the weights anew.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitascope import record
from vitascope.data import Dataset, subset
from vitascope.errors import UserError
from vitascope.loading.opening import open_pretrained
from vitascope.record import Record
from vitascope.runs.readings import read
from vitascope.runs.spec import Reading, Training
from vitascope.runs.train_model import fold_text, load_images, on_so_many, train_model
from vitascope.settings import changed, command_line
from vitascope.training import Recipe, Run, load_run, log_spaced
from vitascope.training import recipe as named
from vitascope.training.run_folder.run import differences
from vitascope.training.trainer.loop import data_config

# Epochs whose weights a run keeps, the first weights among them. A long training has 12: at 300
# epochs one stands at a tenth, and four after it, so that what falls early and climbs late is seen.
# One more costs a micro model a second, with what is read off it, in each run of a comparison.
KEPT, KEPT_OF_LONG, LONG = 6, 12, 100


def images_of(training: Training) -> Dataset:
    """The images of a training, in the preprocessing of the weights that it starts from."""
    parts = (training.validation, training.fold)
    return load_images(training.data, training.image_size, *parts, training.source_of_weights)


def folder_of(training: Training, seed: int, out: Path) -> Path:
    """Return the folder of a training's run."""
    return Path(out) / "runs" / training.key / f"seed-{seed}"


def kept_epochs(plan: Recipe) -> tuple[int, ...]:
    """The epochs whose weights a run keeps, at equal ratios.

    >>> from vitascope.training import recipe
    >>> kept_epochs(recipe("laptop", epochs=10))
    (0, 1, 2, 3, 6, 10)
    """
    count = KEPT_OF_LONG if plan.epochs >= LONG else KEPT
    return tuple(sorted(log_spaced(plan.total_epochs, count)))


def recipe_of(training: Training, seed: int, dataset: Dataset | None) -> Recipe:
    """The recipe of one run, with its own subset, batch size, epochs and which of them to keep.

    Batches shrink so that few images still make four steps (:func:`on_so_many`); without the images
    at hand they stay as they are. A subset is drawn with the run's seed, added to the recipe's
    ``subset.seed``.
    """
    plan = training.full_recipe
    if training.subset_per_seed and plan.subset.fraction < 1:
        plan = plan.override(**{"subset.seed": plan.subset.seed + seed})
    if dataset is not None:
        plan = on_so_many(plan, len(subset(dataset.train, plan.subset)))
    more = max(1, round(plan.epoch_factor))  # short epochs are measured and saved as rarely
    return plan.override(
        keep_epochs=kept_epochs(plan),
        eval_every=plan.eval_every * more,
        checkpoint_epochs=plan.checkpoint_epochs * more,
    )


def _teacher(training: Training, seed: int, out: Path) -> str | None:
    """A timm model's name, or the folder of the run with the same seed."""
    teacher = training.teacher
    return str(folder_of(teacher, seed, out)) if isinstance(teacher, Training) else teacher


def run_of(training: Training, seed: int, out: Path, **how: Any) -> Run:
    """The finished run, trained here unless it is there."""
    dataset = images_of(training)
    if training.start:
        how["start"] = open_pretrained(
            training.model,
            image_size=training.image_size,
            drop_path=training.full_recipe.drop_path,
        )
        how["emptied"] = training.start == "random"
        how["features"] = Path(out) / "features"  # where a probe has kept them
    return train_model(
        training.model,
        dataset,
        recipe_of(training, seed, dataset),
        folder_of(training, seed, out),
        seed=seed,
        model_args=training.model_args,
        teacher=_teacher(training, seed, out),
        resume=True,
        trackers=(),
        quiet=True,
        **how,
    )


def _reading_path(reading: Reading, folder: Path) -> Path:
    return folder / "readings" / f"{reading.key}.json"


def train_and_read(
    *, training: Training, readings: Sequence[Reading], seed: int, grid: Path, out: Path
) -> None:
    """Make one run and its readings; what is finished costs nothing.

    Args:
        training: What to train.
        readings: What to read off the run.
        seed: Of the run.
        grid: Folder of all runs.
        out: Folder of this one.
    """
    torch.set_num_threads(1)
    run = run_of(training, seed, grid)
    for reading in readings:
        path = _reading_path(reading, out)
        if not path.exists():
            read(run, reading, training).save(path.with_suffix(""))


def is_finished(training: Training, readings: Sequence[Reading], seed: int, out: Path) -> bool:
    """Return whether a run and its readings are there.

    Raises:
        UserError: If the run was trained on other images than the source now has.
    """
    folder = folder_of(training, seed, out)
    if not (folder / "record.json").exists():
        return False
    dataset = images_of(training)
    now = data_config(dataset, recipe_of(training, seed, dataset))
    changes = differences(record.load(folder / "record").config, {"data": now}, ("data",))
    if changes:
        raise UserError(
            f"{folder} holds a run with another config: {'; '.join(changes)}; choose another folder"
        )
    return all(_reading_path(reading, folder).exists() for reading in readings)


def reading_of(training: Training, reading: Reading, seed: int, out: Path) -> Record | None:
    """The record of a reading, if it is there."""
    path = _reading_path(reading, folder_of(training, seed, out))
    return record.load(path) if path.exists() else None


def correct_arrays(
    trainings: Mapping[str, Training], seeds: Sequence[int], out: Path
) -> dict[str, np.ndarray]:
    """Return which test images each training got right. ``correct/<name>`` -> (seeds, images)

    A training whose runs kept no predictions is left out.
    """
    arrays = {}
    for name, training in trainings.items():
        predictions = [load_run(folder_of(training, seed, out)).predictions for seed in seeds]
        rows = [each.correct for each in predictions if each is not None]
        if len(rows) == len(predictions):
            arrays[f"correct/{name}"] = np.stack(rows).astype(np.uint8)
    return arrays


def command(
    training: Training, seed: int, out: Path, dataset: Dataset | None, launcher: str = ""
) -> str:
    """The training as ``vitascope train``, for a launcher or a scheduler."""
    plan, teacher = recipe_of(training, seed, dataset), _teacher(training, seed, out)
    options = [
        ("--model", training.model),
        ("--data", training.data),
        ("--recipe", plan.name),
        ("--image-size", training.image_size),
        ("--validation", training.validation),
        ("--fold", None if training.fold is None else fold_text(training.fold)),
        ("--model-args", changed(training.model_args)),
        ("--set", changed(plan.to_dict(), named(plan.name).to_dict())),
        ("--teacher", teacher),
        ("--distillation", plan.distillation if teacher else None),
        ("--seed", seed),
        ("--threads", 1),
        ("--out", folder_of(training, seed, out)),
        ("--resume", True),
        ("--no-tracking", True),
    ]
    return f"{launcher} {command_line(['vitascope', 'train'], options)}".strip()


def refuse_other(path: Path, config: Mapping[str, Any], same: Sequence[str], what: str) -> None:
    """Refuse a folder whose record answers another question.

    Args:
        path: The record, without ``.json``; nothing is refused where there is none.
        config: What is asked now.
        same: What must be the same.
        what: What the record is, for the message.

    Raises:
        UserError: Naming what differs.
    """
    if not path.with_name(f"{path.name}.json").exists():
        return
    changes = differences(record.load(path).config, config, same)
    if changes:
        raise UserError(
            f"{path.parent} holds another {what}: {'; '.join(changes)}; ask the same question or "
            "choose another folder"
        )


_OF_A_RUN = ("config.yaml", "metrics.jsonl", "predictions.safetensors", "record.json")

_RECORDS = ("*.json", "*.safetensors")


def keep(out: Path, target: Path) -> int:
    """Copy from ``out``, the folder of studies or comparisons, into ``target``; bytes copied.

    What is there already is replaced, what is there besides stays.

    Raises:
        UserError: If there is no finished run, or one folder lies in the other.
    """
    out, target = Path(out), Path(target)
    source_path, target_path = out.resolve(), target.resolve()
    if (
        source_path == target_path
        or source_path in target_path.parents
        or target_path in source_path.parents
    ):
        raise UserError(
            f"{target} and {out} lie in each other; give a folder of its own to keep in"
        )
    runs = sorted(path.parent for path in out.glob("runs/*/seed-*/record.json"))
    if not runs:
        raise UserError(f"{out} has no finished run to keep")
    files = [path for pattern in _RECORDS for path in out.glob(pattern)]
    for run in runs:
        files += [run / name for name in _OF_A_RUN if (run / name).is_file()]
        files += [run / "record.safetensors"] if (run / "record.safetensors").is_file() else []
        files += [path for pattern in _RECORDS for path in run.glob(f"readings/{pattern}")]
    for path in files:
        copy = target / path.relative_to(out)
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(f".writing-{copy.name}")
        shutil.copyfile(path, part)
        part.replace(copy)
    return sum(path.stat().st_size for path in files)
