"""How good is a model on these images: top-1, top-5, NLL, ECE."""

from time import perf_counter
from typing import Any

import torch

from vitascope.data import EvalBatches, load
from vitascope.errors import UserError
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.studies.subject import open_subject
from vitascope.train import evaluate

__all__ = ["evaluate_subject"]


def evaluate_subject(
    subject: str,
    data: str | None = None,
    *,
    weights: str | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    batch_size: int = 256,
    num_workers: int = 0,
    device: str | None = None,
    split: str = "test",
) -> Record:
    """Open the model, load the images in its size and statistics, and measure.

    A run brings its data with it; ``data`` may name other images with the same classes.
    """
    started = perf_counter()
    kwargs: dict[str, Any] = {"pretrained": True} if pretrained else {}
    opened = open_subject(subject, **kwargs)
    source = data or opened.data
    if source is None:
        raise UserError(f"{subject} was not trained here: say on what to measure it, with --data")
    if weights is not None:
        load_weights(opened.model, weights)
    channels, side = (opened.size[0], opened.size[1]) if opened.size else (None, None)
    images = load(source, image_size=image_size or side, in_chans=channels)
    chosen = images.test if split == "test" else images.train
    batches = EvalBatches(
        chosen,
        batch_size=batch_size,
        mean=opened.mean or images.mean,
        std=opened.std or images.std,
        num_workers=num_workers,
    )
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    outputs = getattr(opened.model, "num_classes", None)
    mapped = images.class_map is not None and outputs == 1000 and len(images.classes) != 1000
    result = evaluate(
        opened.model.to(place),
        batches,
        class_map=images.class_map if mapped else None,
        label_sets=images.label_sets if split == "test" else None,
    )
    config = {"subject": subject, **opened.config, "data": source, "split": split}
    config |= {"weights": weights, "image_size": image_size or side, "notes": list(images.notes)}
    stored = result.to_record(**config)
    return Record(
        kind=stored.kind,
        values=stored.values,
        arrays=stored.arrays,
        config=stored.config,
        seconds=perf_counter() - started,
    )
