"""Decide whether images fit in memory, and decode them into it.

Decoding 60,000 small JPEGs takes seconds, once per run; nothing is written to disk.
"""

import multiprocessing
import os
import warnings
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch

from vitascope.data.decoding import GREY
from vitascope.data.file_batches import decoded
from vitascope.data.images import FileImages, ImageSet, MemoryImages
from vitascope.errors import UserError
from vitascope.progress import on_terminal

MEMORY_LIMIT = 2 * 2**30  # bytes of pixels
CHUNK = 256
NAMED = 20  # broken images that are named one by one
WORTH_WORKERS = 4096  # images; below, starting processes costs more than they save
Images = TypeVar("Images", bound=ImageSet)


def workers_for(count: int) -> int:
    """Number of processes to decode with: threads would block each other on small images."""
    fork = multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    if count < WORTH_WORKERS or not fork or multiprocessing.current_process().daemon:
        return 0
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def headers(
    files: FileImages,
) -> tuple[list[tuple[tuple[int, int], str]], dict[int, str]]:
    """Size and mode of every image; the positions of those that are none, with the reason."""
    sizes, broken = [], {}
    with on_terminal("looking at images", len(files)) as progress:
        for i in range(len(files)):
            try:
                sizes.append(files.header(i))
            except OSError as error:
                broken[i] = str(error)
            progress.advance()
    return sizes, broken


def decode_all(files: FileImages) -> tuple[torch.Tensor, dict[int, str]]:
    """All images as uint8 (N, C, H, W); those that cannot be decoded, with the reason."""
    out = torch.zeros(len(files), *files.size, dtype=torch.uint8)
    orders = [np.arange(i, min(i + CHUNK, len(files))) for i in range(0, len(files), CHUNK)]
    broken: dict[int, str] = {}
    workers = workers_for(len(files))
    with on_terminal("decoding images", len(files)) as progress:
        for batch in decoded(
            files, orders, None, None, num_workers=workers, on_broken=broken.__setitem__
        ):
            out[torch.from_numpy(batch.indices)] = batch.pixels
            progress.advance(len(batch.indices))
    return out, broken


def report(files: FileImages, broken: Mapping[int, str]) -> tuple[str, ...]:
    """A note for every broken image, also given as a warning; many are counted."""
    notes = [f"skipped broken image {files.name(i)}: {why}" for i, why in broken.items()]
    if len(notes) > NAMED:
        notes[NAMED:] = [f"skipped {len(notes) - NAMED} more broken images"]
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return tuple(notes)


def without(images: Images, broken: Mapping[int, str]) -> Images:
    """Only the images that can be read.

    Raises:
        UserError: If a class loses its last image.
    """
    if not broken:
        return images
    readable = images.take(np.setdiff1d(np.arange(len(images)), list(broken)))
    lost = np.setdiff1d(images.labels, readable.labels)
    if len(lost):
        why = next(why for i, why in broken.items() if images.labels[i] == lost[0])
        raise UserError(
            f"no image of class {images.classes[lost[0]]!r} can be read (of the first: {why}); "
            "repair its images or remove the class"
        )
    return readable


def gather(
    files: FileImages, *, image_size: int | None, in_chans: int | None
) -> tuple[ImageSet, tuple[str, ...]]:
    """The images of these files: in memory if they fit, else decoded when asked for.

    Without ``image_size`` all must have one size. Broken images are left out and named in notes.
    """
    if not len(files):
        raise UserError("one of the parts of this data set has no images in it")
    sizes_and_modes, broken = headers(files)
    readable = without(files, broken)
    notes = report(files, broken)
    files = readable
    sizes = {size for size, _ in sizes_and_modes}
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
    channels = in_chans or (1 if all(mode in GREY for _, mode in sizes_and_modes) else 3)
    files = files.of_size(channels, height, width)
    if sizes != {(width, height)}:
        centre = f"{100 * files.crop_pct:g} % of the centre" if files.crop_pct < 1 else "the centre"
        notes += (f"resized the shorter side to {height} and kept {centre}",)
    if len(files) * channels * height * width > MEMORY_LIMIT:
        return files, notes
    pixels, broken = decode_all(files)
    names = [files.name(index) for index in range(len(files))]
    images = MemoryImages(pixels, files.labels, files.classes, names=names)
    images = without(images if files.groups is None else images.of_groups(files.groups), broken)
    return images, notes + report(files, broken)
