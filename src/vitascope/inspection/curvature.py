"""Curvature of the loss around a model: Hessian spectra, landscapes, the training trajectory.

Spectra and landscapes are of NLL + l2 on augmented training images, as a run's recipe makes them
with the seed; processes share the mini-batches of a spectrum. A trajectory needs the weights that
a run kept (``--set keep_epochs='[0,1,2,4,8]'``).

The batches of augmented images are fixed.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vitascope import measure
from vitascope.data import TrainBatches, subset
from vitascope.errors import UserError
from vitascope.loading.session import Session, open_session
from vitascope.measure.curvature.hessian import eigenvectors
from vitascope.measure.curvature.spectrum import HessianSpectrum
from vitascope.models.weights import read_state
from vitascope.processes import watch_parent, without_main
from vitascope.progress import Steps
from vitascope.record import Record
from vitascope.training import Recipe, load_run, recipe


def recipe_of(subject: str, name: str | None = None) -> Recipe:
    """The recipe a run was trained with; for any other model the one named (laptop)."""
    if Path(subject).is_dir() and name is None:
        return load_run(subject).recipe
    return recipe(name or "laptop")


def augmented_batches(
    session: Session, plan: Recipe, *, num_batches: int, batch_size: int, seed: int = 0
) -> list[tuple[Tensor, Tensor]]:
    """Images and targets of the first batches that training with this seed would see.

    Mixing and label smoothing make the targets probabilities; they are part of the loss. The
    images are those of the recipe's subset, in the model's normalisation.
    """
    if num_batches < 1 or batch_size < 1:
        raise UserError(f"give at least 1 batch of 1 image, not {num_batches} of {batch_size}")
    images = session.images
    mean, std = session.statistics
    batches = TrainBatches(
        subset(images.train, plan.subset),
        batch_size=batch_size,
        augmentation=plan.augmentation,
        num_classes=len(images.classes),
        mean=mean,
        std=std,
        flips=images.flips,
        seed=seed,
        one_class=True,
    )

    def endless() -> Any:
        for epoch in count():
            yield from batches.epoch(epoch)

    device = session.device
    return [
        (batch.images.to(device), batch.targets.to(device))
        for batch in islice(endless(), num_batches)
    ]


BATCH_SIZE = 16  # images per mini-batch, the paper's

CURVATURE = ("hessian", "blocks", "density", "landscape", "trajectory")


@dataclass(frozen=True, kw_only=True)
class Curvature:
    """How curvature is measured, as records keep it."""

    num_batches: int = 16
    batch_size: int = BATCH_SIZE
    num_eigenvalues: int = 5
    tolerance: float = 1e-3
    points: int = 21
    along: Literal["random", "input", "eigenvectors"] = "random"
    directions: int = 2
    weight_decay: float | None = None  # the recipe's
    batch_norm: Literal["running", "batch"] = "running"
    double: bool = False
    recipe: str | None = None  # a run's own, or laptop
    processes: int = 1
    parts: Path | None = None  # where finished parts are kept, to go on from

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise UserError(f"cannot measure in {self.processes} processes; give 1 or more")


def measure_curvature(
    name: str, plan: Curvature, session: Session, options: dict[str, Any], steps: Steps
) -> Record:
    """One of ``CURVATURE``; ``options`` open the same model in another process."""
    text, seed = options["text"], options["seed"]
    if name == "trajectory":
        return _trajectory(text, session).to_record()
    session.require_labels(name)
    recipe = recipe_of(text, plan.recipe)
    common: dict[str, Any] = {
        "weight_decay": recipe.weight_decay if plan.weight_decay is None else plan.weight_decay,
        "batch_norm": plan.batch_norm,
        "dtype": torch.float64 if plan.double else torch.float32,
    }
    if name == "hessian" and plan.processes > 1 and plan.num_batches > 1:
        spectrum: Any = HessianSpectrum.merge(_in_processes(plan, options, common, steps))
        return _with_images(spectrum.to_record(), plan, recipe.name)
    batches = augmented_batches(
        session, recipe, num_batches=plan.num_batches, batch_size=plan.batch_size, seed=seed
    )
    if name == "hessian":
        spectrum = _spectrum(plan, session, batches, common, seed, 0, steps)
    elif name == "blocks":
        del common["weight_decay"]  # of the NLL alone
        spectrum = measure.blocks(session.model, batches, seed=seed, on_group=steps, **common)
    elif name == "density":
        spectrum = measure.density(session.model, batches, seed=seed, **common)
        steps("density", 1)
    else:
        spectrum = _landscape(plan, session, batches, common, seed, steps)
    return _with_images(spectrum.to_record(), plan, recipe.name)


def _landscape(
    plan: Curvature, session: Session, batches: Any, common: Any, seed: int, steps: Steps
) -> Any:
    directions: Any = plan.directions
    if plan.along == "eigenvectors":
        _, directions = eigenvectors(
            session.model,
            batches,
            num_eigenvalues=plan.directions,
            seed=seed,
            tolerance=plan.tolerance,
            **common,
        )
    surface = measure.landscape(
        session.model,
        batches,
        directions=directions,
        grid=plan.points,
        axis="input" if plan.along == "input" else "output",
        seed=seed,
        resume=None if plan.parts is None else plan.parts / "landscape.npz",
        on_point=lambda done, total: steps("landscape", total - done + 1),
        **common,
    )
    if plan.along == "eigenvectors":
        surface = replace(surface, along="top eigenvectors of the Hessian, of length 1")
    return surface


def _with_images(record: Record, plan: Curvature, recipe: str) -> Record:
    """The record, with what it was measured on."""
    images = {"batches": plan.num_batches, "batch_size": plan.batch_size, "augmented_by": recipe}
    return replace(record, config={**record.config, **images})


def _spectrum(
    plan: Curvature, session: Session, batches: Any, common: Any, seed: int, first: int, steps: Any
) -> HessianSpectrum:
    resume = None if plan.parts is None else plan.parts / f"hessian-{first}-{len(batches)}.npz"
    return measure.hessian(
        session.model,
        batches,
        num_eigenvalues=plan.num_eigenvalues,
        tolerance=plan.tolerance,
        seed=seed,
        first_batch=first,
        resume=resume,
        on_batch=lambda number: steps("hessian", len(batches) + first - number),
        **common,
    )


def _part(plan: Curvature, options: dict[str, Any], common: Any, first: int, last: int) -> Any:
    """The mini-batches from ``first`` to before ``last``, in a process of their own."""
    torch.set_num_threads(1)
    session, seed = open_session(**options), options["seed"]
    recipe = recipe_of(options["text"], plan.recipe)
    batches = augmented_batches(
        session, recipe, num_batches=last, batch_size=plan.batch_size, seed=seed
    )
    return _spectrum(plan, session, batches[first:], common, seed, first, lambda *_: None)


def _in_processes(
    plan: Curvature, options: dict[str, Any], common: Any, steps: Steps
) -> Iterator[HessianSpectrum]:
    """Equal parts, twice as many as processes, so that none waits long for the last."""
    count = min(2 * plan.processes, plan.num_batches)
    edges = np.linspace(0, plan.num_batches, count + 1).astype(int).tolist()
    context = get_context("spawn")
    with ProcessPoolExecutor(plan.processes, context, initializer=watch_parent) as pool:
        with without_main():
            waiting = [pool.submit(_part, plan, options, common, *pair) for pair in pairwise(edges)]
        for left, done in enumerate(as_completed(waiting)):
            steps("hessian", count - left)
            yield done.result()


def _trajectory(text: str, session: Session) -> Any:
    """From the weights a run kept, to its last ones."""
    folder = Path(text)
    checkpoints = sorted(folder.glob("weights/epoch-*.safetensors")) if folder.is_dir() else []
    if len(checkpoints) < 2:
        raise UserError(
            f"{text} kept the weights of {len(checkpoints)} epochs; a trajectory needs 2 or more: "
            "train with --set keep_epochs='[0,1,2,4,8]'"
        )
    states: dict[int, Any] = {
        int(path.stem.split("-")[1]): lambda path=path: read_state(path) for path in checkpoints
    }
    run = load_run(folder)
    states.setdefault(run.epochs, lambda: read_state(run.weights))
    return measure.trajectory(states, weights=session.model)
