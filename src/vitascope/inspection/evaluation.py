"""How good a model is on labelled images: top-1, top-5, NLL, ECE; and on images that were changed.

Both commands of ``vitascope evaluate``: plain, and with ``--on`` the robustness measures.

Mistakes are counted by class:

    accuracy of class k   a_k = right in k / images of k
    balanced accuracy     mean of a_k over the classes that have images

The most confident mistakes have the lowest probability of the true class, the least confident
correct predictions the lowest among images that are right: labels to check first, and what more
images would help with.

Shapes: N images, K classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from torch import nn

from vitascope.data import EvalBatches, ImageSet
from vitascope.data.decoding import image_bytes
from vitascope.errors import UserError
from vitascope.inspection.options import EvaluateOptions
from vitascope.inspection.robustness import SomeClasses, measure_robustness, on_names
from vitascope.loading.session import Session, open_session
from vitascope.progress import OnStep, Steps
from vitascope.record import Record
from vitascope.settings import pairs
from vitascope.training import evaluate
from vitascope.training.classes import IMAGENET, class_pairs, relabelled_like
from vitascope.training.predictions import Predictions

LISTS = ("surest_mistakes", "least_sure_hits")

SHOWN = 12  # images of each list

SIDE = 128  # pixels of a picture, at most: about 6 kB

LARGEST = 200  # classes of a confusion matrix that is kept


def confusion(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how often class i was called j. (K, K) int64

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    cells = labels.astype(np.int64) * num_classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def mistakes(
    predictions: Predictions, classes: Sequence[str], images: ImageSet | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays for a record, among them small pictures of the images that are listed.

    Args:
        found: Of every image.
        classes: Their names.
        images: In the same order, for their files and pictures; None where they are not at hand.
    """
    matrix = confusion(predictions.label, predictions.predicted, len(classes))
    number, right = matrix.sum(1), matrix.diagonal()
    there = number > 0
    shares = right[there] / number[there]
    values: dict[str, Any] = {
        "balanced": float(shares.mean()),
        "per_class": [
            {"class": classes[k], "images": int(number[k]), "right": int(right[k])}
            for k in np.flatnonzero(there).tolist()
        ],
    }
    fields = {"confusion": matrix} if len(classes) <= LARGEST else {}
    if images is not None:
        order = np.argsort(predictions.probability, kind="stable")
        for name, which in zip(LISTS, (~predictions.correct, predictions.correct), strict=True):
            some = order[which[order]][:SHOWN].tolist()
            values[name] = [_line(predictions, classes, images, index) for index in some]
            fields |= _pictures(images, some)
    return values, fields


def _line(
    predictions: Predictions, classes: Sequence[str], images: ImageSet, index: int
) -> dict[str, Any]:
    """One image in a list."""
    sure = (
        {}
        if predictions.confidence is None
        else {"confidence": float(predictions.confidence[index])}
    )
    return {
        "file": images.name(index),
        "index": index,
        "label": classes[int(predictions.label[index])],
        "predicted": classes[int(predictions.predicted[index])],
        "probability": float(predictions.probability[index]),  # of the label
        **sure,
    }


def _pictures(images: ImageSet, some: Sequence[int]) -> dict[str, np.ndarray]:
    """Images as a model sees them, small, by position; a file that is gone has none."""
    pictures = {}
    for index in some:
        try:
            pictures[f"picture/{index}"] = image_bytes(images.pixels([index])[0], SIDE)
        except UserError:
            continue
    return pictures


@dataclass(frozen=True, kw_only=True)
class LabelledSession:
    """A model with batches of images that have its classes."""

    session: Session
    batches: EvalBatches
    class_map: np.ndarray | None  # where the model has more classes than the images
    label_sets: tuple[frozenset[int], ...] | None  # ImageNet-ReaL
    config: Mapping[str, Any]


