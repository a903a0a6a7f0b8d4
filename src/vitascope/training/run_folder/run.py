"""The folder of a run: start, finish and load one.

config.yaml         recipe, model, data, seed; versions and commit
metrics.jsonl       one line per epoch
model.safetensors   the final weights; ema.safetensors their average, best.safetensors the best
weights/            weights of chosen epochs
checkpoint/         state to resume from
predictions.safetensors  of every test image: prediction and label
record.json         the result; there once the run is finished
events/             TensorBoard
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from vitascope import record
from vitascope.errors import UserError, listed
from vitascope.record import (
    FORMAT,
    Record,
    load_config,
    load_metrics,
    provenance,
    write_text,
)
from vitascope.training.predictions import Predictions, load_predictions
from vitascope.training.recipes.config import Recipe
from vitascope.training.run_folder.lock import explain_write_errors

__all__ = [
    "Run",
    "differences",
    "enter",
    "finish",
    "finished_folder",
    "load_run",
    "load_task_run",
    "refuse_used",
    "run_folder",
    "write_metrics",
]

_ANSWERS = ("compare.json", "pretrained.json")  # records of comparisons
_KINDS = ("run", "task")  # of records: classification, another task
_SAME = ("task", "recipe", "model", "data", "seed", "teacher")  # what makes two runs the same run


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: its folder, config, results and weights."""

    folder: Path
    final: Mapping[str, Any]  # the line of metrics.jsonl whose weights it has, the last as a rule
    best: Mapping[str, Any]  # the line with the highest metric
    seconds: float  # of training and evaluation, over all its resumptions
    epochs: int
    steps: int
    seed: int
    world_size: int
    task: str = "classification"
    metric: str = "top1"  # the number that says how good it is

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe it was trained with."""
        return Recipe.from_dict(self.config["recipe"])

    @cached_property
    def config(self) -> dict[str, Any]:
        """``config.yaml``, read once: a finished run does not change."""
        return load_config(self.folder)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of its classes in the order of its outputs; None for a run that kept none."""
        names = self.config["data"].get("classes")
        return None if names is None else tuple(map(str, names))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return load_metrics(self.folder)

    @property
    def predictions(self) -> Predictions | None:
        """Predictions on the images that it was measured on; None for a run that kept none."""
        return load_predictions(self.folder)

    @property
    def weights(self) -> Path:
        """The final weights."""
        return self.folder / "model.safetensors"


_OWN = ("metrics.jsonl", "checkpoint", "events", "weights")  # of a run that lost its config


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, without hidden files such as its lock."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in there if not path.name.startswith(".")]


def enter(folder: Path, config: Mapping[str, Any], resume: bool) -> Run | None:
    """Prepare ``folder`` for a run of ``config``; return the run if it is finished already.

    Raises:
        UserError: If the folder holds a run and ``resume`` is off, or a run of another config.
    """
    refuse_used(folder, resume)
    if (folder / "config.yaml").exists():
        changes = differences(load_config(folder), config)
        if changes:
            raise UserError(
                f"{folder} holds a run with another config: {'; '.join(changes)}; resume with the "
                "same config or choose another folder"
            )
        return load_run(folder, _KINDS) if (folder / "record.json").exists() else None
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        body = {"format": FORMAT, **config, "made": provenance()}
        write_text(folder / "config.yaml", yaml.safe_dump(body, sort_keys=False))
    return None


