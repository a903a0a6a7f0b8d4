"""``vitascope bench``: measure speed against peers on this machine, as ratios."""

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from vitascope.cli.options import parse
from vitascope.progress import Progress
from vitascope.requests.bench import Bench
from vitascope.threads import use_threads

GRIDS = {"gpsa": (14, 32, 64), "neighborhood": (32, 64)}  # patches a side
MODELS = {
    "gpsa": ("convit_tiny", "convit_small", "convit_base"),
    "throughput": ("deit_tiny", "convit_tiny"),
}


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope bench`` and measure."""
    args = parse(Bench, "vitascope bench", words)
    if args.threads is not None:  # else a benchmark has its own, gpsa several
        use_threads(args.threads)
    from vitascope.report.tables.bench import bench_tables
    from vitascope.report.tables.writers import as_text

    given = {"batch_size": args.batch_size, "rounds": args.rounds, "threads": args.threads}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    result = _measured(args, chosen)
    record = result.to_record()
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps(dict(record.values)))
        return
    print("\n\n".join(as_text(table) for table in bench_tables(record)))


def _measured(args: Bench, chosen: dict[str, Any]) -> Any:
    """The measurement that was asked for, with a step of progress for each thing timed."""
    steps = {
        "capture": 3,
        "corruptions": 30,
        "gpsa": (2 if args.threads else 4) * len(args.models or MODELS["gpsa"])
        + len(args.grids or GRIDS["gpsa"]),
        "hessian": 5,
        "inspect": 3,
        "neighborhood": 6 * len(args.grids or GRIDS["neighborhood"]),
        "throughput": 2,
        "training": 2 * (args.rounds or 5) + 12,  # and the small models
    }
    if args.subject in GRIDS:
        chosen["grids"] = args.grids or GRIDS[args.subject]
    if args.subject in MODELS:
        chosen["models"] = args.models or MODELS[args.subject]
    if args.subject == "throughput":
        chosen |= {"image_size": args.image_size, "device": args.device}
    if args.subject == "gpsa":
        chosen["threads"] = (args.threads,) if args.threads else (1, 2)
    module = import_module(f"vitascope.bench.{args.subject}")
    with Progress("timing", steps[args.subject], quiet=args.quiet or args.json) as bar:
        return getattr(module, f"time_{args.subject}")(progress=bar.step, **chosen)
