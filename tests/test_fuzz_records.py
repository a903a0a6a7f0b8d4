"""Damaged records and run folders: a page or one clear line, never a traceback.

A seeded mutator takes a stored record apart (keys dropped, types changed, numbers made huge, lists
nested, shapes made wrong, bytes flipped, files cut) and gives what is left to ``vitascope report``.
"""

import json
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from data_making import no_waiting
from vitascope.cli import main

FIXTURES = Path(__file__).parent / "fixtures"
RECORDS = sorted(p for p in FIXTURES.rglob("*.json") if '"kind"' in p.read_text(encoding="utf-8"))
ODD = (
    None,
    True,
    "",
    "x",
    -1,
    0,
    2.5,
    1e308,
    10**400,
    [],
    {},
    [[]],
    [1, "a"],
    {"a": None},
    "9" * 99,
)
SECONDS = 60  # that one case may take: far more than any does


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a JSON value."""
    items = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield (*way, key)
        yield from places(item, (*way, key))


def drop(draw: random.Random, parent: Any, key: Any) -> None:
    """Without it."""
    del parent[key]


def change(draw: random.Random, parent: Any, key: Any) -> None:
    """Something else in its place."""
    parent[key] = draw.choice(ODD)


def nest(draw: random.Random, parent: Any, key: Any) -> None:
    """A list around it, or many."""
    for _ in range(draw.choice((1, 1, 3))):
        parent[key] = [parent[key]]


def resize(draw: random.Random, parent: Any, key: Any) -> None:
    """A list that is shorter or longer; a number of another size."""
    value = parent[key]
    if isinstance(value, list):
        parent[key] = draw.choice((value[:-1], value + value, value[:1]))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        parent[key] = draw.choice(
            (-value, value * 1e30, float("nan"), float("inf"), 1e-300, 10**25)
        )
    else:
        parent[key] = [value, value]


MUTATIONS: tuple[Callable[[random.Random, Any, Any], None], ...] = (drop, change, nest, resize)


def mutate_body(draw: random.Random, path: Path) -> None:
    """Change the JSON in one to three places, those near the top as often as those deep inside."""
    read = json.loads if path.suffix == ".json" else yaml.safe_load
    body = read(path.read_text(encoding="utf-8"))
    for _ in range(draw.choice((1, 1, 2, 3))):
        ways = list(places(body))
        depth = draw.choice(sorted({len(way) for way in ways}))
        *way, key = draw.choice([way for way in ways if len(way) == depth])
        parent = body
        for step in way:
            parent = parent[step]
        draw.choice(MUTATIONS)(draw, parent, key)
        if not body:
            break
    path.write_text(json.dumps(body), encoding="utf-8")


def mutate_depth(draw: random.Random, path: Path) -> None:
    """Lists in lists, deeper than any reader goes."""
    text = path.read_text(encoding="utf-8")
    depth = draw.choice((200, 990, 5000))
    path.write_text(
        text.replace('"values": {', '"values": {"deep": ' + "[" * depth + "]" * depth + ", ", 1)
    )


def mutate_bytes(draw: random.Random, path: Path) -> None:
    """Cut a file short, flip some of its bytes, empty it or remove it."""
    content = bytearray(path.read_bytes())
    how = draw.choice(("cut", "flip", "flip", "empty", "remove"))
    if how == "remove":
        path.unlink()
        return
    if how == "flip":
        for _ in range(draw.choice((1, 4, 40))):
            content[draw.randrange(min(len(content), 4000))] = draw.randrange(256)
    path.write_bytes(
        content if how == "flip" else content[: draw.randrange(len(content)) * (how == "cut")]
    )


def mutate_arrays(draw: random.Random, path: Path) -> None:
    """Arrays of other shapes, types, names and numbers, with JSON that announces them."""
    arrays = load_file(path.with_suffix(".safetensors"))
    name = draw.choice(sorted(arrays))
    value = arrays[name]
    how = draw.choice(("nan", "inf", "huge", "flat", "deep", "short", "empty", "ints", "renamed"))
    with np.errstate(all="ignore"):
        arrays[name] = {
            "nan": np.full_like(value, np.nan, dtype=np.float32),
            "inf": np.full_like(value, np.inf, dtype=np.float32),
            "huge": np.full_like(value, 3e38, dtype=np.float32),
            "flat": value.reshape(-1),
            "deep": value[None],
            "short": value[:1] if value.ndim else value,
            "empty": value.reshape(-1)[:0],
            "ints": np.zeros(value.shape, np.int64),
            "renamed": value,
        }[how]
    if how == "renamed":
        arrays["other"] = arrays.pop(name)
    save_file(
        {n: np.ascontiguousarray(v) for n, v in arrays.items()}, path.with_suffix(".safetensors")
    )
    body = json.loads(path.read_text(encoding="utf-8"))
    if draw.random() < 0.8:
        body["arrays"] = {n: list(v.shape) for n, v in arrays.items()}
    path.write_text(json.dumps(body), encoding="utf-8")


def outcome(words: list[str]) -> int | str:
    """The exit code of a command, or its traceback."""
    try:
        with no_waiting(SECONDS):
            return main(words)
    except BaseException:
        return traceback.format_exc()


def copied(path: Path, home: Path) -> Path:
    """A record with its arrays, and for a run its folder, in ``home``."""
    for beside in path.parent.iterdir():
        whole = path.name == "record.json" and beside.suffix in (".yaml", ".jsonl")
        if beside.stem == path.stem or whole:
            shutil.copy(beside, home / beside.name)
    return home / path.name


def case(number: int, home: Path) -> tuple[str, str | None]:
    """Damage one record in ``home`` and report on it: which, and what went wrong, if anything."""
    draw = random.Random(number)
    path = copied(draw.choice(RECORDS), home)
    name = f"case {number}, {path.name}"
    how = draw.random()
    if how < 0.25 and path.with_suffix(".safetensors").exists():
        mutate_arrays(draw, path)
    elif how < 0.4:
        mutate_bytes(draw, draw.choice(sorted(home.iterdir())))
    elif how < 0.42:
        mutate_depth(draw, path)
    else:
        mutate_body(draw, path)
    before = {p.name for p in home.iterdir()}
    formats = ["--formats", "svg", "--tables", "csv"] if draw.random() < 0.1 else []
    given = home if draw.random() < 0.7 else path
    code = outcome(["report", str(given), "--quiet", *formats])
    if isinstance(code, str):
        return name, code
    made = {p.name for p in home.iterdir()} - before
    if code not in (0, 2):
        return name, f"exit code {code}"
    if code == 2 and made:
        return name, f"refused, and {made} written"
    if code == 0 and not (made <= {"report.html", "figures", "tables"} and "report.html" in made):
        return name, f"wrote {made}"
    if any(p.name.startswith(".") for p in home.rglob("*")):
        return name, "a temporary file is left"
    return name, None


Case = Callable[[int, Path], tuple[str, str | None]]


def run_case(number: int, home: Path) -> tuple[str, str | None]:
    """Damage one file of a run's folder and evaluate, inspect or report on it."""
    draw = random.Random(number)
    run = shutil.copytree(FIXTURES / "format-0" / "run", home / "run")
    path = run / draw.choice(("config.yaml", "metrics.jsonl", "model.safetensors", "record.json"))
    if path.suffix in (".yaml", ".json") and draw.random() < 0.6:
        mutate_body(draw, path)
    else:
        mutate_bytes(draw, path)
    words = draw.choice(
        (
            ["report"],
            ["evaluate", "--images", "8"],
            ["inspect", "--images", "2", "--measures", "gates"],
        )
    )
    code = outcome([*words[:1], str(run), *words[1:], "--quiet"])
    name = f"run case {number}, {words[0]} with a damaged {path.name}"
    if code not in (0, 2):
        return name, str(code)
    return name, "a temporary file is left" if list(run.rglob(".*")) else None


def wrong_ones(numbers: range, home: Path, case: Case = case) -> list[str]:
    """The cases that went wrong, in words."""
    found = []
    for number in numbers:
        folder = home / str(number)
        folder.mkdir()
        name, wrong = case(number, folder)
        shutil.rmtree(folder)
        if wrong is not None:
            found.append(f"{name}: {wrong}")
    return found


def test_a_damaged_run_is_opened_or_one_line(tmp_path):
    wrong = wrong_ones(range(60), tmp_path, run_case)
    assert not wrong, "\n\n".join(wrong)


def test_a_damaged_record_is_a_page_or_one_line(tmp_path):
    wrong = wrong_ones(range(150), tmp_path)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
def test_five_hundred_damaged_runs_are_opened_or_one_line(tmp_path):
    wrong = wrong_ones(range(1000, 1500), tmp_path, run_case)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_damaged_records_are_a_page_or_one_line(tmp_path):
    wrong = wrong_ones(range(1000, 3000), tmp_path)
    assert not wrong, "\n\n".join(wrong)
