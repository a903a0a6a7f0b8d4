"""``vitascope models``: list the models, count their parameters and FLOPs, time them."""

import json
from collections.abc import Sequence
from time import perf_counter

from vitascope.cli.options import parse
from vitascope.errors import UserError
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
    elif args.speed:
        _speed(args)
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


def _speed(args: Models) -> None:
    """Time models by turns."""
    from vitascope.threads import use_threads

    if len(set(args.speed)) < len(args.speed):
        raise UserError(f"a model is named twice: {', '.join(args.speed)}")
    use_threads(args.threads)
    import torch

    from vitascope.measure.throughput import by_turns
    from vitascope.report.tables.models import throughput_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.session.models import open_session

    sessions = {
        name: open_session(name, image_size=args.image_size, device=args.device)
        for name in args.speed
    }
    sizes = {name: session.input_size() for name, session in sessions.items()}
    for name, session in sessions.items():
        session.try_image(torch.zeros(1, *sizes[name], device=session.device))
    with Progress("timing", 2, quiet=args.quiet or args.json) as bar:
        record = by_turns(
            {name: session.model for name, session in sessions.items()},
            sizes,
            batch_size=args.batch_size,
            rounds=args.rounds,
            progress=bar.step,
        ).to_record()
    if args.out is not None:
        record.save(args.out)
    if args.json:
        print(json.dumps(dict(record.values)))
        return
    print(as_text(throughput_table(record)))
