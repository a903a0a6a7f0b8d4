"""``vitascope study spectra``: compare the Hessian spectra of runs."""

from dataclasses import dataclass

from vitascope import option_types
from vitascope.commands.result import Result, with_figures
from vitascope.inspection.options import SpectraOptions
from vitascope.progress import Progress
from vitascope.threads import use_threads


@dataclass(frozen=True, kw_only=True)
class Spectra(SpectraOptions):
    """Compare how convex and how sharp the loss of several runs is, by their Hessian spectra.

    Fig. 1c and 4 of arXiv 2202.06709: the largest eigenvalues, mini-batch by mini-batch, their
    share below zero (NEP) and the mean of the positive ones (APE), each run against the first.
    If it is interrupted, the same command continues.

    Examples:
      vitascope train --model vit_micro --data digits --set "keep_epochs=[1,5]" --out runs/vit
      vitascope train --model resnet_micro --data digits --set "keep_epochs=[1,5]" --out runs/resnet
      vitascope study spectra runs/vit runs/resnet --epochs 1 5 --processes 2 --out runs/spectra
    """

    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Spectra) -> Result:
    """Compare the Hessian spectra of runs."""
    use_threads(options.threads)
    from vitascope.inspection.spectra import spectra
    from vitascope.report.sections.spectra import spectra_table
    from vitascope.table import as_text

    with Progress("spectra", quiet=options.quiet or options.json) as bar:
        answer = spectra(options, bar.show)
    return with_figures("spectra", answer, f"{as_text(spectra_table(answer))}\n", options.out)
