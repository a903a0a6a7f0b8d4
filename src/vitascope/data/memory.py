"""Decide whether images fit in memory, and decode them into it.

Decoding 60,000 small JPEGs takes seconds, once per run; nothing is written to disk.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from tqdm import tqdm

from vitascope.data.images import FileImages, ImageSet, MemoryImages
from vitascope.errors import UserError

__all__ = ["MEMORY_LIMIT", "decode_all", "gather"]

MEMORY_LIMIT = 2 * 2**30  # bytes of pixels
CHUNK = 256
R = TypeVar("R")
Images = TypeVar("Images", bound=ImageSet)


def in_threads(work: Callable[[Sequence[int]], R], count: int, what: str) -> Iterator[R]:
    """Run ``work`` on chunks of 0 ... count-1, results in order, with a bar on a terminal."""
    chunks = [range(i, min(i + CHUNK, count)) for i in range(0, count, CHUNK)]
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quiet = not sys.stderr.isatty()
    bar = tqdm(total=count, desc=what, unit="image", disable=quiet, leave=False)
    with bar, ThreadPoolExecutor(workers) as pool:
        for chunk, result in zip(chunks, pool.map(work, chunks), strict=True):
            bar.update(len(chunk))
            yield result


def headers(files: FileImages) -> list[tuple[tuple[int, int], str] | None]:
    """Size and mode of every file; None for what is no image."""

    def look(chunk: Sequence[int]) -> list[tuple[tuple[int, int], str] | None]:
        return [files.header(i) for i in chunk]

    return [h for chunk in in_threads(look, len(files), "looking at images") for h in chunk]


def decode_all(files: FileImages) -> tuple[torch.Tensor, list[int]]:
    """All images as uint8 (N, C, H, W), and the positions of those that cannot be decoded."""
    out = torch.zeros(len(files), *files.size, dtype=torch.uint8)

    def decode(chunk: Sequence[int]) -> list[int]:
        broken = []
        for i in chunk:
            try:
                out[i] = files.view(i)
            except OSError:
                broken.append(i)
        return broken

    return out, [i for chunk in in_threads(decode, len(files), "decoding images") for i in chunk]


def report(names: Iterable[str]) -> tuple[str, ...]:
    """A note for every broken image, also given as a warning."""
    notes = tuple(f"skipped broken image {name}" for name in names)
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return notes


def without(images: Images, broken: Sequence[int]) -> Images:
    """Only the images that can be read.

    Raises:
        UserError: If a class loses its last image.
    """
    if not broken:
        return images
    kept = images.take(np.setdiff1d(np.arange(len(images)), broken))
    lost = np.setdiff1d(images.labels, kept.labels)
    if len(lost):
        raise UserError(
            f"no image of class {images.classes[lost[0]]!r} can be read; "
            "mend its images or remove the class"
        )
    return kept


def gather(
    files: FileImages, *, image_size: int | None, in_chans: int | None
) -> tuple[ImageSet, tuple[str, ...]]:
    """The images of these files: in memory if they fit, else decoded when asked for.

    Without ``image_size`` all must have one size. Broken images are left out and named in notes.
    """
    seen = headers(files)
    broken = [i for i, item in enumerate(seen) if item is None]
    notes = report(files.name(i) for i in broken)
    files = without(files, broken)
    known = [item for item in seen if item is not None]
    sizes = {size for size, _ in known}
    if image_size is None and len(sizes) > 1:
        few = ", ".join(f"{w} x {h}" for w, h in sorted(sizes)[:3])
        raise UserError(
            f"the images have {len(sizes)} different sizes ({few}, ...); "
            "give image_size, for instance 224 (or 32 for small images)"
        )
    width, height = (image_size, image_size) if image_size else next(iter(sizes))
    if width != height:
        raise UserError(
            f"the images are {width} x {height} pixels; give image_size to make them square"
        )
    channels = in_chans or (1 if all(mode in ("1", "L") for _, mode in known) else 3)
    files = files.of_size(channels, height, width)
    if sizes != {(width, height)}:
        notes += (f"resized the shorter side to {height} and kept the centre",)
    if len(files) * channels * height * width > MEMORY_LIMIT:
        return files, notes
    pixels, broken = decode_all(files)
    notes += report(files.name(i) for i in broken)
    return without(MemoryImages(pixels, files.labels, files.classes), broken), notes
