"""Break the code in 100 random places, one at a time, and count how often a test fails.

    make coverage                     # once: which test runs which line
    .venv/bin/python scripts/mutants.py --count 100 --seed 0

Every mutant changes one operator or constant of ``src/`` in a copy of the project. Against it run
the tests of ``make test`` that run the changed line, the most specific ones first; a line that no
test runs is not caught. With ``--slow`` the tests marked slow that the coverage file knows run too:
so a suite from which tests were moved is compared with the one before.

About 20 minutes for 100 mutants on two cores.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from coverage.numbits import numbits_to_nums

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "docs", "benchmarks", "scripts", "pyproject.toml", "README.md")
OPERATORS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the source between two places becomes other text."""

    file: str
    line: int
    start: int  # byte offsets in the file
    end: int
    before: str
    after: str


def changes(node: ast.AST) -> ast.AST | None:
    """The node with one operator or constant changed; None if it has none."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        return ast.Compare(
            node.left, [OPERATORS[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        text = any(isinstance(side, ast.Constant | ast.JoinedStr) and not _number(side)
                   for side in (node.left, node.right))  # fmt: skip
        return None if text else ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(OPERATORS[type(node.op)](), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if _number(node):
        return ast.Constant(node.value + 1)  # type: ignore[attr-defined]
    return None


def _number(node: ast.AST) -> bool:
    plain = isinstance(node, ast.Constant) and not isinstance(node.value, bool)
    return plain and isinstance(node.value, int | float)  # type: ignore[attr-defined]


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file; annotations and code for type checkers are left alone."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    found: list[Mutant] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.JoinedStr):  # Python 3.11 does not know where its parts are
            return
        changed = changes(node)
        if changed is not None:
            start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            found.append(
                Mutant(
                    file=str(path.relative_to(ROOT)),
                    line=node.lineno,  # type: ignore[attr-defined]
                    start=start,
                    end=end,
                    before=source.encode()[start:end].decode(),
                    after=f"({ast.unparse(ast.fix_missing_locations(changed))})",
                )
            )
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_params", "format_spec"):
                continue
            for each in child if isinstance(child, list) else [child]:
                if isinstance(each, ast.AST):
                    visit(each)

    visit(ast.parse(source))
    return found


def tests_by_line(database: Path) -> tuple[dict[str, dict[int, set[str]]], dict[str, int]]:
    """For each file its lines with the tests that run them, and how many lines a test runs."""
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, int] = defaultdict(int)
    connection = sqlite3.connect(database)
    query = (
        "select path, context, fromno, tono from arc join file on file.id = arc.file_id "
        "join context on context.id = arc.context_id"
    )
    rows = [(p, c, {abs(a), abs(b)}) for p, c, a, b in connection.execute(query)]
    if not rows:
        query = query.replace("fromno, tono from arc", "numbits from line_bits")
        query = query.replace("arc.", "line_bits.")
        rows = [(p, c, set(numbits_to_nums(n))) for p, c, n in connection.execute(query)]
    for path, context, numbers in rows:
        test = context.rpartition("|")[0]
        if not test:
            continue
        file = f"src/{path.partition('/src/')[2]}"
        for number in numbers:
            lines[file][number].add(test)
        sizes[test] += len(numbers)
    return lines, sizes


class Tests:
    """The tests that a mutant must pass."""

    def __init__(self, database: Path, most: int):
        self.by_line, self.sizes = tests_by_line(database)
        self.most = most

    def of(self, mutant: Mutant) -> list[str]:
        """The most specific tests that run the line; of a line run at import, those of its file."""
        own = self.by_line.get(mutant.file, {})
        tests = own.get(mutant.line) or {test for line in own.values() for test in line}
        return sorted(tests, key=lambda test: (self.sizes[test], test))[: self.most]


def is_caught(mutant: Mutant, tests: list[str], folder: Path, marks: str) -> bool:
    """Whether a test fails in a copy of the project with this change."""
    if not tests:
        return False
    path = folder / mutant.file
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, "--timeout=300"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=900,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_bytes(source)
    return done.returncode not in (0, 5)  # 5: none of these tests has the marks


def main() -> None:
    """Draw, run, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument(
        "--coverage", type=Path, default=ROOT / ".coverage", help="of make coverage"
    )
    parser.add_argument("--tests", type=int, default=40, help="most tests for one mutant")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="tests marked slow, too")
    parser.add_argument("--out", type=Path, help="JSON file of all mutants and what became of them")
    args = parser.parse_args()
    files = sorted((ROOT / "src").rglob("*.py"))
    population = [mutant for path in files for mutant in mutants_of(path)]
    drawn = random.Random(args.seed).sample(population, args.count)
    tests = Tests(args.coverage, args.tests)
    print(f"{len(population):,} possible mutants, {args.count} drawn with seed {args.seed}")
    rows: list[dict[str, object]] = []

    def run(share: list[Mutant]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name in COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, folder / name)
                elif (ROOT / name).exists():
                    shutil.copy(ROOT / name, folder / name)
            for mutant in share:
                own = tests.of(mutant)
                caught = is_caught(mutant, own, folder, "not slow")
                by_slow = args.slow and not caught and is_caught(mutant, own, folder, "slow")
                rows.append({**asdict(mutant), "caught": caught, "caught by slow": by_slow})
                word = "caught" if caught else "caught by a slow test" if by_slow else "SURVIVED"
                place = f"{mutant.file}:{mutant.line}"
                print(
                    f"{word:9} {place}: {mutant.before!r:.40} -> {mutant.after!r:.40}", flush=True
                )

    with ThreadPoolExecutor(args.processes) as pool:
        list(pool.map(run, [drawn[first :: args.processes] for first in range(args.processes)]))
    caught = sum(bool(row["caught"]) for row in rows)
    print(f"{caught} of {len(rows)} mutants are caught by make test")
    if args.slow:
        more = sum(bool(row["caught by slow"]) for row in rows)
        print(f"{caught + more} are caught by make test and the slow tests that were run")
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
