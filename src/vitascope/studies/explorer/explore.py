"""The attention of every patch, layer and head, small enough to be looked at on a page.

For some test images and the epochs a run kept: where each patch looks (ConViT,
https://arxiv.org/abs/2103.10697, Fig. 7 and 16-17). A gated layer gives its content map an image,
its positional map once (two small matrices, see :mod:`vitascope.layers.positions`) and its gates:
the mix (1 - g) content + g position is made by who reads, with the gates as learned or others. Any
other layer gives the map it uses. What would make the record too large is left out, and named.

Deviation: entropy read off these maps is that of patches among patches (class tokens are dropped,
rows made to sum to one again); the instrument counts class tokens.

Shapes: E epochs, n images, H heads, Q queries on a grid (h, w), K keys on a grid, R components.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.data import Dataset, EvalBatches
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.studies.explorer.compression import compact
from vitascope.studies.explorer.grid_maps import OnGrid
from vitascope.studies.explorer.selection import chosen, fitting, layers_that_fit, said, thinned
from vitascope.studies.explorer.views import Parts, answered, joined, layouts_of, picture, seen
from vitascope.studies.session.models import Subject
from vitascope.studies.session.session import open_session
from vitascope.train import load_run

__all__ = ["MOST_BYTES", "explore", "explored"]

MOST_BYTES = 1_300_000  # of maps; two models of this size still make a page under 5 MB


def kept_weights(subject: Subject) -> dict[int | None, Path | None]:
    """Weight files of the epochs a run kept and of its end; other models have what they have."""
    folder = subject.config.get("run")
    if folder is None or subject.config.get("epoch") is not None:
        return {subject.config.get("epoch"): None}
    run = load_run(folder)
    files = sorted(run.folder.glob("weights/epoch-*.safetensors"))
    return {**{int(f.stem.split("-")[1]): f for f in files}, run.epochs: run.weights}


def explored(
    subject: Subject,
    dataset: Dataset,
    *,
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    num_images: int = 6,
    layers: str | Iterable[str] = "*",
    most_bytes: int = MOST_BYTES,
    seed: int = 0,
    about: str = "",
    weights: Mapping[int | None, Path | None] | None = None,
    **known: Any,
) -> Record:
    """Maps of an opened model on some test images, at every epoch its run kept.

    Args:
        subject: The model; it is left as it came.
        dataset: Images in the model's size.
        statistics: Mean and deviation the model was trained with; the data's when left out.
        num_images: At most; one of each class first.
        layers: Wildcards for the attention layers.
        most_bytes: Of maps: beyond, layers, then epochs and images are left out, and named.
        seed: Of the choice of images.
        about: What the page says of this model.
        weights: Files by epoch; those its run kept when left out.
        known: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be followed.
    """
    started, model = perf_counter(), subject.model
    device = next(model.parameters()).device
    where = chosen(dataset.test.labels, num_images, seed)
    mean, std = statistics or (dataset.mean, dataset.std)
    batches = EvalBatches(dataset.test.take(where), batch_size=len(where), mean=mean, std=std)
    images = torch.cat([batch.images for batch in batches]).to(device)
    layouts, left_out = layouts_of(ModelStructure(model, images, **known), layers)
    weights = kept_weights(subject) if weights is None else weights
    one = {
        name: compact(parts["maps"][0])
        for name, parts in seen(model, images[:1], layouts)[0].items()
    }
    names, fewer = layers_that_fit(one, most_bytes, len(images))
    left_out |= fewer
    layouts = {name: layouts[name] for name in names}
    room = most_bytes // sum(one[name].num_bytes for name in names)
    count, epochs = fitting(len(images), len(weights), room)
    kept = thinned(list(weights), epochs)
    parts, answers = _over_epochs(model, images[:count], layouts, [weights[e] for e in kept])
    arrays, described = joined(parts, layouts)
    while (size := _bytes(arrays)) > most_bytes and count * epochs > 1:
        room = min(count * epochs - 1, most_bytes * count * epochs // size)
        count, epochs = fitting(count, epochs, room)  # some images take more than the first
        parts, answers = _fewer(parts, count, epochs), thinned(answers, epochs)
        kept = thinned(kept, epochs)
        arrays, described = joined(parts, layouts)
    pictures = dataset.test.pixels(where[:count])
    arrays |= {f"image/{i}": picture(pixels) for i, pixels in enumerate(pictures)}
    labels = [dataset.classes[dataset.test.labels[i]] for i in where[:count]]
    values = {
        "model": subject.name,
        "about": about,
        "data": dataset.name,
        "epochs": kept,
        "images": [{"index": int(i), "label": v} for i, v in zip(where, labels, strict=False)],
        "answers": answered([each[:count] for each in answers], subject.classes or dataset.classes),
        "layers": described,
        "left_out": left_out,
        "notes": said(len(images), count, len(weights), epochs),
    }
    seconds = perf_counter() - started
    return Record(
        kind="explorer", values=values, arrays=arrays, config=subject.config, seed=seed,
        seconds=seconds,
    )  # fmt: skip


def explore(
    text: str,
    data: str | None = None,
    *,
    epoch: int | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    seed: int = 0,
    device: str | None = None,
    **options: Any,
) -> Record:
    """Open the model that ``text`` names, as `studies.session.models` does, and explore it."""
    opened: dict[str, Any] = {"epoch": epoch, "pretrained": pretrained, "image_size": image_size}
    session = open_session(text, data, seed=seed, device=device, **opened)
    statistics = session.statistics
    return explored(session.subject, session.images, statistics=statistics, seed=seed, **options)


def _over_epochs(
    model: nn.Module,
    images: Tensor,
    layouts: Mapping[str, OnGrid],
    weights: Sequence[Path | None],
) -> tuple[list[Parts], list[Tensor]]:
    """What the model shows with each of these weights; in the end it has those it came with."""
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    parts, answers = [], []
    try:
        for path in weights:
            if path is not None:
                load_weights(model, path)
            found, spoken = seen(model, images, layouts)
            parts.append(found)
            answers.append(spoken)
    finally:
        model.load_state_dict(before)
    return parts, answers


def _bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _fewer(parts: Sequence[Parts], count: int, epochs: int) -> list[Parts]:
    """The maps of fewer images and epochs."""
    return [
        {name: {**part, "maps": part["maps"][:count]} for name, part in found.items()}
        for found in thinned(parts, epochs)
    ]
