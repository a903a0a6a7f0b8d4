"""The records below some paths, and what each belongs to.

A folder is searched a few levels deep. Where a comparison or a study lies, the runs below it are
its parts and not shown by themselves; maps for its explorer are. A run that is not finished has no
record yet: it is read from its config and metrics.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitascope.atomic import regular
from vitascope.errors import UserError, reason
from vitascope.record import Record, load, load_config, load_metrics

SUMMARIES = ("compare", "pretrained", "study", "buildup", "spectra")  # they stand for runs below
_DEPTH = 4
_MOST_RECORDS = 400
_MOST_BYTES = 64_000_000  # of a record's JSON
_NOT_INTO = {"checkpoint", "weights", "events", "figures", "tables", "parts", "maps"}
_POSSIBLE = (
    "give a run, an evaluation, an inspection, a comparison or a study (a folder or its .json)"
)
_RUNS = ("run", "task")  # what has epochs
_PARTS = ("looks",)  # what a comparison keeps next to its runs; it is in its own record


@dataclass(frozen=True, kw_only=True)
class Source:
    """A record, where it lies, and for a run its epochs."""

    path: Path
    record: Record
    metrics: Sequence[Mapping[str, Any]] = ()

    @property
    def folder(self) -> Path:
        """Folder that holds the record."""
        return self.path.parent

    def settings(self, part: str) -> Mapping[str, Any]:
        """One part of what it was asked to do (``recipe``, ``data``); empty if it has none."""
        settings = self.record.config.get(part)
        return settings if isinstance(settings, Mapping) else {}


@dataclass(frozen=True, kw_only=True)
class FoundRecords:
    """Records to show, and what was not taken, in words."""

    sources: tuple[Source, ...]
    left_out: tuple[str, ...] = ()


@dataclass
class _Search:
    kinds: frozenset[str]
    sources: dict[Path, Source] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def find(paths: Iterable[str | Path], kinds: Iterable[str]) -> FoundRecords:
    """All records of some ``kinds`` below the paths.

    Raises:
        UserError: For a path that is not there, is no record, or has none below it.
    """
    search = _Search(frozenset(kinds))
    for given in paths:
        path, before = Path(given), len(search.sources)
        if path.is_dir():
            _look_into(search, path, _DEPTH)
            if len(search.sources) == before and not _taken(search, path):
                raise UserError(f"no record to report on below {given}; {_POSSIBLE}")
        elif path.is_file() or path.with_name(path.name + ".json").is_file():
            _take(search, path if path.is_file() else path.with_name(path.name + ".json"))
        else:
            raise UserError(f"there is no {given}; {_POSSIBLE}")
    return FoundRecords(sources=tuple(search.sources.values()), left_out=tuple(search.left_out))


def _taken(search: _Search, folder: Path) -> bool:
    here = folder.resolve()
    return any(here in path.parents for path in search.sources)


def _take(search: _Search, path: Path) -> None:
    """A file that was named: it must be a record that a page can show."""
    if path.name in ("metrics.jsonl", "config.yaml"):
        _look_into(search, path.parent, 0)
        return
    if path.suffix != ".json":
        raise UserError(f"{path} is not a record; {_POSSIBLE}")
    record = load(path)
    if record.kind not in search.kinds:
        raise UserError(
            f"{path} is a record of {record.kind!r}, which a report cannot show; {_POSSIBLE}"
        )
    _add(search, path, record)


def _look_into(search: _Search, folder: Path, depth: int) -> None:
    summary = run = False
    for path in sorted(folder.glob("*.json")):
        try:
            kind = _kind(path)
        except UserError as error:
            search.left_out.append(str(error))
            continue
        if kind is None or kind in _PARTS:
            continue
        if kind not in search.kinds:
            search.left_out.append(f"{path}: a record of {kind!r}")
            continue
        if len(search.sources) >= _MOST_RECORDS:
            search.left_out.append(f"more than {_MOST_RECORDS} records; the rest below {folder}")
            return
        try:
            _add(search, path, load(path))
        except UserError as error:
            search.left_out.append(str(error))
            continue
        summary |= kind in SUMMARIES
        run |= kind in _RUNS
    if not run and (folder / "config.yaml").is_file() and (folder / "metrics.jsonl").is_file():
        _unfinished(search, folder)
    if depth == 0:
        return
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
        hidden = inner.name.startswith(".") or inner.name in _NOT_INTO
        if not hidden and (not summary or inner.name == "explorer"):
            _look_into(search, inner, depth - 1)


def _kind(path: Path) -> str | None:
    """The kind of a record; None for any other JSON.

    Raises:
        UserError: If the file is damaged.
    """
    try:
        if regular(path).stat().st_size > _MOST_BYTES:
            raise UserError(f"{path}: larger than a record can be")
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged: {reason(error)}") from None
    if not isinstance(body, dict) or not {"kind", "values", "made"} & set(body):
        return None
    if not {"kind", "values", "arrays", "made"} <= set(body):
        raise UserError(f"{path}: not a whole record")
    return str(body["kind"])


def _add(search: _Search, path: Path, record: Record) -> None:
    metrics = _metrics(search, path.parent) if record.kind in _RUNS else []
    search.sources[path.resolve()] = Source(path=path, record=record, metrics=metrics)


def _metrics(search: _Search, folder: Path) -> list[dict[str, Any]]:
    """A run's epochs; none, and a word on why, if they are damaged."""
    if not (folder / "metrics.jsonl").exists():
        return []
    try:
        return load_metrics(folder)
    except UserError as error:
        search.left_out.append(str(error))
        return []


def _unfinished(search: _Search, folder: Path) -> None:
    try:
        config = load_config(folder)
    except UserError as error:
        search.left_out.append(str(error))
        return
    if config.get("task"):
        search.left_out.append(f"{folder}: a run of {config['task']} that is not finished")
        return
    rows = _metrics(search, folder)
    if not rows:
        search.left_out.append(f"{folder}: a run without an epoch yet")
        return
    made, seed = config.pop("made", None), config.get("seed")
    measured = [row for row in rows if isinstance(row.get("top1"), (int, float))]
    best = max(measured, key=lambda row: row["top1"]) if measured else None
    values = {"final": rows[-1], "best": best, "epochs": rows[-1]["epoch"], "unfinished": True}
    record = Record(
        kind="run",
        values=values,
        config=config,
        seed=seed if isinstance(seed, int) else None,
        made=made if isinstance(made, dict) else {},
    )
    path = folder / "config.yaml"
    search.sources[path.resolve()] = Source(path=path, record=record, metrics=rows)
