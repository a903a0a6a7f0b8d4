"""One result on disk, with everything needed to get it again.

A record named ``runs/a/gates`` is ``gates.json`` (what was found and how: kind, values, config,
seed, commit, versions, machine, seconds) and, when there are arrays, ``gates.safetensors``.
Reading one needs numpy alone, so pages and tables can be made where torch is not installed.
Files appear whole or not at all: each is written beside its place, flushed, then renamed.
"""

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vitascope.errors import UserError
from vitascope.settings import COMMAND

__all__ = ["Record", "atomic_write", "circumstances", "load", "write_text"]

_PACKAGES = ("vitascope", "torch", "torchvision", "timm", "numpy", "scipy", "accelerate")


def circumstances() -> dict[str, Any]:
    """Where and with what this process runs: time, command, commit, versions, machine."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    machine = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        machine["device"] = torch.cuda.get_device_name()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"command": os.environ[COMMAND]} if os.environ.get(COMMAND) else {}),
        "commit": _commit(),
        "versions": versions,
        "machine": machine,
    }


@dataclass(frozen=True, kw_only=True)
class Record:
    """A named result: small values as JSON, large ones as arrays."""

    kind: str  # the instrument, study or run that made it: "nonlocality", "compare", ...
    values: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # what it was asked to do
    seed: int | None = None
    seconds: float | None = None
    made: Mapping[str, Any] = field(default_factory=circumstances)

    def save(self, path: str | Path) -> Path:
        """Write ``path.json`` (and ``path.safetensors``); return the JSON file's path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: np.ascontiguousarray(value) for name, value in self.arrays.items()}
        if arrays:
            with _replacing(path.with_name(path.name + ".safetensors")) as temporary:
                save_file(arrays, temporary)
        body = {name: getattr(self, name) for name in self.__dataclass_fields__}
        body["arrays"] = {name: list(value.shape) for name, value in arrays.items()}
        target = path.with_name(path.name + ".json")
        write_text(target, json.dumps(plain(body), indent=1, allow_nan=False) + "\n")
        return target


def load(path: str | Path) -> Record:
    """Read the record written as ``path`` (with or without ``.json``)."""
    path = Path(path)
    target = path if path.suffix == ".json" else path.with_name(path.name + ".json")
    try:
        body = json.loads(target.read_text(encoding="utf-8"))
        shapes = body.pop("arrays")
        arrays = load_file(target.with_suffix(".safetensors")) if shapes else {}
        record = Record(**{**body, "arrays": arrays})
    except FileNotFoundError:
        raise UserError(f"no record at {target}") from None
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise UserError(f"{target} is not a record: {error}") from None
    return record


def plain(value: Any) -> Any:
    """``value`` in types JSON knows; a number that is not finite becomes None.

    >>> plain({"a": np.float32(1.5), "b": (1, float("nan"))})
    {'a': 1.5, 'b': [1, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


@lru_cache(maxsize=1)
def _commit() -> str | None:
    """The commit of the checkout this package runs from, with ``+`` when it was changed."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        command = ["git", "-C", str(here), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    ours = git("ls-files", "--error-unmatch", __file__)  # not somebody else's repository around us
    if head is None or ours is None:
        return None
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")


@contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """A temporary name beside ``path`` that takes its place when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@lru_cache(maxsize=1)
def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` only if the block ends well."""
    with _replacing(Path(path)) as temporary, open(temporary, "wb") as stream:
        yield stream
        stream.flush()


def write_text(path: str | Path, text: str) -> None:
    """Write a whole UTF-8 text file atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))
