"""Readings of a finished run (final metrics, curves, instruments, ...), each as a record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vitascope import measure
from vitascope.data import Dataset, EvalBatches, Subset, subset
from vitascope.errors import UserError, unknown
from vitascope.inspection.curvature import BATCH_SIZE
from vitascope.inspection.evaluation import evaluate_on, evaluate_subject
from vitascope.inspection.inspect import (
    MEASURES,
    ON_REQUEST,
    inspect_subject,
    open_inspected,
)
from vitascope.inspection.options import EvaluateOptions, InspectOptions
from vitascope.loading.opening import open_run
from vitascope.measure.attention.windows import position_weights, window_of
from vitascope.measure.throughput import throughput
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.runs.spec import Reading, Training
from vitascope.runs.train_model import load_images
from vitascope.training import Run, evaluate
from vitascope.training.distributed import device_of

NUM_IMAGES = 128  # the first ones, on which gates and nonlocality are followed
_OPTION = {  # options of an instrument whose name in a reading, and so in its key, is another
    "num_images": "images",
    "num_batches": "batches",
    "num_eigenvalues": "eigenvalues",
}


def read(run: Run, reading: Reading, training: Training) -> Record:
    """One reading of a finished run, as a record."""
    started = perf_counter()
    if reading.name not in READINGS:
        raise unknown("reading", reading.name, READINGS)
    record = READINGS[reading.name](run, dict(reading.options), training)
    config = {**record.config, "run": str(run.folder.name), "options": dict(reading.options)}
    return replace(record, config=config, seed=run.seed, seconds=perf_counter() - started)


def _final(run: Run, options: dict[str, Any], training: Training) -> Record:
    """The last line of the run, with its size and cost."""
    data = run.config["data"]
    values = {
        **run.final,
        "best_top1": run.best["top1"],
        "seconds": run.seconds,
        "epochs": run.epochs,
        "train_images": data["train_images"],
        "num_test": data["test_images"],
    }
    return Record(kind="final", values=values)


def _curves(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Accuracy and losses over the epochs that were measured."""
    rows = [row for row in run.metrics if row["top1"] is not None]
    names = ("epoch", "top1", "top5", "test_nll", "train_nll", "train_loss", "ece")
    return Record(kind="curves", values={n: [row.get(n) for row in rows] for n in names})


