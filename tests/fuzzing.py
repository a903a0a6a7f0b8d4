"""What the fuzz tests share: seeded damage, commands run as a user runs them, and many cases.

A case is a function of its number and an empty folder. It returns its outcome in a word, and raises
if something is wrong; its number is its seed, so that each can be run again alone.
"""

import io
import json
import shutil
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from data_making import no_waiting
from vitascope.commands import main

SECONDS = 60  # of computing that a command may take: far more than any does
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)
ODD = (
    None, True, -1, 0, 3_000_000_000, 10**30, 10**400, 1.5, 1e308, float("nan"), float("inf"),
    "", "x", "\0", "../../x", [], {}, [[]], [None], [1, "a"], {"name": None}, [1] * 9, "9" * 5000,
)  # fmt: skip

Item = TypeVar("Item")
Rng = np.random.Generator
Case = Callable[[int, Path], str]


def pick(rng: Rng, items: Sequence[Item]) -> Item:
    """One of them, as it is (``rng.choice`` would make an array of them)."""
    return items[int(rng.integers(len(items)))]


# Damage.


def damaged_bytes(rng: Rng, data: bytes) -> bytes:
    """Cut, changed, longer, shorter or no bytes."""
    raw, kind = bytearray(data), int(rng.integers(9))
    start = int(rng.integers(len(raw) + 1))
    early = int(min(start, rng.integers(64)))  # headers are short, and matter most
    start = early if rng.random() < 0.5 else start
    stop = min(len(raw), start + int(2 ** rng.uniform(0, 10)))
    if kind == 0:
        return bytes(raw[:start])
    if kind == 1:
        del raw[start:stop]
    elif kind == 2:
        raw[start:stop] = bytes(stop - start)
    elif kind == 3:
        raw[start:start] = raw[start:stop]
    elif kind == 4:
        raw[start:stop] = rng.bytes(stop - start)
    elif kind == 5 and raw:
        for _ in range(int(rng.integers(1, 41))):
            raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    elif kind == 6:
        number, size = pick(rng, NUMBERS), int(2 ** rng.integers(4))
        order = pick(rng, ("big", "little"))
        raw[start : start + size] = (number % 256**size).to_bytes(size, order)
    elif kind == 7:
        raw += rng.bytes(int(rng.integers(1, 100)))
    elif rng.random() < 0.2:
        return b""
    return bytes(raw)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a tree of lists and dicts."""
    items = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield (*way, key)
        yield from places(item, (*way, key))


def damaged_tree(rng: Rng, tree: Any) -> Any:
    """The tree changed in one to three places, those near the top as often as those deep inside."""
    if rng.random() < 0.05:
        return pick(rng, ODD)
    tree = json.loads(json.dumps(tree))
    for _ in range(pick(rng, (1, 1, 2, 3))):
        ways = list(places(tree))
        if not ways:
            break
        depth = pick(rng, sorted({len(way) for way in ways}))
        *way, key = pick(rng, [way for way in ways if len(way) == depth])
        parent = tree
        for step in way:
            parent = parent[step]
        damage_item(rng, parent, key)
    return tree


def damage_item(rng: Rng, parent: Any, key: Any) -> None:
    """Without it, something else in its place, lists around it, another size or another name."""
    value, kind = parent[key], int(rng.integers(5))
    if kind == 0:
        del parent[key]
    elif kind == 1:
        parent[key] = pick(rng, ODD)
    elif kind == 2:
        for _ in range(pick(rng, (1, 1, 3))):
            parent[key] = [parent[key]]
    elif kind == 3 and isinstance(parent, dict):
        parent[f"{key}?"] = parent.pop(key)
    elif isinstance(value, list):
        parent[key] = pick(rng, (value[:-1], value + value, value[:1]))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        huge = value * 10**30  # an integer stays one, however large
        parent[key] = pick(rng, (-value, huge, float("nan"), float("inf"), 1e-300, 10**25))
    else:
        parent[key] = [value, value]


def damaged_text(rng: Rng, data: bytes) -> bytes:
    """JSON (also a line each) or YAML with other values in it, or another kind of text."""
    what = rng.random()
    if what < 0.04:
        return b"[" * pick(rng, (200, 990, 5000, 100_000))
    if what < 0.08:
        return data.decode().encode("utf-16")
    try:
        return json.dumps(damaged_tree(rng, json.loads(data))).encode()
    except json.JSONDecodeError:
        lines = data.splitlines(keepends=True)
    try:
        number = int(rng.integers(len(lines)))
        lines[number] = json.dumps(damaged_tree(rng, json.loads(lines[number]))).encode() + b"\n"
        return b"".join(lines)
    except json.JSONDecodeError:
        return yaml.safe_dump(damaged_tree(rng, yaml.safe_load(data))).encode()


# Commands and cases.


def command(words: Sequence[str]) -> tuple[int, str]:
    """Exit code 0, or 2 with one line for the user, and what was said; all else is a failure."""
    said = io.StringIO()
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(said),
            shown_warnings(),
            no_waiting(SECONDS, words),
        ):
            code = main(words)
    except SystemExit as stop:  # help
        code = stop.code
    line = said.getvalue()
    assert code in (0, 2), (words, code, line)
    assert "Traceback" not in line, (words, line)
    if code == 2:
        assert line.startswith("vitascope: "), (words, line)
        assert len(line.splitlines()) == 1, (words, line)
        assert len(line) <= 1000, (words, line)
    return code, line


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Warnings are printed as a user sees them; pytest would collect them, and a test see none."""

    def show(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        print(warnings.formatwarning(message, category, filename, lineno), file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # as Python does
        warnings.showwarning = show
        yield


def contents(root: Path) -> dict[str, bytes]:
    """All regular files below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def run_cases(case: Case, numbers: Iterable[int], home: Path) -> tuple[Counter[str], list[str]]:
    """How often each outcome was met, and the cases that went wrong, with their tracebacks."""
    met: Counter[str] = Counter()
    wrong = []
    for number in numbers:
        folder = home / f"case-{number}"
        folder.mkdir(parents=True)
        try:
            met[case(number, folder)] += 1
        except BaseException as error:
            wrong.append(f"case {number}: {''.join(traceback.format_exception(error))}")
        shutil.rmtree(folder, ignore_errors=True)
    return met, wrong
