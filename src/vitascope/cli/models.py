"""``vitascope models``: what there is, how large it is, and a first look at one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import tyro

from vitascope.cli.options import note, parse

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the models, or count their parameters and FLOPs.

    Examples:
      vitascope models                      the names of ours
      vitascope models 'swin*'              ours and timm's that match
      vitascope models --table              Table 1 of the ConViT paper, counted
      vitascope models --attention-map a.png   where ConViT's heads look before training
    """

    pattern: Annotated[str | None, tyro.conf.Positional] = None
    """Wildcard for the names; ours alone when it is left out."""
    table: bool = False
    """Parameters and multiply-adds beside the paper's; with a pattern, of the models that match."""
    attention_map: Path | None = None
    """Draw the positional attention of a fresh ConViT's heads to this file (.png, .svg, .pdf)."""
    out: Path | None = None
    """Also write the table as a record, OUT.json."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """No progress."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope models`` and answer."""
    args = parse(Models, "vitascope models", words)
    if args.attention_map is not None:
        from vitascope.report.figures.paper_renderer import write_figure
        from vitascope.report.instruments.heads import first_maps
        from vitascope.studies.inspection.first_maps import first_look

        print(write_figure(first_maps(first_look().to_record()), args.attention_map))
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
    rows = table1(chosen, progress=note("counting", len(chosen), quiet=args.quiet or args.json))
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
