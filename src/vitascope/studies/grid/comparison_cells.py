"""The cells of a comparison: every model on every fraction of the images with every seed.

A cell is an ordinary run in a folder of its own, so it can be trained here, side by side with
others, or by a scheduler elsewhere (:func:`commands`), and is never trained twice. At log-spaced
epochs its weights are kept and looked at: gates and nonlocality (Fig. 5 and 6 of the ConViT paper).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from vitascope import measure
from vitascope.data import Dataset, EvalBatches, Subset, load, subset
from vitascope.errors import UserError
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.settings import Seed, Side, changed, check, command_line
from vitascope.studies.session.models import build, reopen
from vitascope.train import Recipe, log_spaced, recipe, train

__all__ = ["Comparison", "Job", "commands", "jobs_of", "look", "run_job", "safe"]

LOOKS = 6  # epochs at which weights are kept and looked at
LOOK_IMAGES = 128


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The question in full."""

    data: str
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    fractions: tuple[float, ...] = (0.1, 1.0)
    seeds: tuple[Seed, ...] = (0, 1)
    recipe: Recipe
    image_size: Side | None = None
    reference: str | None = None  # gains are relative to it; by default the first model
    overrides: tuple[str, ...] = ()  # what was changed in the recipe, to say the command again

    def __post_init__(self) -> None:
        check(self)
        for name in ("models", "fractions", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise UserError(f"{name} must be one or more different ones, not {list(values)}")
            folders = [f"{v:g}" if isinstance(v, float) else safe(str(v)) for v in values]
            if len(set(folders)) != len(values):
                raise UserError(
                    f"{name} {', '.join(map(str, values))} are too much alike: their runs would "
                    f"share the folders {', '.join(folders)}"
                )
        if not all(0 < fraction <= 1 for fraction in self.fractions):
            raise UserError(f"fractions lie in (0, 1], not {list(self.fractions)}")
        if self.reference is not None and self.reference not in self.models:
            raise UserError(f"the reference {self.reference} is not among the models")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell: a model, a fraction, a seed, and the recipe fitted to them."""

    model: str
    fraction: float
    seed: int
    recipe: Recipe
    out: Path


def jobs_of(question: Comparison, dataset: Dataset, out: Path) -> list[Job]:
    """All cells, the longest first; batches shrink so that few images still make four steps."""
    jobs = []
    for fraction in sorted(question.fractions, reverse=True):
        spec = Subset(fraction=fraction, seed=0)
        images = len(subset(dataset.train, spec))
        batch = min(question.recipe.batch_size, max(2, images // 4 // 2 * 2))
        plan = question.recipe.override(subset=spec, batch_size=batch)
        more = max(1, round(plan.epoch_factor))  # short epochs are measured and saved as rarely
        plan = plan.override(
            keep_epochs=tuple(sorted(log_spaced(plan.total_epochs, LOOKS))),
            eval_every=plan.eval_every * more,
            checkpoint_epochs=plan.checkpoint_epochs * more,
        )
        for model in question.models:
            for seed in question.seeds:
                folder = out / "runs" / safe(model) / f"{fraction:g}" / f"seed-{seed}"
                jobs.append(Job(model=model, fraction=fraction, seed=seed, recipe=plan, out=folder))
    return jobs


def safe(name: str) -> str:
    """A model's name as the name of a file."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


@lru_cache(maxsize=1)
def _images(source: str, image_size: int | None) -> Dataset:
    """Loaded once in each process."""
    return load(source, image_size=image_size)


def run_job(
    *, data: str, image_size: int | None, model: str, seed: int, recipe: Recipe, out: Path
) -> None:
    """Train one cell and look at what it kept; a finished one costs nothing."""
    torch.set_num_threads(1)
    dataset = _images(data, image_size)
    subject = build(model, dataset, seed=seed, drop_path=recipe.drop_path)
    train(
        subject.model,
        dataset,
        recipe,
        out,
        seed=seed,
        resume=True,
        quiet=True,
        model_config=subject.config,
        trackers=(),
    )
    if not (out / "looks.json").exists():
        look(out, dataset, recipe.keep_epochs).save(out / "looks")


def even(layers: Sequence[np.ndarray]) -> np.ndarray:
    """One row a layer; NaN where a layer has fewer heads than another. (L, H)

    >>> even([np.array([1.0]), np.array([2.0, 3.0])]).tolist()
    [[1.0, nan], [2.0, 3.0]]
    """
    rows = np.full((len(layers), max(map(len, layers))), np.nan)
    for row, heads in zip(rows, layers, strict=True):
        row[: len(heads)] = heads
    return rows


def look(folder: Path, dataset: Dataset, epochs: Sequence[int]) -> Record:
    """Gates and nonlocality of a run at the epochs it kept, on the first test images."""
    started = perf_counter()
    images = dataset.test.take(np.arange(min(LOOK_IMAGES, len(dataset.test))))
    batches = list(EvalBatches(images, batch_size=64, mean=dataset.mean, std=dataset.std))
    model = reopen(folder).model
    found: dict[str, list[Any]] = {}
    values: dict[str, Any] = {"epochs": list(epochs), "num_images": len(images)}
    for epoch in epochs:
        load_weights(model, folder / f"weights/epoch-{epoch:04d}.safetensors")
        for name, instrument in (("gates", measure.gates), ("nonlocality", measure.nonlocality)):
            try:
                result: Any = instrument(model, batches)
            except UserError:
                continue  # a CNN has neither, a ViT no gates
            heads = result.gate if name == "gates" else result.distance
            found.setdefault(name, []).append(even(list(heads.values())))
            values.setdefault(name, {"layers": list(result.layers)})
            if name == "nonlocality":
                first = result.layers[0]
                values[name] |= {"grid": result.grid[first], "uniform": result.uniform[first]}
    arrays = {name: np.stack(per_epoch) for name, per_epoch in found.items()}  # (E, L, H)
    seconds = perf_counter() - started
    return Record(kind="looks", values=values, arrays=arrays, seconds=seconds)


def commands(question: Comparison, out: str | Path) -> list[str]:
    """One ``vitascope train`` a cell, for any scheduler; `compare` then finds them finished."""
    dataset = load(question.data, image_size=question.image_size)
    usual = recipe(question.recipe.name, epochs=question.recipe.epochs).to_dict()
    return [
        command_line(["vitascope", "train"], [
            ("--model", job.model), ("--data", question.data),
            ("--image-size", question.image_size), ("--recipe", question.recipe.name),
            ("--epochs", question.recipe.epochs),
            ("--set", changed(job.recipe.to_dict(), usual)), ("--seed", job.seed),
            ("--threads", 1), ("--out", job.out), ("--resume", True), ("--no-tracking", True),
        ])
        for job in jobs_of(question, dataset, Path(out))
    ]  # fmt: skip
