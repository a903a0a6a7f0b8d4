"""How good is a model on these images: top-1, top-5, NLL, ECE; and on images that were changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from vitascope.data import Dataset, EvalBatches, load
from vitascope.data.images import ImageSet
from vitascope.errors import UserError
from vitascope.models.weights import load_weights
from vitascope.progress import OnStep, Steps
from vitascope.record import Record
from vitascope.requests.evaluate import Evaluate
from vitascope.studies.inspection.robustness import OfClasses, Trial, measured
from vitascope.studies.session.models import open_subject
from vitascope.studies.session.session import num_outputs, tried
from vitascope.train import evaluate
from vitascope.train.classes import relabelled_like
from vitascope.train.device import device_of

__all__ = ["Evaluated", "evaluate_on", "evaluate_subject"]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A model before labelled images, and how they go together."""

    subject: str
    model: nn.Module
    images: Dataset  # with the model's classes
    batches: EvalBatches
    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    class_map: np.ndarray | None  # where the model has more classes than the images
    label_sets: tuple[frozenset[int], ...] | None  # ImageNet-ReaL
    config: Mapping[str, Any]
    relabel: Callable[[ImageSet], ImageSet]  # more images of the same source


def opened(
    subject: str,
    data: str | None = None,
    *,
    weights: str | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    batch_size: int = Evaluate.batch_size,
    num_workers: int = 0,
    device: str | None = None,
    split: str = "test",
    num_images: int | None = None,
    seed: int = 0,
    map_classes: Mapping[str, str] | None = None,
) -> Evaluated:
    """Open the model and load the images in its size and statistics.

    A run brings its data with it; ``data`` may name other images. Their classes are the run's by
    name, all or some of them; ``map_classes`` says which of the run's a class is that has another
    name. ``num_images`` images are drawn with the seed; all when left out.
    """
    kwargs: dict[str, Any] = {"pretrained": True} if pretrained else {}
    torch.manual_seed(seed)
    found = open_subject(subject, **kwargs)
    source = data or found.data
    if source is None:
        raise UserError(f"{subject} was not trained here: say on what to measure it, with --data")
    if weights is not None:
        load_weights(found.model, weights)
    channels, side = (found.size[0], found.size[1]) if found.size else (None, None)
    loaded = load(source, image_size=image_size or side, in_chans=channels)
    place = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = found.model.to(place)
    outputs = num_outputs(model, torch.zeros(1, *loaded.test.size, device=place), subject)
    images = found.seeing(loaded, outputs, map_classes)
    chosen = images.test if split == "test" else images.train
    label_sets = images.label_sets if split == "test" else None
    if num_images is not None:
        if num_images < 1:
            raise UserError(f"give at least 1 for --images, not {num_images}")
        order = np.random.default_rng(seed).permutation(len(chosen))[:num_images]
        kept = np.sort(order)
        chosen = chosen.take(kept)
        label_sets = None if label_sets is None else tuple(label_sets[i] for i in kept)
    statistics = (tuple(found.mean or images.mean), tuple(found.std or images.std))
    batches = EvalBatches(
        chosen,
        batch_size=batch_size,
        mean=statistics[0],
        std=statistics[1],
        num_workers=num_workers,
    )
    mapped = images.class_map is not None and outputs == 1000 and len(images.classes) != 1000
    config = {"subject": subject, **found.config, "data": source, "split": split}
    config |= {"weights": weights, "image_size": image_size or side, "num_images": num_images}
    config |= {"map_classes": dict(map_classes or {})}
    return Evaluated(
        subject=subject,
        model=model,
        images=images,
        batches=batches,
        statistics=statistics,
        class_map=images.class_map if mapped else None,
        label_sets=label_sets,
        config={**config, "notes": list(images.notes)},
        relabel=partial(
            relabelled_like, first=loaded.classes, known=images.classes, given=map_classes
        ),
    )


def evaluate_subject(subject: str, data: str | None = None, **how: Any) -> Record:
    """Top-1, top-5, NLL and ECE; ``how`` are the arguments of :func:`opened`."""
    started = perf_counter()
    at = opened(subject, data, **how)
    result = evaluate(at.model, at.batches, class_map=at.class_map, label_sets=at.label_sets)
    stored = result.to_record(**at.config)
    return replace(stored, seconds=perf_counter() - started)


def evaluate_on(
    subject: str,
    data: str | None = None,
    *,
    trial: Trial,
    on_step: OnStep = lambda what, done, total: None,
    **how: Any,
) -> dict[str, Record]:
    """A record for each measure of ``trial``; ``how`` are the arguments of :func:`opened`."""
    at = opened(subject, data, seed=trial.seed, **how)
    if at.label_sets is not None:
        raise UserError(
            f"{at.config['data']} has sets of labels, --on needs one label an image; "
            "measure on imagenet:PATH, or without --on"
        )
    if at.class_map is not None and trial.corrupted is not None:
        raise UserError("--corrupted has all of the model's classes, --data only some: give others")
    model = at.model if at.class_map is None else OfClasses(at.model, at.class_map)
    first = next(iter(at.batches)).images
    tried(model, first.to(next(model.parameters()).device), subject)
    steps = Steps(on_step, len(trial.on) * len(at.batches))
    records = {}
    for done, name in enumerate(trial.on, start=1):
        later = (len(trial.on) - done) * len(at.batches)

        def advance(what: str, ahead: int, later: int = later) -> None:
            steps(what, ahead + later)

        found = measured(name, trial, model, at.batches, at.statistics, advance, at.relabel)
        records[name] = replace(found, config={**at.config, **found.config})
    return records
