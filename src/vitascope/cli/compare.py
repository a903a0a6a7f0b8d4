"""``vitascope compare``: which model, with how much locality, for these images?"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitascope.cli.options import parse
from vitascope.settings import Count, Processes, Seed, Side

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Find out which model, with how much built-in locality, suits your images.

    Trains every model on fractions of the images with several seeds, side by side, and answers with
    a table, figures and one recommendation on a page. Interrupted, the same command goes on.

    Examples:
      vitascope compare --data digits
      vitascope compare --data photos/ --image-size 64 --fractions 0.1 0.3 1 --seeds 0 1 2 --out c
      vitascope compare --data photos/ --models vit_micro convit_micro swin_tiny_patch4_window7_224
    """

    data: str
    """digits, a folder of classes, cifar10:PATH, idx:PATH, hf:NAME, wds:FILES or imagenet:PATH."""
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    """Models of ours or timm's; gains are relative to the first."""
    fractions: tuple[float, ...] = (0.1, 1.0)
    """Shares of each class to train on."""
    seeds: tuple[Seed, ...] = (0, 1)
    """One run a seed; more seeds, smaller error bars."""
    recipe: str = "laptop"
    """deit, deit_plus, cifar, broadcast, broadcast_base, laptop or finetune."""
    epochs: Count | None = None
    """Epochs on all images; the recipe's when left out. The warm-up keeps its share of them."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, as FIELD=VALUE."""
    image_size: Side | None = None
    """Resize the images to this side."""
    out: Path = Path("runs/compare")
    """Folder for runs, record and report."""
    processes: Processes | None = None
    """Runs at a time; one a core when left out."""
    figures: bool = False
    """Also write the page's figures as PNG, SVG and PDF, for a paper."""
    print_commands: bool = False
    """Print one `vitascope train` a run, for a cluster's scheduler, and stop."""
    json: bool = False
    """Print the table and the recommendation as JSON."""
    quiet: bool = False
    """No progress."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope compare`` and answer."""
    args = parse(Compare, "vitascope compare", words)
    from vitascope.studies.grid.comparison_cells import Comparison, commands
    from vitascope.studies.grid.one_training import recipe_from

    question = Comparison(
        data=args.data,
        models=args.models,
        fractions=args.fractions,
        seeds=args.seeds,
        recipe=recipe_from(args.recipe, args.epochs, args.set),
        image_size=args.image_size,
        overrides=args.set,
    )
    if args.print_commands:
        print("\n".join(commands(question, args.out)))
        return
    from vitascope.report.page import write_page
    from vitascope.studies.compare import compare

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    answer = compare(
        question,
        args.out,
        processes=(cores or 1) if args.processes is None else args.processes,
        quiet=args.quiet or args.json,
    )
    page = write_page(args.out, answer)
    if args.figures:
        from vitascope.report.folder_page import write_record_figures

        write_record_figures(args.out, {"compare": answer}, ("png", "svg", "pdf"))
    if args.json:
        keys = ("table", "crossings", "recommendation", "models")
        print(json.dumps({key: answer.values[key] for key in keys} | {"report": str(page)}))
        return
    from vitascope.report.tables.terminal import comparison

    print(comparison(answer))
    print(f"\n{page}")
