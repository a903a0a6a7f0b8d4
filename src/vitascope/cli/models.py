"""``vitascope models``: what there is, how large it is, and a first look at one."""

import json
from collections.abc import Sequence
from time import perf_counter

from vitascope.cli.options import parse
from vitascope.progress import Progress
from vitascope.requests.models import Models

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope models`` and answer."""
    args = parse(Models, "vitascope models", words)
    if args.attention_map is not None:
        from vitascope.report.figures.first_maps import draw_first_look
        from vitascope.studies.inspection.first_maps import first_look

        print(draw_first_look(first_look().to_record(), args.attention_map))
    elif args.table:
        _table(args)
    else:
        from vitascope.studies.session.model_sizes import names

        found = names(args.pattern)
        print(json.dumps(found) if args.json else "\n".join(found))


def _table(args: Models) -> None:
    from vitascope.report.tables.terminal import table
    from vitascope.studies.session.model_sizes import PAPER, names, table1, to_record

    started = perf_counter()
    chosen = [n for n in names(args.pattern) if args.pattern] or list(PAPER)
    with Progress("counting", len(chosen), quiet=args.quiet or args.json) as bar:
        rows = table1(chosen, progress=bar.step)
    record = to_record(rows, started)
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps([row.__dict__ for row in rows]))
        return
    head = ["model", "params", "paper", "GFLOPs", "paper", "paper top-1"]
    body = [
        [
            row.name,
            f"{row.parameters / 1e6:.1f}M",
            "" if row.paper_parameters is None else f"{row.paper_parameters:g}M",
            f"{row.multiply_adds / 1e9:.2f}",
            "" if row.paper_flops is None else f"{row.paper_flops:g}",
            "" if row.paper_top1 is None else f"{row.paper_top1}",
        ]
        for row in rows
    ]
    print(table(head, body))
    print("FLOPs are multiply-adds for one image, as in the papers.")
