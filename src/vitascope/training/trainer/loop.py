"""Train any model on any images by a recipe, into a folder that can be resumed.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import timm
    >>> from vitascope import data
    >>> from vitascope.training import recipe, train
    >>> digits = data.load("digits")
    >>> model = timm.create_model("test_vit", img_size=8, patch_size=4, in_chans=1, num_classes=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(model, digits, recipe("laptop", epochs=1), Path(folder) / "a", quiet=True)
    >>> run.final["epoch"], run.final["step"], run.world_size
    (1, 22, 1)

A run is a function of model, images, recipe and seed. Killed at any moment and resumed, it ends
with the same bits (on the CPU); see :mod:`vitascope.training.run_folder.checkpoints`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from accelerate.tracking import GeneralTracker
from safetensors.torch import load_file
from torch import nn

from vitascope.capture import logits_of, try_image
from vitascope.data import Dataset, EvalBatches, Subset, TrainBatches, subset
from vitascope.data.images import ImageSet
from vitascope.errors import Interrupted, UserError
from vitascope.progress import Progress
from vitascope.settings import Seed, Workers, check_value
from vitascope.training.distributed import TrainingProcess
from vitascope.training.observe import Observer, keep_weights
from vitascope.training.recipes.config import Recipe
from vitascope.training.run_folder.lock import lock_folder
from vitascope.training.run_folder.run import Run, enter
from vitascope.training.trainer.distill import Teacher
from vitascope.training.trainer.optimizer import build_optimizer, frozen
from vitascope.training.trainer.stop import catch_stop_signals
from vitascope.training.trainer.task import Classification, Learning, Task
from vitascope.training.trainer.trainer import Trainer
from vitascope.training.trainer.update import Update

__all__ = ["check_trainable", "data_config", "train", "train_task"]


def train(
    model: nn.Module,
    dataset: Dataset,
    recipe: Recipe,
    out: str | Path,
    *,
    seed: int = 0,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    teacher: nn.Module | None = None,
    quiet: bool = False,
    device: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    num_workers: int = 0,
    fsdp: bool = False,
    trackers: Sequence[str | GeneralTracker] | None = None,
) -> Run:
    """Train ``model`` in place; return the finished run.

    Args:
        model: Any classifier with as many outputs as there are classes; the caller gave it
            ``recipe.drop_path`` and its first weights.
        dataset: Training and test images.
        recipe: How.
        out: The run's folder.
        seed: Of the order, the augmentation and the randomness inside the model.
        resume: Go on with the run in ``out``, if there is one.
        observers: See :mod:`vitascope.training.observe`.
        teacher: For ``recipe.distillation``; a :class:`Teacher`, or a model that takes the
            student's images as they are.
        quiet: No progress.
        device: "cpu", "cuda", "cuda:1", "mps"; None: the best there is.
        model_config: How the model was built, for ``config.yaml``.
        num_workers: Processes that decode image files.
        fsdp: Shard the model over the processes.
        trackers: Names of Accelerate's, or its ``GeneralTracker`` objects; None: TensorBoard, if it
            is installed.

    Raises:
        UserError: For what cannot work; :class:`Diverged` when the loss is no number any more.
        Interrupted: After Ctrl-C or SIGTERM, with everything saved.
    """
    out = Path(out)
    check_value(seed, Seed, "seed")
    check_value(num_workers, Workers, "num_workers")
    if (recipe.distillation == "none") != (teacher is None):
        raise UserError(
            f"distillation is {recipe.distillation!r} and there is "
            f"{'no' if teacher is None else 'a'} teacher; give both or neither"
        )
    images, tests = chosen_images(dataset, recipe)
    _check_fit(model, images.size, len(images.classes))
    process = TrainingProcess(recipe, device=device, fsdp=fsdp, folder=out, trackers=trackers)
    processes = {"rank": process.rank, "world_size": process.world_size, "num_workers": num_workers}
    batches = training_batches(dataset, recipe, seed=seed, **processes)
    test_batches = EvalBatches(
        tests, batch_size=recipe.eval_batch, mean=dataset.mean, std=dataset.std, **processes
    )
    config = {
        "recipe": recipe.to_dict(),
        "model": dict(model_config or {"class": type(model).__name__}),
        "data": data_config(dataset, recipe),
        "teacher": type(teacher).__name__ if teacher is not None else None,
        "seed": seed,
        "world_size": process.world_size,
    }
    finished = _finished(process, model, out, config, resume)
    if finished is not None:
        return finished
    if teacher is not None:
        teacher = teacher if isinstance(teacher, Teacher) else Teacher(teacher)
        teacher.to(process.device)
        teacher.meet(dataset.mean, dataset.std, images.size, images.classes)
    task = Classification(process, batches, test_batches)
    with _two_heads(model, teacher is not None):
        return _fit(
            process, model, task, recipe, out, config, resume, quiet, observers, teacher=teacher
        )


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
) -> Run:
    """Train ``model`` in place on another task than classification; in one process.

    A recipe's augmentation is of images with labels and not used: a task has its own. The other
    arguments and what is raised are those of :func:`train`.
    """
    check_value(seed, Seed, "seed")
    for name in ("ema", "sam"):
        if getattr(recipe, name) is not None:
            raise UserError(f"recipe field {name} is for classification; leave it null here")
    if recipe.finish != "last":
        raise UserError("recipe field finish is for classification; leave it at last here")
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
    process = TrainingProcess(recipe, device=device)
    if process.world_size > 1:
        raise UserError(f"{task.name} runs in one process; start it without torchrun")
    finished = _finished(process, model, Path(out), config, resume)
    if finished is not None:
        return finished
    return _fit(process, model, task, recipe, Path(out), config, resume, quiet, task=task)


def _finished(
    process: TrainingProcess, model: nn.Module, out: Path, config: Mapping[str, Any], resume: bool
) -> Run | None:
    """The run of this config that is in the folder already, its weights in the model."""
    taken = out.exists() and ((out / "config.yaml").exists() or not out.is_dir())
    run: Run | None = process.agreed(enter(out, config, resume) if process.main and taken else None)
    if run is not None:
        model.load_state_dict(load_file(run.weights))
    return run


def _fit(
    process: TrainingProcess,
    model: nn.Module,
    learned: Learning,
    recipe: Recipe,
    out: Path,
    config: Mapping[str, Any],
    resume: bool,
    quiet: bool,
    observers: Sequence[Observer] = (),
    **losses: Any,
) -> Run:
    """All epochs that are left; ``losses`` are the teacher or the task of an update."""
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(frozen(model, recipe.freeze))
        spare = deepcopy(model) if process.fsdp and process.main else model
        prepared = process.prepare(model)
        stack.callback(process.release, prepared)
        optimizer = build_optimizer(process.plain(prepared), recipe)
        update = Update(process, prepared, optimizer, recipe, seed=config["seed"], **losses)
        # all has been checked; from here on something is written
        if process.main:
            stack.enter_context(lock_folder(out))
            enter(out, config, resume)
        request = stack.enter_context(catch_stop_signals())
        total = recipe.total_epochs * learned.steps * recipe.batch_size
        loop = Trainer(process, update, recipe, out, learned, request, config, spare)
        loop.observers = [*observers, keep_weights(recipe.keep_epochs)]
        loop.restore()
        done_before, hidden = loop.step * recipe.batch_size, quiet or not process.main
        progress = Progress("", total, start=done_before, unit="img", quiet=hidden)
        loop.progress = stack.enter_context(progress)
        done = loop.run()
        if request:  # it came in the last epoch: whoever asked wants no further run either
            raise Interrupted(out, loop.step, request.signal_name, finished=True)
        return done


def chosen_images(dataset: Dataset, recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """The images that a recipe trains on, and those it is measured on."""
    tests = Subset(first_classes=recipe.subset.first_classes)
    return subset(dataset.train, recipe.subset), subset(dataset.test, tests)


def training_batches(
    dataset: Dataset, recipe: Recipe, *, seed: int = 0, **processes: Any
) -> TrainBatches:
    """The batches that a recipe trains on; ``place`` is the rank among so many processes."""
    images = subset(dataset.train, recipe.subset)
    return TrainBatches(
        images,
        batch_size=recipe.batch_size,
        augmentation=recipe.augmentation,
        num_classes=len(images.classes),
        mean=dataset.mean,
        std=dataset.std,
        flips=dataset.flips,
        seed=seed,
        **processes,
    )


def data_config(dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    """Describe the images of a run for ``config.yaml``."""
    images, tests = chosen_images(dataset, recipe)
    fold = {} if dataset.fold is None else {"fold": list(dataset.fold)}
    return {
        "name": dataset.name,
        "num_classes": len(images.classes),
        "train_images": len(images),
        "test_images": len(tests),
        "size": list(images.size),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "notes": list(dataset.notes),
        "classes": list(images.classes),
        "crop_pct": dataset.crop_pct,
        "interpolation": dataset.interpolation,
        **fold,
    }


def check_trainable(model: nn.Module, dataset: Dataset, recipe: Recipe) -> None:
    """Check before a run that the recipe and the images suit the model.

    Raises:
        UserError: If they do not.
    """
    images = subset(dataset.train, recipe.subset)
    _check_fit(model, images.size, len(images.classes))
    with frozen(model, recipe.freeze):
        build_optimizer(model, recipe)
    training_batches(dataset, recipe)


def _check_fit(model: nn.Module, size: tuple[int, int, int], num_classes: int) -> None:
    """Refuse a model that does not take the images or has other classes, before anything is made.

    Raises:
        UserError: If so.
    """
    first = next(model.parameters())
    image = torch.zeros(1, *size, device=first.device, dtype=first.dtype)
    advice = "build it with their img_size and in_chans, or load the images in its size"
    logits = logits_of(try_image(model, image, "the model", advice))
    if logits.shape[-1] != num_classes:
        raise UserError(
            f"the model has {logits.shape[-1]} outputs, the images have {num_classes} classes; "
            f"build it with num_classes={num_classes}"
        )


@contextmanager
def _two_heads(model: nn.Module, distilling: bool) -> Iterator[None]:
    """Let a model with a distillation head return both heads' logits where a teacher needs them."""
    switch = getattr(model, "set_distilled_training", None)
    if switch is None:
        yield
        return
    before = getattr(model, "distilled_training", False)
    switch(distilling)
    try:
        yield
    finally:
        switch(before)
