"""Decide whether images fit in memory, and decode them into it.

Decoding 60,000 small JPEGs takes seconds, once per run; nothing is written to disk.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from vitascope.data.folder import Files, header
from vitascope.data.images import MODES, FileImages, ImageSet, MemoryImages, fit
from vitascope.errors import UserError

__all__ = ["MEMORY_LIMIT", "decode_all", "gather"]

MEMORY_LIMIT = 2 * 2**30  # bytes of pixels
CHUNK = 256
T = TypeVar("T")
R = TypeVar("R")


def in_threads(work: Callable[[Sequence[T]], R], items: Sequence[T], what: str) -> Iterator[R]:
    """Run ``work`` on chunks of the items, results in order, with a bar on a terminal."""
    chunks = [items[i : i + CHUNK] for i in range(0, len(items), CHUNK)]
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quiet = not sys.stderr.isatty()
    bar = tqdm(total=len(items), desc=what, unit="image", disable=quiet, leave=False)
    with bar, ThreadPoolExecutor(workers) as pool:
        for chunk, result in zip(chunks, pool.map(work, chunks), strict=True):
            bar.update(len(chunk))
            yield result


def headers(paths: Sequence[Path]) -> list[tuple[tuple[int, int], str] | None]:
    """Size and mode of every file; None for what is no image."""
    found = in_threads(lambda chunk: [header(p) for p in chunk], paths, "looking at images")
    return [item for chunk in found for item in chunk]


def decode_all(
    items: Sequence[Any],
    open_item: Callable[[Any], Image.Image],
    channels: int,
    height: int,
    width: int,
    crop_pct: float = 1.0,
) -> tuple[torch.Tensor, list[int]]:
    """All images as uint8 (N, C, H, W), and the positions of those that cannot be decoded."""
    out = np.zeros((len(items), height, width, channels), dtype=np.uint8)

    def decode(positions: Sequence[int]) -> list[int]:
        broken = []
        for i in positions:
            try:
                image = fit(open_item(items[i]).convert(MODES[channels]), height, width, crop_pct)
                out[i] = np.asarray(image).reshape(height, width, channels)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                broken.append(i)
        return broken

    broken = [
        i for chunk in in_threads(decode, range(len(items)), "decoding images") for i in chunk
    ]
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous(), broken


def report(paths: Iterable[Any]) -> tuple[str, ...]:
    """A note for every broken image, also given as a warning."""
    notes = tuple(f"skipped broken image {path}" for path in paths)
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return notes


def gather(
    files: Files, *, image_size: int | None, in_chans: int | None, crop_pct: float = 1.0
) -> tuple[ImageSet, tuple[str, ...]]:
    """The images of these files: in memory if they fit, else decoded when asked for.

    Without ``image_size`` all must have one size. Broken images are left out and named in notes.
    """
    seen = headers(files.paths)
    good = [i for i, item in enumerate(seen) if item is not None]
    notes = report(files.paths[i] for i, item in enumerate(seen) if item is None)
    known = [item for item in seen if item is not None]
    if not known:
        raise UserError(f"none of the {len(files)} images can be read; the first: {files.paths[0]}")
    sizes = {size for size, _ in known}
    if image_size is None and len(sizes) > 1:
        few = ", ".join(f"{w} x {h}" for w, h in sorted(sizes)[:3])
        raise UserError(
            f"the images have {len(sizes)} different sizes ({few}, ...); "
            "give image_size, for instance 224 (or 32 for small images)"
        )
    width, height = (image_size, image_size) if image_size else next(iter(sizes))
    channels = in_chans or (1 if all(mode in ("1", "L") for _, mode in known) else 3)
    paths, labels = [files.paths[i] for i in good], files.labels[good]
    if image_size and sizes != {(image_size, image_size)}:
        notes += (f"resized the shorter side to {image_size} and kept the centre",)
    if len(paths) * channels * height * width > MEMORY_LIMIT:
        size = (channels, height, width)
        return FileImages(paths, labels, files.classes, size=size, crop_pct=crop_pct), notes
    opener = FileImages([], [], files.classes, size=(channels, height, width)).open_item
    pixels, broken = decode_all(paths, opener, channels, height, width, crop_pct)
    notes += report(paths[i] for i in broken)
    images: ImageSet = MemoryImages(pixels, labels, files.classes)
    if broken:
        images = images.take(np.setdiff1d(np.arange(len(paths)), broken))
    return images, notes
