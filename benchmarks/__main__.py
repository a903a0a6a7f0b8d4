"""Measure speed against peers on this machine: ``python -m benchmarks SUBJECT``.

Candidates take turns in one process; ratios above 1 mean faster than the peer. Run nothing else on
the machine meanwhile. The record goes to ``benchmarks/records/SUBJECT``, or where --out says.
"""

import argparse
import shlex
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import vitascope  # noqa: F401  (before timm: it repairs torchvision beside a CPU-only torch)
from benchmarks.tables import bench_tables
from vitascope.errors import UserError
from vitascope.settings import recorded_as
from vitascope.table import as_text
from vitascope.threads import use_threads

SUBJECTS = (
    *("capture", "corruptions", "gpsa", "growth", "hessian", "inspect", "neighborhood", "reading"),
    "training",
)
RECORDS = Path(__file__).parent / "records"


def main(arguments: list[str] | None = None) -> int:
    """Measure, keep a record, print its tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--models", nargs="+", help="gpsa: our ConViTs; inspect: timm's, or none")
    parser.add_argument("--images", type=int, help="inspect: images of each of the --models")
    parser.add_argument(
        "--grids", nargs="+", type=int, help="gpsa, growth, neighborhood: patches per side"
    )
    parser.add_argument("--batch-size", type=int, help="images per batch")
    parser.add_argument("--rounds", type=int, help="turns of each candidate")
    parser.add_argument("--threads", type=int, help="threads of torch; one, for gpsa one and two")
    parser.add_argument("--out", type=Path, help="the record, without .json")
    args = parser.parse_args(arguments)
    if args.threads is not None:
        use_threads(args.threads)
    measure = getattr(import_module(f"benchmarks.{args.subject}"), f"time_{args.subject}")
    given = {
        "models": args.models and tuple(args.models),
        "grids": args.grids and tuple(args.grids),
        "images": args.images,
        "batch_size": args.batch_size,
        "rounds": args.rounds,
        "threads": (args.threads,) if args.threads and args.subject == "gpsa" else args.threads,
    }
    options = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(options.keys() - signature(measure).parameters.keys())
    if unknown:
        parser.error(f"{args.subject} has no --{unknown[0].replace('_', '-')}")
    line = shlex.join(["python", "-m", "benchmarks", *(arguments or sys.argv[1:])])
    try:
        with recorded_as(line):
            record = measure(progress=lambda stage: print(stage, file=sys.stderr), **options)
            record = record.to_record()
            record.save(args.out or RECORDS / args.subject)
    except UserError as error:
        parser.error(str(error))
    print("\n\n".join(as_text(table) for table in bench_tables(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
