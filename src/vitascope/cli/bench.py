"""``vitascope bench``: speed as a ratio, measured here and now."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vitascope.cli.options import note, parse
from vitascope.cli.threads import use_threads
from vitascope.settings import Count, Processes, Within

__all__ = ["run"]

Grid = Annotated[int, Within(1, 1024)]  # patches a side


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed against peers on this machine.

    Candidates take turns in one process; ratios above 1 mean faster than the peer. Give it a quiet
    machine.

    Examples:
      vitascope bench gpsa
      vitascope bench gpsa --models convit_tiny convit_small --threads 8 --out runs/bench-gpsa
      vitascope bench training
      vitascope bench inspect
      vitascope bench neighborhood --grids 32 64
      vitascope bench corruptions
      vitascope bench hessian
    """

    subject: Annotated[
        Literal["corruptions", "gpsa", "hessian", "inspect", "neighborhood", "training"],
        tyro.conf.Positional,
    ]
    """What to measure."""
    models: tuple[str, ...] = ("convit_tiny",)
    """gpsa: networks to time at 224 px."""
    grids: tuple[Grid, ...] | None = None
    """Sides of the grids on which one layer is timed; 14 32 64 for gpsa, 32 64 for neighborhood."""
    batch_size: Count | None = None
    """Images a pass; 8 for gpsa, 16 for hessian, 64 for inspect, 1 for neighborhood, 128 for
    training, 4 for corruptions at 224 px."""
    rounds: Count | None = None
    """Turns that each candidate takes; 11 for gpsa, 3 for hessian, 7 for neighborhood, 5 for the
    others."""
    threads: Processes = 1
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
    use_threads(args.threads)
    from vitascope.report.tables.bench import bench_tables
    from vitascope.report.tables.writers import as_text

    given = {"batch_size": args.batch_size, "rounds": args.rounds, "threads": args.threads}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    result = _MEASURE[args.subject](args, chosen)
    record = result.to_record()
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps(dict(record.values)))
        return
    print("\n\n".join(as_text(table) for table in bench_tables(record)))


def _corruptions(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.corruptions import time_corruptions

    return time_corruptions(progress=note("timing", 30, quiet=args.quiet or args.json), **chosen)


def _gpsa(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.gpsa import time_gpsa

    grids = args.grids or (14, 32, 64)
    bar = note("timing", 2 * len(args.models) + len(grids), quiet=args.quiet or args.json)
    return time_gpsa(models=args.models, grids=grids, progress=bar, **chosen)


def _hessian(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.hessian import time_hessian

    bar = note("timing", 5, quiet=args.quiet or args.json)
    return time_hessian(progress=bar, **chosen)


def _inspect(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.inspect import time_inspect

    return time_inspect(progress=note("timing", 3, quiet=args.quiet or args.json), **chosen)


def _neighborhood(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.neighborhood import time_neighborhood

    grids = args.grids or (32, 64)
    bar = note("timing", 6 * len(grids), quiet=args.quiet or args.json)
    return time_neighborhood(grids=grids, progress=bar, **chosen)


def _training(args: Bench, chosen: dict[str, Any]) -> Any:
    from vitascope.bench.training import time_training

    bar = note("timing", 2 * (args.rounds or 5), quiet=args.quiet or args.json)
    return time_training(progress=bar, **chosen)


_MEASURE: dict[str, Callable[[Bench, dict[str, Any]], Any]] = {
    "corruptions": _corruptions,
    "gpsa": _gpsa,
    "hessian": _hessian,
    "inspect": _inspect,
    "neighborhood": _neighborhood,
    "training": _training,
}
