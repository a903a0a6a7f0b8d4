"""Attention maps of every patch and token, layer and head, stored small enough for a page.

For some test images and the epochs a run kept: where each patch attends (ConViT,
https://arxiv.org/abs/2103.10697, Fig. 7 and 16-17). A gated layer stores its content map per image,
its positional map once (two small matrices, see :mod:`vitascope.layers.positions`) and its gates.
The reader computes the mix (1 - g) content + g position, with the learned gates or others. Any
other layer stores the map it uses. What would make the record too large is left out, and named.

Relevance maps are stored too: what the prediction on each image depends on, with the final weights.
A network without attention has these, and which places have similar features.

Deviation: entropy read off these maps is that of patches among patches (class tokens are dropped,
rows made to sum to one again); the instrument counts class tokens.

Shapes: E epochs, n images, H heads, Q queries (on a grid, then class tokens and registers), K keys
on a grid, R components.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.data.decoding import image_bytes
from vitascope.errors import UserError
from vitascope.explorer.compression import (
    choose_images,
    compress,
    counts_that_fit,
    evenly_spaced,
    layers_that_fit,
    left_out_notes,
)
from vitascope.explorer.maps import (
    GridLayout,
    LayerMaps,
    attention_maps,
    explainer_of,
    layouts_of,
    relevance_maps,
    stack_epochs,
    top_answers,
)
from vitascope.loading.session import Session
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.models.weights import load_weights
from vitascope.record import Record
from vitascope.training import load_run

MOST_BYTES = 1_300_000  # of maps; two models of this size still make a page under 5 MB


def kept_weights(session: Session) -> dict[int | None, Path | None]:
    """Weight files by epoch: those a run kept, and its last. None: the weights that are loaded."""
    folder, epoch = session.config.get("run"), session.config.get("epoch")
    if folder is None or epoch is not None:
        return {epoch: None}
    run = load_run(folder)
    files = sorted(run.folder.glob("weights/epoch-*.safetensors"))
    return {**{int(f.stem.split("-")[1]): f for f in files}, run.epochs: run.weights}


def explore(
    session: Session,
    *,
    num_images: int = 6,
    layers: str | Iterable[str] = "*",
    most_bytes: int = MOST_BYTES,
    seed: int = 0,
    about: str = "",
    weights: Mapping[int | None, Path | None] | None = None,
    **known: Any,
) -> Record:
    """Maps of a model on some of its test images: attention at every epoch its run kept, relevance.

    Args:
        session: The model and its images; the model is left unchanged.
        num_images: At most; one of each class first.
        layers: Wildcards for the attention layers.
        most_bytes: Of maps: beyond, layers, then epochs and images are left out, and named.
        seed: Of the choice of images.
        about: What the page says of this model.
        weights: Files by epoch; those its run kept when left out.
        known: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be followed.
    """
    started, model, dataset = perf_counter(), session.model, session.images
    where = choose_images(dataset.test.labels, num_images, seed)
    batches = session.batches(where, batch_size=len(where))
    images = torch.cat([batch.images for batch in batches]).to(session.device)
    structure = ModelStructure(model, images, **known)
    rests, resting = relevance_maps(explainer_of(structure), images)
    weights = kept_weights(session) if weights is None else weights
    count, epochs = len(images), len(weights)
    try:
        layouts, left_out = layouts_of(structure, layers)
    except UserError:
        if not resting:
            raise
        layouts, left_out, epochs = {}, {}, 1
        weights = dict([*weights.items()][-1:])
    if layouts:
        one = {
            name: compress(parts["maps"][0])
            for name, parts in attention_maps(model, images[:1], layouts)[0].items()
        }
        names, fewer = layers_that_fit(one, most_bytes, len(images))
        left_out |= fewer
        layouts = {name: layouts[name] for name in names}
        room = most_bytes // sum(one[name].num_bytes for name in names)
        count, epochs = counts_that_fit(len(images), len(weights), room)
    shown_epochs = evenly_spaced(list(weights), epochs)
    parts, answers = _over_epochs(
        model, images[:count], layouts, [weights[e] for e in shown_epochs]
    )
    arrays, described = stack_epochs(parts, layouts)
    while (size := _bytes(arrays)) > most_bytes and count * epochs > 1:
        room = min(count * epochs - 1, most_bytes * count * epochs // size)
        count, epochs = counts_that_fit(count, epochs, room)  # some images take more than the first
        parts, answers = _fewer(parts, count, epochs), evenly_spaced(answers, epochs)
        shown_epochs = evenly_spaced(shown_epochs, epochs)
        arrays, described = stack_epochs(parts, layouts)
    pictures = dataset.test.pixels(where[:count])
    arrays |= {f"image/{i}": image_bytes(pixels) for i, pixels in enumerate(pictures)}
    arrays |= {name: maps[:count] for name, maps in rests.items()}
    labels = [dataset.classes[dataset.test.labels[i]] for i in where[:count]]
    classes = session.opened.classes or dataset.classes
    values = {
        "model": session.opened.name,
        "about": about,
        "data": dataset.name,
        "epochs": shown_epochs,
        "images": [{"index": int(i), "label": v} for i, v in zip(where, labels, strict=False)],
        "answers": top_answers([each[:count] for each in answers], classes),
        "layers": described,
        "relevance": resting,
        "left_out": left_out,
        "notes": left_out_notes(len(images), count, len(weights), epochs),
    }
    return Record(
        kind="explorer",
        values=values,
        arrays=arrays,
        config=session.config,
        seed=seed,
        seconds=perf_counter() - started,
    )


def _over_epochs(
    model: nn.Module,
    images: Tensor,
    layouts: Mapping[str, GridLayout],
    weights: Sequence[Path | None],
) -> tuple[list[LayerMaps], list[Tensor]]:
    """Maps and answers with each of these weights; the model's own weights are restored."""
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    parts, answers = [], []
    try:
        for path in weights:
            if path is not None:
                load_weights(model, path)
            maps, probabilities = attention_maps(model, images, layouts)
            parts.append(maps)
            answers.append(probabilities)
    finally:
        model.load_state_dict(before)
    return parts, answers


def _bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _fewer(parts: Sequence[LayerMaps], count: int, epochs: int) -> list[LayerMaps]:
    """The maps of fewer images and epochs."""
    return [
        {
            name: {k: v[:count] if k in ("maps", "shares") else v for k, v in part.items()}
            for name, part in subset.items()
        }
        for subset in evenly_spaced(parts, epochs)
    ]
