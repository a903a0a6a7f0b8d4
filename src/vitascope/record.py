"""A result on disk, with everything needed to reproduce it.

A record named ``runs/a/gates`` is ``gates.json`` (what was found and how: kind, values, config,
seed, commit, versions, machine, seconds) and, when there are arrays, ``gates.safetensors``.
Reading one needs numpy alone, so pages and tables can be made where torch is not installed.
Files appear whole or not at all (:mod:`vitascope.atomic`).

``format`` in the JSON says how a record is laid out: 1 now, and 0 where it is left out. Records are
checked where they are read, here: what :func:`load` returns has the types that :class:`Record` has.
"""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vitascope.atomic import atomic_write, regular, replacing, write_text
from vitascope.errors import UserError, reason
from vitascope.settings import COMMAND

__all__ = [
    "FORMAT",
    "Record",
    "atomic_write",
    "load",
    "load_config",
    "load_metrics",
    "provenance",
    "write_text",
]

FORMAT = 1  # of records and of a run's config.yaml
_LARGEST = 1e100  # of a number in a record: nothing measured is larger
_PACKAGES = ("vitascope", "torch", "torchvision", "timm", "numpy", "scipy", "accelerate")


def provenance() -> dict[str, Any]:
    """Provenance of results made now: time, command, commit, versions, machine."""
    machine = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": threads(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        machine["device"] = torch.cuda.get_device_name()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"command": os.environ[COMMAND]} if os.environ.get(COMMAND) else {}),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": machine,
    }


@lru_cache(maxsize=1)  # read from files, which do not change while a program runs
def _versions() -> Mapping[str, str]:
    """The versions of the packages that are installed."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def threads() -> int:
    """Threads that torch computes with here, or would if it were loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(wanted) if wanted.isdecimal() and int(wanted) else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """A named result: small values as JSON, large ones as arrays."""

    kind: str  # the instrument, study or run that made it: "nonlocality", "compare", ...
    values: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # what it was asked to do
    seed: int | None = None
    seconds: float | None = None
    made: Mapping[str, Any] = field(default_factory=provenance)

    def save(self, path: str | Path) -> Path:
        """Write ``path.json`` (and ``path.safetensors``); return the JSON file's path."""
        path = Path(path)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is a device or a pipe; a record is files: give another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: np.ascontiguousarray(value) for name, value in self.arrays.items()}
        if arrays:
            with replacing(path.with_name(path.name + ".safetensors")) as temporary:
                save_file(arrays, temporary)
        body = {"format": FORMAT, **{f: getattr(self, f) for f in self.__dataclass_fields__}}
        body["arrays"] = {name: list(value.shape) for name, value in arrays.items()}
        target = path.with_name(path.name + ".json")
        write_text(target, json.dumps(plain(body), indent=1, allow_nan=False) + "\n")
        return target


def load(path: str | Path) -> Record:
    """Read the record written as ``path`` (with or without ``.json``).

    Raises:
        UserError: If there is none, it is of a newer format, or it is not whole.
    """
    path = Path(path)
    target = path if path.suffix == ".json" else path.with_name(path.name + ".json")
    try:
        body = json.loads(regular(target).read_text(encoding="utf-8"), parse_constant=_refuse)
        check_format(body, f"{target} is a record")
        body = {name: body[name] for name in Record.__dataclass_fields__ if name in body}
        shapes = body.pop("arrays")
        arrays = load_file(regular(target.with_suffix(".safetensors"))) if shapes else {}
        _check(body, arrays, shapes)
        return Record(**body, arrays=arrays)
    except FileNotFoundError as error:
        raise UserError(f"no record at {error.filename or target}") from None
    except UserError:
        raise  # a ValueError too
    except (OSError, SafetensorError, RecursionError, KeyError, *_NOT_ONE) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else reason(error)
        raise UserError(f"{target} is not a record: {why}") from None


_NOT_ONE = (ValueError, TypeError, AttributeError)  # JSON of another shape


