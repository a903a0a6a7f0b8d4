"""Explorer records without training (fresh models whose attention was stirred), and a server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from vitascope.commands.serve import Server, make_server
from vitascope.data import Dataset, load
from vitascope.explorer.explore import explore
from vitascope.explorer.live import Live
from vitascope.loading.opening import build
from vitascope.loading.session import Session
from vitascope.record import Record

EVIL = "</script><img src=x onerror=window.hit=1>"

STIRRED = ("gating_param", "pos_proj.weight", "qk.weight", "qkv.weight", ".q.weight", ".k.weight")
CAIT = "timm:cait_xxs24_224"
SMALL = {"patch_size": 2, "embed_dim": 24, "depth": 1, "num_heads": 3}


@contextmanager
def serving(live: Live) -> Iterator[Server]:
    """The explorer's server on a free port, while the block runs."""
    server = make_server(live, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@cache
def digits() -> Dataset:
    """The embedded images."""
    return load("digits")


@cache
def explorer_record(name: str, num_images: int = 3, epochs: int = 1) -> Record:
    """A record of ``name`` on some digits; each epoch is the last one, stirred once more."""
    torch.manual_seed(0)
    images = digits()
    opened = build(name, images, **(SMALL if name == CAIT else {}))
    session = Session(opened=opened, given=images)
    with TemporaryDirectory() as folder:
        weights = {}
        for epoch in range(epochs):
            with torch.no_grad():
                for part, value in session.model.named_parameters():
                    if part.endswith(STIRRED):
                        value.add_(torch.randn_like(value) * 0.3)
            weights[epoch] = Path(folder) / f"{epoch}.safetensors"
            save_file(session.model.state_dict(), weights[epoch])
        return explore(session, num_images=num_images, weights=weights)


def with_evil_names(record: Record) -> Record:
    """Names of model, classes, layers and data that would run a script if they were markup."""
    values = dict(record.values)
    values |= {"model": EVIL, "about": EVIL, "data": EVIL, "notes": [EVIL]}
    values["images"] = [{**image, "label": EVIL} for image in values["images"]]
    values["answers"] = [[[EVIL, 0.5] for _ in row] for row in values["answers"]]
    values["layers"] = [{**layer, "name": EVIL + layer["name"]} for layer in values["layers"]]
    names = {layer["name"]: EVIL + layer["name"] for layer in record.values["layers"]}
    arrays = {}
    for key, value in record.arrays.items():
        part, _, rest = key.partition("/")
        arrays[f"{part}/{names.get(rest, rest)}"] = value
    return replace(record, values=values, arrays=arrays)


def token_shares(record: Record, layer: str, epoch: int = 0, image: int = 0) -> np.ndarray:
    """What each query gives to class tokens and registers, of 1. (H, queries, tokens)"""
    return record.arrays[f"shares/{layer}"][epoch, image] / 65535


def distances(layer: dict[str, Any]) -> np.ndarray:
    """Between queries and keys of a described layer, in patches. (Q, K)"""
    places = []
    for part in ("query_axes", "key_axes"):
        down, across = np.meshgrid(*layer[part], indexing="ij")
        places.append(np.stack([down.ravel(), across.ravel()], axis=-1))
    return np.linalg.norm(places[0][:, None] - places[1], axis=-1)


def row_distance(maps: np.ndarray, layer: dict[str, Any]) -> np.ndarray:
    """How far each row looks (ConViT, equation 8, one row). (..., Q)"""
    return (maps * distances(layer)).sum(-1)


def row_entropy(maps: np.ndarray) -> np.ndarray:
    """How spread each row is, in nats. (..., Q)"""
    return -(maps * np.log(np.where(maps > 0, maps, 1.0))).sum(-1)
