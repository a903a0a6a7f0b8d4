"""``vitascope bench``: speed as a ratio, measured here and now."""

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from vitascope.cli.options import parse
from vitascope.progress import Progress
from vitascope.requests.bench import Bench
from vitascope.threads import use_threads

__all__ = ["run"]

GRIDS = {"gpsa": (14, 32, 64), "neighborhood": (32, 64)}  # patches a side


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope bench`` and measure."""
    args = parse(Bench, "vitascope bench", words)
    use_threads(args.threads)
    from vitascope.report.tables.terminal import table

    given = {"batch_size": args.batch_size, "rounds": args.rounds, "threads": args.threads}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    result = _measured(args, chosen)
    record = result.to_record()
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps(dict(record.values)))
        return
    speed = [[what, f"{mid:.2f}", f"{low:.2f}-{high:.2f}"] for what, low, mid, high in result.speed]
    print(table(["ours / peer", "speed", "quartiles"], speed))
    cost = [
        [what, f"{mid:.2f}", f"{low:.2f}-{high:.2f}"]
        for what, low, mid, high in record.values.get("cost", ())
    ]
    if cost:
        print(table(["what", "plain passes", "quartiles"], cost))
    rates = [
        [what, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.1f}"]
        for what, ours, theirs in record.values.get("rates", ())
    ]
    if rates:
        print(table(["images a second", "ours", "peer's", "ratio"], rates))
    reached = [
        [who, f"{100 * error:.2g} %", f"{100 * worst:.2g} %", f"{products:g}", f"{seconds:.1f}"]
        for who, error, worst, products, seconds in record.values.get("reached", ())
    ]
    if reached:
        print(table(["to an error of", "reached", "at worst", "products", "CPU seconds"], reached))
    sizes = [
        [grid, f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", f"{ours / theirs:.3f}"]
        for grid, ours, theirs in record.values.get("memory", ())
    ]
    if sizes:
        print(table(["memory", "our layer", record.config.get("peer", "timm's"), "ratio"], sizes))


def _measured(args: Bench, chosen: dict[str, Any]) -> Any:
    """The measurement that was asked for, with a step of progress for each thing timed."""
    steps = {
        "corruptions": 30,
        "gpsa": 2 * len(args.models) + len(args.grids or GRIDS["gpsa"]),
        "hessian": 5,
        "inspect": 3,
        "neighborhood": 6 * len(args.grids or GRIDS["neighborhood"]),
        "training": 2 * (args.rounds or 5),
    }
    if args.subject in GRIDS:
        chosen["grids"] = args.grids or GRIDS[args.subject]
    if args.subject == "gpsa":
        chosen["models"] = args.models
    module = import_module(f"vitascope.bench.{args.subject}")
    with Progress("timing", steps[args.subject], quiet=args.quiet or args.json) as bar:
        return getattr(module, f"time_{args.subject}")(progress=bar.step, **chosen)
