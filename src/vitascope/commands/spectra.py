"""``vitascope study spectra``: compare the Hessian spectra of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope.commands import fields
from vitascope.commands.inspect import Inspect
from vitascope.commands.result import Result, with_figures
from vitascope.progress import Progress
from vitascope.settings import Count, Processes, Seed, Tolerance, Within, made_from
from vitascope.threads import use_threads


@dataclass(frozen=True, kw_only=True)
class Spectra:
    """Compare how convex and how sharp the loss of several runs is, by their Hessian spectra.

    Fig. 1c and 4 of arXiv 2202.06709: the largest eigenvalues, mini-batch by mini-batch, their
    share below zero (NEP) and the mean of the positive ones (APE), each run against the first.
    If it is interrupted, the same command continues.

    Examples:
      vitascope train --model vit_micro --data digits --set "keep_epochs=[1,5]" --out runs/vit
      vitascope train --model resnet_micro --data digits --set "keep_epochs=[1,5]" --out runs/resnet
      vitascope study spectra runs/vit runs/resnet --epochs 1 5 --processes 2 --out runs/spectra
    """

    runs: Annotated[tuple[str, ...], Positional, arg(metavar="RUN [RUN ...]")]
    """Folders of runs; the others are compared with the first."""
    epochs: tuple[Annotated[int, Within(0)], ...] = ()
    """Epochs whose weights the runs kept (keep_epochs); the final weights when left out."""
    batches: Count = Inspect.batches
    """Mini-batches of 16 augmented training images."""
    eigenvalues: Count = Inspect.eigenvalues
    """Eigenvalues of largest magnitude per mini-batch."""
    tolerance: Tolerance = Inspect.tolerance
    """Relative error at which an eigenvalue counts as found."""
    batch_norm: Literal["running", "batch"] = Inspect.batch_norm
    """Which statistics BatchNorm uses."""
    seed: Seed = 0
    """Decides the mini-batches."""
    out: Path = Path("runs/spectra")
    """Folder for records and figures."""
    threads: fields.Threads = None
    processes: Processes = 1
    """Mini-batches at a time."""
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Spectra) -> Result:
    """Compare the Hessian spectra of runs."""
    use_threads(options.threads)
    from vitascope.inspection.curvature import Curvature
    from vitascope.inspection.spectra import spectra
    from vitascope.report.tables.searches import spectra_table
    from vitascope.report.tables.table import as_text

    curvature = made_from(
        options, Curvature, num_batches=options.batches, num_eigenvalues=options.eigenvalues
    )
    with Progress("spectra", quiet=options.quiet or options.json) as bar:
        answer = spectra(
            options.runs,
            options.out,
            bar.show,
            epochs=options.epochs,
            seed=options.seed,
            curvature=curvature,
        )
    return with_figures("spectra", answer, f"{as_text(spectra_table(answer))}\n", options.out)
