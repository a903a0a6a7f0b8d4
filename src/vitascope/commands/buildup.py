"""``vitascope study buildup``: replace convolutions by attention where it helps."""

from dataclasses import dataclass
from pathlib import Path

from vitascope import option_types
from vitascope.commands.engine import this_machine
from vitascope.commands.result import Result, with_figures
from vitascope.comparison.options import BuildupOptions
from vitascope.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Buildup(BuildupOptions):
    """Replace convolutions by attention where it helps: the build-up rule of AlterNet.

    From the end of the network, every second conv block becomes an MSA block; one that does not
    raise the accuracy on held-out training images is taken back, and the search goes on at the
    end of an earlier stage. Ends with a table and Fig. 12a of the paper (arXiv 2202.06709).
    If it is interrupted, the same command continues.

    Examples:
      vitascope study buildup --base resnet --data digits
      vitascope study buildup --data photos/ --image-size 32 --seeds 0 1 2 --margin 0.5 --out b
      vitascope study buildup --base resnet_preact_50 --model-args "depths=[3,4,6,4]" stem=cifar \\
          --data cifar100:/data/cifar100 --recipe cifar --seeds 0
    """

    out: Path = Path("runs/buildup")
    """Folder for runs, record and figure."""
    processes: option_types.RunsAtATime = None
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Buildup) -> Result:
    """Search for the convolutions that should be attention."""
    from vitascope.comparison.buildup import build_up
    from vitascope.report.sections.buildup import buildup_table, buildup_text
    from vitascope.table import as_text

    with Progress(quiet=options.quiet or options.json) as bar:
        answer = build_up(options, options.out, this_machine(options), progress=bar.tell)
    summary = f"{as_text(buildup_table(answer))}\n\n{buildup_text(answer)}\n"
    return with_figures("buildup", answer, summary, options.out)