def open_labelled(options: EvaluateOptions, model: nn.Module | None = None) -> LabelledSession:
    """Open the model, or take one, and load the images in its size and normalisation.

    A run knows its data; the options may name other images. Their classes are the run's by name,
    all or some of them; ``map_classes`` says which of the run's a class is that has another name.
    With ``split`` all, no test set is split off images that have none.
    """
    if options.images is not None and options.images < 1:
        raise UserError(f"give at least 1 for --images, not {options.images}")
    weights = None if options.weights is None else str(options.weights)
    map_classes = class_pairs(options.map_classes)
    model_args = pairs(options.model_args, "--model-args")
    session = open_session(
        options.model if model is None else model,
        options.data,
        pretrained=options.pretrained,
        weights=weights,
        image_size=options.image_size,
        seed=options.seed,
        device=options.device,
        map_classes=map_classes,
        arguments=model_args,
        new_head=False,
    )
    if options.split == "all":
        session = replace(session, whole=True)
        if len(session.loaded.train):
            raise UserError(
                f"{session.source} has a test set of its own; give --split test or train"
            )
    images = session.labelled_images
    positions = session.draw(options.images, options.seed, options.split)
    label_sets = None if options.split == "train" else images.label_sets
    if label_sets is not None:
        label_sets = tuple(label_sets[i] for i in positions)
    some = session.num_outputs == IMAGENET != len(images.classes)
    return LabelledSession(
        session=session,
        batches=session.batches(
            positions, options.batch_size, split=options.split, num_workers=options.workers
        ),
        class_map=images.class_map if some else None,
        label_sets=label_sets,
        config={
            "subject": options.model if model is None else session.opened.name,
            **session.config,
            "data": session.source,
            "split": options.split,
            "weights": weights,
            "model_args": model_args,
            "image_size": options.image_size or session.opened.preprocessing.side,
            "num_images": options.images,
            "map_classes": map_classes,
            "notes": list(images.notes),
        },
    )


def evaluate_subject(options: EvaluateOptions, model: nn.Module | None = None) -> Record:
    """Top-1, top-5, NLL and ECE of the model that the options name, or of one that is given."""
    started = perf_counter()
    opened = open_labelled(options, model)
    result = evaluate(
        opened.session.model,
        opened.batches,
        class_map=opened.class_map,
        label_sets=opened.label_sets,
    )
    made = replace(result.to_record(**opened.config), seconds=perf_counter() - started)
    if result.predictions is None:
        return made
    images = opened.batches.images
    whole = len(images) == len(result.predictions.label)  # no file was left out
    classes = opened.session.labelled_images.classes
    values, arrays = mistakes(result.predictions, classes, images if whole else None)
    return replace(made, values={**made.values, **values}, arrays={**made.arrays, **arrays})


def evaluate_on(
    options: EvaluateOptions,
    model: nn.Module | None = None,
    *,
    on_step: OnStep = lambda what, done, total: None,
) -> dict[str, Record]:
    """A record of each measure that ``on`` names."""
    names = on_names(options.on)
    opened = open_labelled(options, model)
    session, batches = opened.session, opened.batches
    if opened.label_sets is not None:
        raise UserError(
            f"{session.source} has several labels per image, and --on needs one; measure on "
            "imagenet:PATH, or without --on"
        )
    network = session.model
    if opened.class_map is not None:
        if options.corrupted is not None:
            raise UserError(
                "--corrupted has all of the model's classes, --data only some: give others"
            )
        network = SomeClasses(network, opened.class_map)
    relabel = partial(
        relabelled_like,
        first=session.loaded.classes,
        known=session.labelled_images.classes,
        given=session.map_classes,
    )
    steps = Steps(on_step, len(names) * len(batches))
    records = {}
    for done, name in enumerate(names, start=1):
        later = (len(names) - done) * len(batches)

        def advance(step: str, ahead: int, later: int = later) -> None:
            steps(step, ahead + later)

        results = measure_robustness(
            name, options, network, batches, session.statistics, advance, relabel
        )
        records[name] = replace(results, config={**opened.config, **results.config})
    return records