def check_format(body: Mapping[str, Any], what: str) -> None:
    """Refuse what a later version wrote; without a number it is of the first."""
    number = body.get("format", 0)
    if not isinstance(number, int) or not 0 <= number <= FORMAT:
        raise UserError(
            f"{what} of format {number!r}; this vitascope reads formats up to {FORMAT}: use the "
            "one that wrote it, or a newer one"
        )


def _check(body: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shapes: Any) -> None:
    """Types, bounded numbers, and the arrays that the JSON announces."""
    for name, kinds in _TYPES.items():
        if name in body and not isinstance(body[name], kinds):
            raise ValueError(f"its {name} is {str(body[name])[:40]!r}")
    for name in ("seed", "seconds"):
        if isinstance(body.get(name), bool):
            raise ValueError(f"its {name} is {body[name]}")
    _check_numbers(body)
    actual = {name: list(array.shape) for name, array in arrays.items()}
    if actual != shapes:
        raise ValueError(f"its arrays are {str(actual)[:60]}, not {str(shapes)[:60]}")


_TYPES: dict[str, Any] = {
    "kind": str,
    "values": dict,
    "config": dict,
    "seed": (int, type(None)),
    "seconds": (int, float, type(None)),
    "made": dict,
}


def _check_numbers(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _check_numbers(item)
    elif isinstance(value, list):
        for item in value:
            _check_numbers(item)
    elif isinstance(value, (int, float)) and not abs(value) <= _LARGEST:
        raise ValueError(f"a number in it is {str(value)[:40]}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def load_config(folder: str | Path) -> dict[str, Any]:
    """``config.yaml`` of a run's folder.

    Raises:
        UserError: If it cannot be read, is of a newer format, or is not a run's.
    """
    import yaml

    path = Path(folder) / "config.yaml"
    try:
        config = yaml.safe_load(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} is not a run's config: it holds {str(config)[:40]!r}")
    check_format(config, f"{path} is a config")
    for part in ("recipe", "model", "data"):
        if not isinstance(config.get(part), dict):
            raise UserError(f"{path} is not a run's config: its {part} is {config.get(part)!r:.40}")
    for part, fits in _DATA.items():
        value = config["data"].get(part)
        if value is not None and not fits(value):
            raise UserError(f"{path} is not a run's config: its data.{part} is {value!r:.40}")
    return config


def _numbers(value: Any, kinds: Any = (int, float)) -> bool:
    """Return whether it is a list of numbers, of a size that images have."""
    return isinstance(value, list) and all(
        isinstance(each, kinds) and abs(each) < 1_000_000 for each in value
    )


_DATA: dict[str, Callable[[Any], bool]] = {  # what a run's images are known by
    "name": lambda name: isinstance(name, str),
    "size": lambda size: _numbers(size, int) and len(size) == 3 and min(size) > 0,
    "mean": lambda mean: _numbers(mean),
    "std": lambda std: _numbers(std) and min(std, default=0) > 0,
    "crop_pct": lambda share: isinstance(share, int | float) and 0 < share <= 1,
    "interpolation": lambda kind: kind in ("bicubic", "bilinear"),
}


def load_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` in a run's folder, but for a last one that is half written.

    Raises:
        UserError: If it cannot be read, or another line is damaged.
    """
    path = Path(folder) / "metrics.jsonl"
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line, parse_constant=float)
            _check_row(row)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise UserError(f"line {number} of {path} is damaged: {str(error)[:80]}") from None
        rows.append(row)
    return rows


def _check_row(row: Any) -> None:
    """A line of metrics: an epoch, and numbers or words by name."""
    if not isinstance(row, dict) or isinstance(row.get("epoch"), bool):
        raise ValueError("it is no epoch")
    if not isinstance(row.get("epoch"), (int, float)):
        raise ValueError("it has no epoch")
    _check_numbers({name: value for name, value in row.items() if value == value})  # NaN may be


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

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(here), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    ours = git("ls-files", "--error-unmatch", __file__)  # or it is another project's repository
    if head is None or ours is None:
        return None
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")
