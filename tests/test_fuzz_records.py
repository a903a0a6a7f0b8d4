"""Damaged records: a page or one clear line, never a traceback.

Stored records are taken apart (keys dropped, types changed, numbers made huge, lists nested, shapes
made wrong, bytes flipped, files cut), and what is left is given to ``vitascope report``.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fuzzing import Rng, command, contents, damaged_bytes, damaged_text, pick, run_cases

FIXTURES = Path(__file__).parent / "fixtures"
RECORDS = sorted(p for p in FIXTURES.rglob("*.json") if '"kind"' in p.read_text(encoding="utf-8"))


def damage_arrays(rng: Rng, path: Path) -> None:
    """Arrays of other shapes, types, names and numbers, with JSON that announces them."""
    arrays = load_file(path.with_suffix(".safetensors"))
    name = pick(rng, sorted(arrays))
    value = arrays[name]
    how = pick(rng, ("nan", "inf", "huge", "flat", "deep", "short", "empty", "ints", "renamed"))
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
    if rng.random() < 0.8:
        body["arrays"] = {n: list(v.shape) for n, v in arrays.items()}
    path.write_text(json.dumps(body), encoding="utf-8")


def damage_depth(path: Path, depth: int) -> None:
    """Lists in lists, deeper than any reader goes, in a record that is whole."""
    text = path.read_text(encoding="utf-8")
    deep = "[" * depth + "]" * depth
    path.write_text(text.replace('"values": {', f'"values": {{"deep": {deep}, ', 1))


def copied(path: Path, home: Path) -> Path:
    """A record with its arrays, and for a run its folder, in ``home``."""
    for beside in path.parent.iterdir():
        whole = path.name == "record.json" and beside.suffix in (".yaml", ".jsonl")
        if beside.stem == path.stem or whole:
            shutil.copy(beside, home / beside.name)
    return home / path.name


def case(number: int, home: Path) -> str:
    """Damage one record in ``home`` and report on it."""
    rng = np.random.default_rng([7, number])
    path = copied(pick(rng, RECORDS), home)
    what = rng.random()
    if what < 0.25 and path.with_suffix(".safetensors").exists():
        damage_arrays(rng, path)
    elif what < 0.4:
        file = pick(rng, sorted(home.iterdir()))
        file.write_bytes(damaged_bytes(rng, file.read_bytes()))
    elif what < 0.42:
        pick(rng, sorted(home.iterdir())).unlink()
    elif what < 0.44:
        damage_depth(path, pick(rng, (200, 990, 5000)))
    else:
        file = pick(rng, [path, *home.glob("*.jsonl"), *home.glob("*.yaml")])
        file.write_bytes(damaged_text(rng, file.read_bytes()))
    before = contents(home)
    given = home if rng.random() < 0.5 else path
    more = ["--formats", "svg", "--tables", "csv"] if rng.random() < 0.1 else []
    code, _ = command(["report", str(given), "--quiet", *more])
    after = contents(home)
    made = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert before.items() <= after.items()
    if code == 2:
        assert not made, made
        return "refused"
    assert {"report.html"} <= made <= {"report.html", "figures", "tables"}, made
    return "page"


def check(numbers: range, home: Path) -> None:
    met, wrong = run_cases(case, numbers, home)
    assert not wrong, "\n\n".join(wrong)
    assert met["page"] > len(numbers) / 10 < met["refused"], met  # or the cases say little


def test_a_damaged_record_is_a_page_or_one_line(tmp_path):
    check(range(150), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_damaged_records_are_a_page_or_one_line(tmp_path):
    check(range(1000, 3000), tmp_path)
