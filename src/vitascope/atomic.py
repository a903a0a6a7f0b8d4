"""Atomic writes: a file appears whole or not at all.

A file is written in a hidden folder next to its place (``.NAME.xxxxxxxx.part``), flushed, and
renamed. The writer holds a lock on that folder, so one that a killed process left can be told from
one in use: the next write next to it removes it.
"""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from vitascope.errors import UserError

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

__all__ = ["atomic_write", "file_name", "flush", "regular", "replacing", "sweep", "write_text"]

_LEFT = re.compile(r"\..+\.[a-z0-9_]{8}\.part")  # as tempfile makes them


def file_name(text: str) -> str:
    """A name, of a model for instance, as the name of a file.

    >>> file_name("timm:vit_micro+cb")
    'timm_vit_micro_cb'
    """
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


def check_writable(path: str | Path) -> None:
    """Check, before any work is done, that a file or folder can be written at ``path``.

    Raises:
        UserError: If the folder that exists above it takes no new files.
    """
    path = Path(path)
    folder = next(p for p in (path, *path.absolute().parents) if p.exists())
    if folder != path and not folder.is_dir():
        raise UserError(f"cannot write to {path}: {folder} is not a folder")
    folder = folder if folder.is_dir() else folder.parent
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}: {folder}") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A file's name to write to, which takes the place of ``path`` when the block ends well."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir() or _is_idle_pipe(path)):
        with _copied_to(path) as written:
            yield written
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    folder, lock = _own_folder(path)
    written = folder / path.name
    try:
        yield written
        flush(written)
        os.chmod(written, 0o666 & ~_umask())
        os.replace(written, path)
        flush(path.parent)
    except SafetensorError as error:  # what safetensors makes of a full disk
        raise OSError(f"could not write {path}: {error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _is_idle_pipe(path: Path) -> bool:
    """Return whether ``path`` is a pipe that nothing reads: whoever writes to it waits for ever."""
    if not path.is_fifo():
        return False
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


@contextmanager
def _copied_to(path: Path) -> Iterator[Path]:
    """Yield a temporary file that is copied to a device or a pipe, which stays what it is."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "written"
        yield written
        with open(written, "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` only if the block ends well."""
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        yield stream
        stream.flush()


def write_text(path: str | Path, text: str) -> None:
    """Write a whole UTF-8 text file atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


def sweep(folder: str | Path) -> None:
    """Remove what killed writers left in ``folder``; what is being written now stays."""
    with suppress(OSError):
        left = [entry.path for entry in os.scandir(folder) if _LEFT.fullmatch(entry.name)]
        for name in left:
            with suppress(OSError):
                handle = os.open(name, os.O_RDONLY)
                try:
                    if _lock(handle):
                        _remove(name)
                finally:
                    os.close(handle)


def flush(path: str | Path) -> None:
    """Have the system put a file, or a folder's list of names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _own_folder(path: Path) -> tuple[Path, int]:
    """A new hidden folder next to ``path``, and the handle that keeps it locked."""
    while True:
        folder = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # swept away before it was locked
            continue
        if _lock(handle) is not False and os.path.isdir(folder):
            return Path(folder), handle
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock an open file or folder: False if another holds it, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(name: str) -> None:
    if os.path.isdir(name):
        shutil.rmtree(name)
    else:
        os.unlink(name)


@lru_cache(maxsize=1)
def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def regular(path: str | os.PathLike[str]) -> Path:
    """The path, if it leads to a regular file: a pipe would be waited for.

    Raises:
        OSError: If it leads nowhere, or to a folder, a pipe, a socket or a device.
    """
    if "\0" in os.fspath(path):
        raise OSError("its name has a NUL character")
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError("it is not a regular file")
    return Path(path)
