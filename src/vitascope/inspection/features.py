"""Frozen features of images, computed once for given weights and image content.

A network without its head gives, for one image,

    tokens with a class token   [c / |c|, m / |m|], c the class token, m the mean of the patches
    anything else of timm's     its own pooled features (``forward_head(…, pre_logits=True)``)
    any other network           what goes into its last linear layer

Features are kept in ``FOLDER/<weights>.safetensors`` under the hash of each image's pixels, as the
model gets them. The name has a hash of every weight and of the preprocessing: other weights,
another size, mean or crop have another file, and a changed image another row. Nothing is found by a
name or a date.

Shapes: N images, D features, T tokens.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.atomic import replacing
from vitascope.capture import evaluating
from vitascope.data.images import ImageSet
from vitascope.errors import UserError
from vitascope.loading.model import OpenedModel

BATCH = 8  # with channels last, more at a time is slower on a CPU
BYTES = 16  # of an image's hash
VERSION = "1"  # of how features are taken; part of the name of the file


def features_of(model: nn.Module, images: Tensor) -> Tensor:
    """The features of normalised images. (B, D)"""
    forward = getattr(model, "forward_features", None)
    head = getattr(model, "forward_head", None)
    if not callable(forward) or not callable(head):
        return into_last_linear(model, images)[1]
    found = forward(images)
    prefix = int(getattr(model, "num_prefix_tokens", 0) or 0)
    if found.ndim == 3 and prefix:
        parts = (found[:, 0], found[:, prefix:].mean(dim=1))
        return torch.cat([F.normalize(part, dim=-1) for part in parts], dim=-1)
    return head(found, pre_logits=True).flatten(1)


def into_last_linear(model: nn.Module, images: Tensor) -> tuple[nn.Linear, Tensor]:
    """The last linear layer that was computed, and what went into it. (B, D)"""
    seen: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda one, inputs: seen.append((one, inputs[0])))
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    if not seen or len(seen[-1][1]) != len(images):
        raise UserError("the model has no linear head whose input could be its features")
    layer, found = seen[-1]
    return layer, found.flatten(1)


def frozen_features(
    opened: OpenedModel,
    images: ImageSet,
    folder: Path,
    *,
    on_step: Callable[[int], None] = lambda count: None,
) -> np.ndarray:
    """The features of all images, from the cache where they are there. (N, D) float32

    Args:
        opened: The model.
        images: As its preprocessing loads them.
        folder: Of the cache.
        on_step: Told how many more images are done.
    """
    path = folder / f"{opened.weights_key}-{VERSION}.safetensors"
    known, rows = _read(path)
    place = {bytes(key): row for row, key in enumerate(known)}
    wanted: list[bytes] = []
    fresh: dict[bytes, np.ndarray] = {}
    normalize = opened.preprocessing.normalize
    device = next(opened.model.parameters()).device
    opened.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with evaluating(opened.model):
        for start in range(0, len(images), BATCH):
            pixels = images.pixels(np.arange(start, min(start + BATCH, len(images))))
            keys = [_key(image) for image in pixels]
            new = [i for i, key in enumerate(keys) if key not in place and key not in fresh]
            if new:
                batch = normalize(pixels[new]).to(device, memory_format=torch.channels_last)
                values = features_of(opened.model, batch)
                made = values.float().cpu().numpy()
                fresh |= {keys[i]: row for i, row in zip(new, made, strict=True)}
            wanted += keys
            on_step(len(keys))
    if fresh:
        known = np.concatenate([known, np.array([list(key) for key in fresh], dtype=np.uint8)])
        made = np.stack(list(fresh.values()))
        rows = made if rows is None else np.concatenate([rows, made])
        with replacing(path) as temporary:
            save_file({"images": known, "features": np.ascontiguousarray(rows)}, temporary)
        place = {bytes(key): row for row, key in enumerate(known)}
    assert rows is not None
    result = rows[[place[key] for key in wanted]]
    if not np.isfinite(result).all():
        raise UserError(f"{opened.name} gives features that are not finite for these images")
    return result


def _key(image: Tensor) -> bytes:
    """A hash of an image's pixels and shape."""
    digest = hashlib.blake2b(str(tuple(image.shape)).encode(), digest_size=BYTES)
    digest.update(image.contiguous().numpy().tobytes())
    return digest.digest()


def _read(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys and features of a cache; nothing where there is none, or it is damaged."""
    nothing = np.zeros((0, BYTES), dtype=np.uint8), None
    try:
        held = load_file(path)
        keys, rows = held["images"], held["features"]
    except (OSError, SafetensorError, KeyError):
        return nothing
    whole = keys.ndim == rows.ndim == 2 and len(keys) == len(rows) and keys.shape[1] == BYTES
    return (keys, rows) if whole else nothing
