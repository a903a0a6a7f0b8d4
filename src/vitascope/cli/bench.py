"""``vitascope bench``: speed as a ratio, measured here and now."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitascope.cli.options import note, parse

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed against peers on this machine.

    Candidates take turns in one process; ratios above 1 mean faster than the peer. Give it a quiet
    machine.

    Examples:
      vitascope bench gpsa
      vitascope bench gpsa --models convit_tiny convit_small --threads 8 --out runs/bench-gpsa
    """

    subject: Annotated[Literal["gpsa"], tyro.conf.Positional]
    """What to measure."""
    models: tuple[str, ...] = ("convit_tiny",)
    """Networks to time at 224 px."""
    grids: tuple[int, ...] = (14, 32, 64)
    """Sides of the grids on which one layer is timed."""
    batch_size: int = 8
    """Images a pass."""
    rounds: int = 11
    """Turns that each candidate takes."""
    threads: int = 1
    """Threads of torch."""
    out: Path | None = None
    """Write a record, OUT.json."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """No progress."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope bench`` and measure."""
    args = parse(Bench, "vitascope bench", words)
    from vitascope.bench.gpsa import time_gpsa
    from vitascope.report.text import table

    steps = 2 * len(args.models) + len(args.grids)
    result = time_gpsa(
        models=args.models,
        grids=args.grids,
        batch_size=args.batch_size,
        rounds=args.rounds,
        threads=args.threads,
        progress=note("timing", steps, quiet=args.quiet or args.json),
    )
    record = result.to_record()
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps({"speed": result.speed, "memory": result.memory}))
        return
    speed = [[what, f"{mid:.2f}", f"{low:.2f}-{high:.2f}"] for what, low, mid, high in result.speed]
    print(table(["ours / peer", "speed", "quartiles"], speed))
    sizes = [
        [grid, f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", f"1/{theirs / ours:.0f}"]
        for grid, ours, theirs in result.memory
    ]
    print(table(["patches", "our layer", "timm's layer", "ratio"], sizes))
