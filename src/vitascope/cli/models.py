"""``vitascope models``: list the models, count parameters and FLOPs, draw first attention maps."""

import json
from collections.abc import Sequence
from time import perf_counter

from vitascope.cli.options import parse
from vitascope.progress import Progress
from vitascope.requests.models import Models


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope models`` and answer."""
    args = parse(Models, "vitascope models", words)
    if args.attention_map is not None:
        from vitascope.report.figures.paper_renderer import write_figure
        from vitascope.report.instruments.heads import first_maps
        from vitascope.studies.inspection.first_maps import initial_maps

        print(write_figure(first_maps(initial_maps().to_record()), args.attention_map))
    elif args.table:
        _table(args)
    else:
        from vitascope.studies.session.model_sizes import names

        found = names(args.pattern)
        print(json.dumps(found) if args.json else "\n".join(found))


def _table(args: Models) -> None:
    from vitascope.report.tables.models import model_sizes_table
    from vitascope.report.tables.writers import as_text
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
    print(as_text(model_sizes_table([row.__dict__ for row in rows])))
    print("FLOPs are multiply-adds for one image, as in the papers.")