def refuse_used(folder: Path, resume: bool) -> None:
    """Refuse a folder that a run cannot be made in; torch is not needed to tell.

    Raises:
        UserError: For a file, a folder with other things, and, unless ``resume``, one with a run.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder for the run")
    if (folder / "config.yaml").exists():
        if not resume:
            raise UserError(
                f"{folder} already holds a run; resume it (--resume) or choose another folder"
            )
        return
    others = [path.name for path in _entries(folder) if path.name not in _OWN]
    if others:
        raise UserError(
            f"{folder} holds other things ({listed(others, 3)}); choose a new folder for the run"
        )


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], keys: Sequence[str] = _SAME, prefix: str = ""
) -> list[str]:
    """The fields in which two configs differ, in words.

    >>> differences({"recipe": {"lr": 1.0}}, {"recipe": {"lr": 2.0}})
    ['recipe.lr was 1.0, now 2.0']
    """
    changes = []
    for key in keys:
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            changes += differences(a, b, sorted({*a, *b}), f"{prefix}{key}.")
        elif a != b and not _as_rounded_elsewhere(a, b):
            changes.append(f"{prefix}{key} was {_shown(a)}, now {_shown(b)}")
    return changes


def _as_rounded_elsewhere(a: Any, b: Any) -> bool:
    """Return whether numbers differ by rounding alone, as means of images do on different CPUs.

    >>> _as_rounded_elsewhere([0.30547571], [0.30547574]), _as_rounded_elsewhere(0.1, 0.1001)
    (True, False)
    """
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_as_rounded_elsewhere, a, b))
    both = isinstance(a, float) and isinstance(b, float)
    return a == b or (both and math.isclose(a, b, rel_tol=1e-6))


def _shown(value: Any) -> str:
    """A value in a message; of a long list its beginning."""
    return f"[{listed([repr(item) for item in value])}]" if isinstance(value, list) else repr(value)


def write_metrics(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all lines anew: after a resume no epoch stands there twice."""
    with explain_write_errors(folder / "metrics.jsonl"):
        write_text(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def finish(
    folder: Path, rows: Sequence[Mapping[str, Any]], config: Any, metric: str, **values: Any
) -> Run:
    """Write the record that makes a run finished; ``values["final"]`` is the row of its weights."""
    measured = [row for row in rows if row[metric] is not None]
    best = max(measured, key=lambda row: row[metric])
    body = {"final": rows[-1], "best": best, **values}
    kind, seconds = "run", values["seconds"]
    if "task" in config:
        kind, body = "task", {"task": config["task"], "metric": metric, **body}
    with explain_write_errors(folder / "record.json"):
        Record(kind=kind, values=body, config=config, seed=config["seed"], seconds=seconds).save(
            folder / "record"
        )
    return load_run(folder, _KINDS)


def recommendation_of(folder: str | Path) -> dict[str, Any] | None:
    """Return the recommendation of the latest comparison in ``folder``; None without one."""
    answers = [path for name in _ANSWERS if (path := Path(folder) / name).is_file()]
    if not answers:
        return None
    latest = max(answers, key=lambda path: path.stat().st_mtime)
    advice = record.load(latest).values.get("recommendation")
    return dict(advice) if isinstance(advice, Mapping) else {}


def run_folder(folder: str | Path) -> Path:
    """Return the folder of the run: ``folder``, or the run that a comparison there recommends.

    Raises:
        UserError: If the comparison has no run of the model that it recommends.
    """
    folder = Path(folder)
    advice = None if (folder / "config.yaml").exists() else recommendation_of(folder)
    if advice is None:
        return folder
    run = advice.get("run")
    parts = Path(run).relative_to(Path(run).anchor).parts if isinstance(run, str) else ()
    for first in range(len(parts)):  # the folder may have been moved since
        inside = folder.joinpath(*parts[first:])
        if ".." not in parts and (inside / "config.yaml").is_file():
            return inside
    raise UserError(
        f"{folder} is a comparison without a run of the model that it recommends; give the folder "
        "of a run, or make the comparison again"
    )


def finished_folder(folder: str | Path) -> Path:
    """Return the folder of a finished run, or of the one that a comparison there recommends.

    Raises:
        UserError: If it holds no run, or one that is not finished; torch is not needed to tell.
    """
    folder = run_folder(folder)
    if not (folder / "record.json").exists():
        problem = "is not finished" if (folder / "config.yaml").exists() else "holds no run"
        raise UserError(f"{folder} {problem}; resume it, or train one there")
    return folder


def load_run(folder: str | Path, kinds: Sequence[str] = ("run",)) -> Run:
    """Load the finished run in ``folder``, or the one that a comparison there recommends.

    Args:
        folder: Of a run or of a comparison.
        kinds: "run" for classification, "task" for another task.
    """
    folder = finished_folder(folder)
    stored = record.load(folder / "record.json")
    fields, record_values = _STORED, stored.values
    if stored.kind == "task":
        fields = {**_STORED, "task": str, "metric": str}
    values: dict[str, Any] = {name: record_values.get(name) for name in fields}
    wrong = [name for name, kind in fields.items() if not isinstance(values[name], kind)]
    if stored.kind not in kinds or wrong:
        problem = f"without {', '.join(wrong)}" if stored.kind in kinds else f"of {stored.kind!r}"
        raise UserError(f"{folder / 'record.json'} is not a run's: it is a record {problem}")
    return Run(folder=folder, seed=stored.seed or 0, **values)


def load_task_run(folder: str | Path) -> Run | None:
    """The finished run of another task than classification; None if there is something else."""
    path = run_folder(folder) / "record.json"
    is_task = path.is_file() and record.load(path).kind == "task"
    return load_run(folder, ("task",)) if is_task else None


_STORED: dict[str, Any] = {  # values of a run's record
    "final": dict,
    "best": dict,
    "seconds": (int, float),
    "epochs": int,
    "steps": int,
    "world_size": int,
}
