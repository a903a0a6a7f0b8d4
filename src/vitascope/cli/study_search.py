"""The studies with options of their own: ``vitascope study buildup`` and ``study spectra``."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vitascope.cli.options import progress
from vitascope.cli.threads import use_threads
from vitascope.settings import Count, Processes, Seed, Side, Tolerance, Within

__all__ = ["STUDIES"]


@dataclass(frozen=True, kw_only=True)
class Buildup:
    """Replace convolutions by attention where it helps: the build-up rule of AlterNet.

    From the end of the network, every second conv block becomes an MSA block; one that does not
    raise the accuracy on held-out training images is taken back, and the search goes on at the
    end of an earlier stage. Ends with a table and Fig. 12a of the paper (arXiv 2202.06709).
    Interrupted, the same command goes on.

    Examples:
      vitascope study buildup --base resnet --data digits
      vitascope study buildup --data photos/ --image-size 32 --seeds 0 1 2 --margin 0.5 --out b
      vitascope study buildup --base resnet_preact_50 --model-args "depths=[3,4,6,4]" stem=cifar \\
          --data cifar100:/data/cifar100 --recipe cifar --seeds 0
    """

    data: str
    """digits, a folder of classes, cifar10:PATH, idx:PATH, hf:NAME, wds:FILES or imagenet:PATH."""
    base: str = "resnet"
    """The network to start from, one whose stages are declared; resnet: resnet_micro for images of
    at most 64 pixels, resnet_preact_50 for larger ones."""
    model_args: tuple[str, ...] = ()
    """Arguments of the base, as NAME=VALUE: heads=[1,2,4] head_dim=16 window=4."""
    recipe: str = "laptop"
    """deit, deit_plus, cifar, broadcast, broadcast_base, laptop or finetune."""
    epochs: Count | None = None
    """Epochs of every network; the recipe's when left out. The warm-up keeps its share of them."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, as FIELD=VALUE."""
    seeds: tuple[Seed, ...] = (0, 1)
    """One run a seed and network; their mean decides."""
    validation: float = 0.2
    """Share of each class's training images that is held out to decide by."""
    margin: float = 0.0
    """Points of top-1 that a block must bring to be kept; a tie is not kept."""
    max_candidates: Count | None = None
    """Stop after this many networks besides the base."""
    image_size: Side | None = None
    """Resize the images to this side."""
    out: Path = Path("runs/buildup")
    """Folder for runs, record and figure."""
    processes: Processes | None = None
    """Runs at a time; one a core when left out."""
    json: bool = False
    """Print the record's values as JSON."""
    quiet: bool = False
    """No progress."""


def _buildup(args: Buildup) -> None:
    from vitascope.report.sections.buildup import says, tabulated
    from vitascope.studies.buildup import build_up
    from vitascope.studies.grid.buildup_cells import BuildUp
    from vitascope.studies.grid.one_training import pairs, recipe_from

    quiet = args.quiet or args.json
    answer = build_up(
        BuildUp(
            data=args.data,
            base=args.base,
            model_args=pairs(args.model_args, "--model-args"),
            recipe=recipe_from(args.recipe, args.epochs, args.set),
            seeds=args.seeds,
            validation=args.validation,
            margin=args.margin,
            max_candidates=args.max_candidates,
            image_size=args.image_size,
        ),
        args.out,
        processes=_cores() if args.processes is None else args.processes,
        quiet=quiet,
        progress=(lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr)),
    )
    figures = _figures(args.out, answer)
    if args.json:
        print(json.dumps({**answer.values, "figures": figures}))
        return
    print(f"{tabulated(answer)}\n\n{says(answer)}\n\n{figures[0]}")


@dataclass(frozen=True, kw_only=True)
class Spectra:
    """Compare how convex and how sharp the loss of several runs is, by their Hessian spectra.

    Fig. 1c and 4 of arXiv 2202.06709: the largest eigenvalues, mini-batch by mini-batch, their
    share below zero (NEP) and the mean of the positive ones (APE), each run against the first.
    Interrupted, the same command goes on.

    Examples:
      vitascope train --model vit_micro --data digits --set "keep_epochs=[1,5]" --out runs/vit
      vitascope train --model resnet_micro --data digits --set "keep_epochs=[1,5]" --out runs/resnet
      vitascope study spectra runs/vit runs/resnet --epochs 1 5 --processes 2 --out runs/spectra
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders of runs; the first is what the others are compared with."""
    epochs: tuple[Annotated[int, Within(0)], ...] = ()
    """Epochs whose weights the runs kept (keep_epochs); the last weights when left out."""
    batches: Count = 16
    """Mini-batches of 16 augmented training images."""
    eigenvalues: Count = 5
    """Eigenvalues of largest magnitude a mini-batch."""
    tolerance: Tolerance = 1e-3
    """Relative error at which an eigenvalue counts as found."""
    batch_norm: Literal["running", "batch"] = "running"
    """Statistics of BatchNorm."""
    seed: Seed = 0
    """Decides the mini-batches."""
    out: Path = Path("runs/spectra")
    """Folder for records and figures."""
    threads: Count | None = None
    """Threads of torch; OMP_NUM_THREADS, or one a core, when left out. Records keep them."""
    processes: Processes = 1
    """Mini-batches side by side."""
    json: bool = False
    """Print the record's values as JSON."""
    quiet: bool = False
    """No progress."""


def _spectra(args: Spectra) -> None:
    use_threads(args.threads)
    from vitascope.report.sections.spectra import HEAD, rows
    from vitascope.report.tables.terminal import table
    from vitascope.studies.inspection.curvature import Curvature
    from vitascope.studies.inspection.spectra import spectra

    plan = Curvature(
        num_batches=args.batches,
        num_eigenvalues=args.eigenvalues,
        tolerance=args.tolerance,
        batch_norm=args.batch_norm,
        processes=args.processes,
    )
    bar, close = progress("spectra", quiet=args.quiet or args.json)
    try:
        answer = spectra(
            args.runs, args.out, epochs=args.epochs, plan=plan, seed=args.seed, on_step=bar
        )
    finally:
        close()
    figures = _figures(args.out, answer)
    if args.json:
        print(json.dumps({**answer.values, "figures": figures}))
        return
    print(f"{table(HEAD, rows(answer))}\n\n{figures[0]}")


def _figures(folder: Path, answer: Any) -> list[str]:
    from vitascope.report.folder_page import write_record_figures

    written = write_record_figures(folder, {answer.kind: answer}, ("png", "svg", "pdf"))
    return [str(path) for path in written]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


STUDIES: dict[str, tuple[type[Any], Callable[[Any], None]]] = {  # options, whose docstring is help
    "buildup": (Buildup, _buildup),
    "spectra": (Spectra, _spectra),
}
