"""Lock a run's folder for one process, and write its files whole.

The lock is the operating system's, on the file ``.lock``, so it ends with the process that holds
it, however that ends: a file left behind by ``kill -9`` does not block. Processes that were forked
from the holder do not hold it. Where the file system has no locks, nothing is locked.

Files are atomic, and a full disk gives a clear message.
"""

import contextlib
import errno
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from vitascope.atomic import replacing
from vitascope.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

_held: set[Path] = set()  # by this process, whose own locks do not stop it


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Hold the lock of ``folder`` inside the block.

    A folder that is not there is made, and is gone afterwards if nothing was put into it.

    Raises:
        UserError: If another process is there, or this one already; it names the process.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder")
    location = folder.resolve()
    if location in _held:
        raise _busy(folder, f"{os.getpid()} on {socket.gethostname()}")
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = _locked(folder)
    except PermissionError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from None
    _held.add(location)
    try:
        yield
    finally:
        _held.discard(location)
        with contextlib.suppress(OSError):
            os.unlink(folder / ".lock")
        os.close(handle)
        for path in new:
            with contextlib.suppress(OSError):  # something is in it
                path.rmdir()


def _locked(folder: Path) -> int:
    """The open lock file, held; it says who holds it."""
    path = folder / ".lock"
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            raise _busy(folder, holder or "unknown") from None
        except OSError:
            pass  # no locks here
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()} on {socket.gethostname()}".encode())
            return handle
        os.close(handle)  # its last holder removed it in between


def _busy(folder: Path, holder: str) -> UserError:
    return UserError(
        f"{folder} is in use by process {holder}; wait for it, stop it, or choose another folder"
    )


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


def size_of(tensors: "Mapping[str, Tensor]") -> int:
    """Return the size of all tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Write a safetensors file that appears whole or not at all."""
    from safetensors.torch import save_file

    # tied weights share memory, which the format refuses: each name gets its own
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with explain_write_errors(path, size_of(tensors)), replacing(path) as temporary:
        save_file(copies, temporary)
