"""Atomic files, and clear messages for a full disk."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from vitascope.atomic import replacing
from vitascope.errors import UserError


@contextmanager
def explain_write_errors(path: Path, needed: int = 0) -> Iterator[None]:
    """Turn a failure to write into a message with the path, the space needed and the space free."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EISDIR:
            raise UserError(
                f"could not write {path}: a folder is in its place; move it away, then resume"
            ) from error
        if number in (errno.ENOENT, errno.ENOTDIR):
            raise
        near = next((p for p in [path, *path.parents] if p.exists()), Path("/"))
        free = shutil.disk_usage(near).free
        wanted = f"{megabytes(needed)} needed, " if needed else ""
        reason = os.strerror(number) if number else str(error)
        raise UserError(
            f"could not write {path}: {reason} ({wanted}{megabytes(free)} free); the last good "
            "checkpoint is intact: make room, then resume"
        ) from error


def megabytes(count: int) -> str:
    """Bytes as text.

    >>> megabytes(1_500_000)
    '1.5 MB'
    """
    return f"{count / 1e6:.1f} MB"


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file that appears whole or not at all."""
    # tied weights share memory, which the format refuses: each name gets its own
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with explain_write_errors(path, size_of(tensors)), replacing(path) as temporary:
        save_file(copies, temporary)
