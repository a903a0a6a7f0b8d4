"""``vitascope models``: list the models, count their parameters and FLOPs, time them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from time import perf_counter
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope import option_types
from vitascope.commands.result import Result
from vitascope.errors import UserError
from vitascope.progress import Progress
from vitascope.settings import Count


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the models, count their parameters and FLOPs, or time them.

    Examples:
      vitascope models                      the names of ours
      vitascope models 'swin*'              ours and timm's that match
      vitascope models --table              Table 1 of the ConViT paper, counted
      vitascope models --speed deit_small convit_small resnet50    images a second, by turns
      vitascope models --attention-map a.png   where positional heads look before training
    """

    pattern: Annotated[str | None, Positional, arg(metavar="PATTERN")] = None
    """Wildcard for the names; only ours when left out."""
    table: bool = False
    """Print parameters and multiply-adds next to the paper's, for the models that match."""
    attention_map: Path | None = None
    """Draw where four heads look before training (ConViT, Fig. 3) to this file (.png, .svg or
    .pdf)."""
    speed: tuple[str, ...] | None = None
    """Time these models in inference and in training, as Table 1 of the ConViT paper does. They
    take turns, and are compared with the first. Run nothing else on the machine meanwhile."""
    batch_size: Count = 128
    """--speed: images per batch."""
    rounds: Count = 5
    """--speed: turns of each model."""
    image_size: option_types.ModelSize = None
    device: option_types.Device = None
    threads: option_types.Threads = None
    out: Path | None = None
    """Also write the table as a record, OUT.json."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Models) -> Result:
    """List, count, time or draw."""
    if options.attention_map is not None:
        from vitascope.inspection.first_maps import initial_maps
        from vitascope.measure.attention.figures import first_maps
        from vitascope.report.figures.paper_renderer import write_figure

        path = write_figure(first_maps(initial_maps().to_record()), options.attention_map)
        return Result(records={}, summary=str(path), values={"path": str(path)})
    if options.table:
        return _table(options)
    if options.speed is not None:
        return _speed(options)
    from vitascope.loading.parameters import PARAMETERS

    if options.pattern is None:
        matching = sorted(PARAMETERS)
    else:
        from vitascope.loading.model_sizes import names

        matching = names(options.pattern)
    pattern = shlex.quote(options.pattern or "convit_*")
    note = f"Multiply-adds and the papers' numbers: vitascope models {pattern} --table"
    return Result(records={}, summary=_by_family(matching), values=matching, notes=(note,))


def _by_family(names: Sequence[str]) -> str:
    """A paragraph for each family of models, with the parameters of ours.

    >>> print(_by_family(["convit_tiny", "vit_micro", "convit_base"]))
    convit
      convit_base (87 M), convit_tiny (5.7 M)
    vit
      vit_micro (0.33 M)
    """
    from vitascope.loading.parameters import PARAMETERS

    families: dict[str, list[str]] = {}
    for name in sorted(names):
        count = PARAMETERS.get(name)
        size = "" if count is None else f"\u00a0({_millions(count)})"
        families.setdefault(name.partition("_")[0], []).append(f"{name}{size}")
    paragraphs = (
        f"{family}\n{fill(', '.join(members), 98, initial_indent='  ', subsequent_indent='  ')}"
        for family, members in families.items()
    )
    return "\n".join(paragraphs).replace("\u00a0", " ")


def _millions(count: int) -> str:
    """A number of parameters in millions, with two digits or more.

    >>> _millions(327_000), _millions(152_000_000)
    ('0.33\\xa0M', '152\\xa0M')
    """
    millions = count / 1e6
    return f"{millions:.0f}\u00a0M" if millions >= 10 else f"{millions:.2g}\u00a0M"


def _table(options: Models) -> Result:
    from vitascope.loading.model_sizes import PAPER, names, table1, to_record
    from vitascope.report.sections.models import model_sizes_table
    from vitascope.table import as_text

    started = perf_counter()
    chosen = [n for n in names(options.pattern) if options.pattern] or list(PAPER)
    with Progress("counting", len(chosen), quiet=options.quiet or options.json) as bar:
        rows = table1(chosen, progress=bar.step)
    record, values = to_record(rows, started), [row.__dict__ for row in rows]
    if options.out is not None:
        record.save(options.out)
    note = "FLOPs are multiply-adds for one image, as in the papers."
    summary = f"{as_text(model_sizes_table(values))}\n{note}"
    return Result(records={"table1": record}, summary=summary, values=values)


def _speed(options: Models) -> Result:
    """Time several models in turn and return their speeds."""
    assert options.speed is not None
    from vitascope.threads import use_threads

    if len(set(options.speed)) < len(options.speed):
        raise UserError(f"a model is named twice: {', '.join(options.speed)}")
    use_threads(options.threads)
    import torch

    from vitascope.loading.opening import open_model
    from vitascope.measure.throughput import by_turns
    from vitascope.report.sections.models import throughput_table
    from vitascope.table import as_text

    models = {
        name: open_model(name, image_size=options.image_size, device=options.device)
        for name in options.speed
    }
    sizes = {name: each.input_size(options.image_size) for name, each in models.items()}
    for name, each in models.items():
        device = next(each.model.parameters()).device
        each.try_image(torch.zeros(1, *sizes[name], device=device))
    with Progress("timing", 2, quiet=options.quiet or options.json) as bar:
        record = by_turns(
            {name: each.model for name, each in models.items()},
            sizes,
            batch_size=options.batch_size,
            rounds=options.rounds,
            progress=bar.step,
        ).to_record()
    if options.out is not None:
        record.save(options.out)
    return Result(
        records={"speed": record},
        summary=as_text(throughput_table(record)),
        values=dict(record.values),
    )
