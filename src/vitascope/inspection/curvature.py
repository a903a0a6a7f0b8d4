"""Curvature of the loss around a model: Hessian spectra, landscapes, the training trajectory.

Spectra and landscapes are of NLL + l2 on augmented training images, as a run's recipe makes them
with the seed; processes share the mini-batches of a spectrum. A trajectory needs the weights that
a run kept (``--set keep_epochs='[0,1,2,4,8]'``).

The batches of augmented images are fixed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from itertools import count, islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitascope import measure
from vitascope.data import TrainBatches, subset
from vitascope.errors import UserError
from vitascope.inspection.options import InspectOptions
from vitascope.loading.session import Session
from vitascope.measure.curvature.hessian import eigenvectors
from vitascope.measure.curvature.spectrum import HessianSpectrum
from vitascope.measure.registry import family
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

CURVATURE = tuple(family("curvature"))


def measure_curvature(
    name: str,
    options: InspectOptions,
    session: Session,
    steps: Steps,
    *,
    reopen: Callable[[], Session],
    batch_size: int,
    parts: Path | None,
) -> Record:
    """Measure one of ``CURVATURE``.

    Args:
        name: Which one.
        options: How it is measured.
        session: The model and its images.
        steps: Called with what is done and how many steps are ahead.
        reopen: Opens the same model in another process.
        batch_size: Images per mini-batch.
        parts: Folder where finished parts are kept, to go on from.
    """
    if name == "trajectory":
        return _trajectory(options.model, session).to_record()
    session.require_labels(name)
    seed, decay = options.seed, options.weight_decay
    recipe = recipe_of(options.model, options.recipe)
    common: dict[str, Any] = {
        "weight_decay": recipe.weight_decay if decay is None else decay,
        "batch_norm": options.batch_norm,
        "dtype": torch.float64 if options.double else torch.float32,
    }
    if name == "hessian" and options.processes > 1 and options.batches > 1:
        part = partial(_part, options, reopen, common, batch_size, parts)
        spectrum: Any = HessianSpectrum.merge(_in_processes(options, part, steps))
        return _with_images(spectrum.to_record(), options.batches, batch_size, recipe.name)
    batches = augmented_batches(
        session, recipe, num_batches=options.batches, batch_size=batch_size, seed=seed
    )
    if name == "hessian":
        spectrum = _spectrum(options, session, batches, common, parts, 0, steps)
    elif name == "blocks":
        del common["weight_decay"]  # of the NLL alone
        spectrum = measure.blocks(session.model, batches, seed=seed, on_group=steps, **common)
    elif name == "density":
        spectrum = measure.density(session.model, batches, seed=seed, **common)
        steps("density", 1)
    else:
        spectrum = _landscape(options, session, batches, common, parts, steps)
    return _with_images(spectrum.to_record(), options.batches, batch_size, recipe.name)


def _landscape(
    options: InspectOptions,
    session: Session,
    batches: Any,
    common: Any,
    parts: Path | None,
    steps: Steps,
) -> Any:
    directions: Any = options.directions
    if options.along == "eigenvectors":
        _, directions = eigenvectors(
            session.model,
            batches,
            num_eigenvalues=options.directions,
            seed=options.seed,
            tolerance=options.tolerance,
            **common,
        )
    surface = measure.landscape(
        session.model,
        batches,
        directions=directions,
        grid=options.points,
        axis="input" if options.along == "input" else "output",
        seed=options.seed,
        resume=None if parts is None else parts / "landscape.npz",
        on_point=lambda done, total: steps("landscape", total - done + 1),
        **common,
    )
    if options.along == "eigenvectors":
        surface = replace(surface, along="top eigenvectors of the Hessian, of length 1")
    return surface


def _with_images(record: Record, count: int, batch_size: int, recipe: str) -> Record:
    """The record, with what it was measured on."""
    images = {"batches": count, "batch_size": batch_size, "augmented_by": recipe}
    return replace(record, config={**record.config, **images})


def _spectrum(
    options: InspectOptions,
    session: Session,
    batches: Any,
    common: Any,
    parts: Path | None,
    first: int,
    steps: Any,
) -> HessianSpectrum:
    resume = None if parts is None else parts / f"hessian-{first}-{len(batches)}.npz"
    return measure.hessian(
        session.model,
        batches,
        num_eigenvalues=options.eigenvalues,
        tolerance=options.tolerance,
        seed=options.seed,
        first_batch=first,
        resume=resume,
        on_batch=lambda number: steps("hessian", len(batches) + first - number),
        **common,
    )


def _part(
    options: InspectOptions,
    reopen: Callable[[], Session],
    common: Any,
    batch_size: int,
    parts: Path | None,
    first: int,
    last: int,
) -> HessianSpectrum:
    """The mini-batches from ``first`` to before ``last``, in a process of their own."""
    torch.set_num_threads(1)
    session, recipe = reopen(), recipe_of(options.model, options.recipe)
    batches = augmented_batches(
        session, recipe, num_batches=last, batch_size=batch_size, seed=options.seed
    )
    return _spectrum(options, session, batches[first:], common, parts, first, lambda *_: None)


def _in_processes(
    options: InspectOptions, part: Callable[[int, int], HessianSpectrum], steps: Steps
) -> Iterator[HessianSpectrum]:
    """Equal parts, twice as many as processes, so that none waits long for the last."""
    count = min(2 * options.processes, options.batches)
    edges = np.linspace(0, options.batches, count + 1).astype(int).tolist()
    context = get_context("spawn")
    with ProcessPoolExecutor(options.processes, context, initializer=watch_parent) as pool:
        with without_main():
            waiting = [pool.submit(part, *pair) for pair in pairwise(edges)]
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