def _looks(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Gates and nonlocality over training; of ``num_images`` drawn with the seed if it is given."""
    images = load_images(training.data, training.image_size, training.validation, training.fold)
    count, chosen = options.get("num_images"), None
    if count is not None:
        order = np.random.default_rng(run.seed).permutation(len(images.test))
        chosen = np.sort(order[:count])
    return gates_and_nonlocality(run.folder, images, run.recipe.keep_epochs, chosen)


def _test(run: Run, options: dict[str, Any], training: Training) -> Record:
    """The test images, for a run that was measured on validation images."""
    split = training.fold is None  # otherwise all images are in the folds
    images = load_images(
        training.data, training.image_size, start=training.source_of_weights, split=split
    )
    tests = subset(images.test, Subset(first_classes=run.recipe.subset.first_classes))
    batches = EvalBatches(tests, batch_size=run.recipe.eval_batch, mean=images.mean, std=images.std)
    evaluation = evaluate(open_run(run.folder).model, batches, label_sets=images.label_sets)
    return evaluation.to_record(run=str(run.folder), data=images.name, split="test")


def _elsewhere(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Accuracy on other test images with labels of the same classes: ``data``."""
    return evaluate_subject(EvaluateOptions(model=str(run.folder), data=options["data"]))


def _published_corruptions(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Accuracy on published corrupted images: ``folder``."""
    asked = EvaluateOptions(
        model=str(run.folder),
        on=("corruption",),
        corrupted=Path(options["folder"]),
        seed=run.seed,
    )
    return evaluate_on(asked)["corruption"]


def _throughput(run: Run, options: dict[str, Any], training: Training) -> Record:
    """Images a second of the finished model, on the best device there is."""
    model = open_run(run.folder).model.to(device_of(None))
    return throughput(model, run.config["data"]["size"], **options).to_record()


def _instrument(name: str, run: Run, options: dict[str, Any], training: Training) -> Record:
    """An instrument of ``vitascope inspect``; ``epoch`` may be a share of the training."""
    share = options.pop("at", None)
    if share is not None:
        epochs = run.recipe.keep_epochs
        options["epoch"] = min(epochs, key=lambda epoch: abs(epoch - share * run.epochs))
    curvature_batch = options.pop("batch_size", BATCH_SIZE)
    given = {_OPTION.get(key, key): value for key, value in options.items()}
    usual = InspectOptions(
        model=str(run.folder), data=training.data, measures=(name,), seed=run.seed
    )
    asked = replace(usual, **given)
    record = inspect_subject(asked, curvature_batch=curvature_batch).records[name]
    if name == "maps" and asked.images == 1:
        record = replace(record, arrays={**record.arrays, "image": _drawn_image(asked)})
    return record


def _drawn_image(asked: InspectOptions) -> np.ndarray:
    """The one image that a request looks at. (H, W, C) uint8"""
    session = open_inspected(asked)
    pixels = session.images.test.pixels(session.draw(1, asked.seed))[0]
    return np.asarray(pixels.permute(1, 2, 0))


READINGS: Mapping[str, Callable[[Run, dict[str, Any], Training], Record]] = {
    "final": _final,
    "curves": _curves,
    "looks": _looks,
    "test": _test,
    "elsewhere": _elsewhere,
    "published-corruptions": _published_corruptions,
    "throughput": _throughput,
    **{name: partial(_instrument, name) for name in (*MEASURES, *ON_REQUEST)},
}


def _padded(layers: Sequence[np.ndarray]) -> np.ndarray:
    """One row per layer; NaN where a layer has fewer heads than another. (L, H)

    >>> _padded([np.array([1.0]), np.array([2.0, 3.0])]).tolist()
    [[1.0, nan], [2.0, 3.0]]
    """
    rows = np.full((len(layers), max(map(len, layers))), np.nan)
    for row, heads in zip(rows, layers, strict=True):
        row[: len(heads)] = heads
    return rows


def gates_and_nonlocality(
    folder: Path, dataset: Dataset, epochs: Sequence[int], chosen: np.ndarray | None = None
) -> Record:
    """Gates, windows and nonlocality of a run at the epochs it kept, on some test images.

    Fig. 5 and 6 of the ConViT paper, https://arxiv.org/abs/2103.10697, which takes 1,024 images.

    Args:
        folder: Of the run.
        dataset: Its images.
        epochs: Those it kept.
        chosen: Positions of the test images; the first 128 when left out.
    """
    if chosen is None:
        chosen = np.arange(min(NUM_IMAGES, len(dataset.test)))
    images = dataset.test.take(chosen)
    batches = list(EvalBatches(images, batch_size=64, mean=dataset.mean, std=dataset.std))
    model = open_run(folder).model
    values_by_name: dict[str, list[Any]] = {}
    values: dict[str, Any] = {"epochs": list(epochs), "num_images": len(images)}
    for epoch in epochs:
        load_weights(model, folder / f"weights/epoch-{epoch:04d}.safetensors")
        for name, weight in position_weights(model).items():
            centre, width = window_of(weight)
            windows = np.concatenate([centre, width[:, None]], axis=1)
            values_by_name.setdefault(f"windows/{name}", []).append(windows)
        for name, instrument in (("gates", measure.gates), ("nonlocality", measure.nonlocality)):
            try:
                result: Any = instrument(model, batches)
            except UserError:
                continue  # a CNN has neither, a ViT no gates
            heads = result.gate if name == "gates" else result.distance
            values_by_name.setdefault(name, []).append(_padded(list(heads.values())))
            values.setdefault(name, {"layers": list(result.layers)})
            if name == "nonlocality":
                first = result.layers[0]
                values[name] |= {"grid": result.grid[first], "uniform": result.uniform[first]}
    # gates, nonlocality (E, L, H); windows/LAYER (E, H, 3): centre down and across, width
    arrays = {name: np.stack(per_epoch) for name, per_epoch in values_by_name.items()}
    return Record(kind="looks", values=values, arrays=arrays)
