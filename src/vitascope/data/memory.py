"""Decide whether images fit in memory, and decode them into it.

Decoding 60,000 small JPEGs takes seconds, once per run; nothing is written to disk.
"""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from tqdm import tqdm

from vitascope.data.decoding import decoded
from vitascope.data.images import FileImages, ImageSet, MemoryImages
from vitascope.errors import UserError

__all__ = ["MEMORY_LIMIT", "decode_all", "gather"]

MEMORY_LIMIT = 2 * 2**30  # bytes of pixels
CHUNK = 256
WORTH_WORKERS = 4096  # images; below, starting processes costs more than they save
Images = TypeVar("Images", bound=ImageSet)


def bar(total: int, what: str) -> tqdm:
    """A progress bar on a terminal, nothing elsewhere."""
    quiet = not sys.stderr.isatty()
    return tqdm(total=total, desc=what, unit="image", disable=quiet, leave=False)


def workers_for(count: int) -> int:
    """Processes to decode with: threads would wait for each other on small images."""
    fork = multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    if count < WORTH_WORKERS or not fork or multiprocessing.current_process().daemon:
        return 0
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def headers(files: FileImages) -> list[tuple[tuple[int, int], str] | None]:
    """Size and mode of every file; None for what is no image."""
    found = []
    with bar(len(files), "looking at images") as progress:
        for i in range(len(files)):
            found.append(files.header(i))
            progress.update()
    return found


def decode_all(files: FileImages) -> tuple[torch.Tensor, list[int]]:
    """All images as uint8 (N, C, H, W), and the positions of those that cannot be decoded."""
    out = torch.zeros(len(files), *files.size, dtype=torch.uint8)
    orders = [np.arange(i, min(i + CHUNK, len(files))) for i in range(0, len(files), CHUNK)]
    done = np.zeros(len(files), dtype=bool)
    with bar(len(files), "decoding images") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # broken images are reported by the caller
        for batch in decoded(files, orders, None, None, num_workers=workers_for(len(files))):
            out[torch.from_numpy(batch.indices)] = batch.pixels
            done[batch.indices] = True
            progress.update(len(batch.indices))
    return out, np.flatnonzero(~done).tolist()


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
