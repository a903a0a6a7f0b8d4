"""Download a file once, atomically, into a cache.

Kept under ``torch.hub.get_dir()`` (``$TORCH_HOME``, or ``~/.cache/torch``) next to the weights that
timm fetches. Two processes that ask for the same file fetch it once.
"""

import hashlib
import os
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit
from urllib.request import urlopen

import torch
from filelock import FileLock

from vitascope.errors import UserError
from vitascope.progress import on_terminal

TIMEOUT = 60  # seconds without a byte


def home() -> Path:
    """Return the folder of fetched files."""
    return Path(torch.hub.get_dir()) / "vitascope"


def kept_at(url: str) -> Path:
    """A file of its own for every address, with a readable end.

    >>> kept_at("https://example.org/a/train-000.tar?key=1").name
    'daad42a3e5-train-000.tar'
    """
    name = Path(urlsplit(url).path).name
    return home() / f"{hashlib.sha256(url.encode()).hexdigest()[:10]}-{name}"


def fetched(url: str) -> Path:
    """The file's path on disk; it is fetched if it is not there.

    Raises:
        UserError: If it cannot be fetched; no partial file is left.
    """
    try:
        path = kept_at(url)
    except ValueError as error:
        raise UserError(f"{url:.200} is no address: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            try:
                _fetch(url, path)
            except (OSError, HTTPException, ValueError) as error:
                raise UserError(
                    f"cannot fetch {url} ({error}); check the address, or copy the file to disk "
                    "and give its path"
                ) from error
    return path


def _fetch(url: str, path: Path) -> None:
    with (
        urlopen(url, timeout=TIMEOUT) as source,
        NamedTemporaryFile(dir=path.parent, delete=False) as part,
    ):
        try:
            length = source.headers.get("Content-Length")
            total = int(length) if length else None
            with on_terminal(path.name, total or 0) as progress:
                while chunk := source.read(1 << 20):
                    part.write(chunk)
                    progress.advance(len(chunk))
            part.flush()
            os.fsync(part.fileno())
            if total is not None and part.tell() != total:
                raise OSError(f"the connection ended after {part.tell()} of {total} bytes")
            os.replace(part.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(part.name)
            raise
