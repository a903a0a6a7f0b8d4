"""``vitascope study buildup``: replace convolutions by attention where it helps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vitascope.commands import fields
from vitascope.commands.engine import this_machine
from vitascope.commands.result import Result, with_figures
from vitascope.progress import Progress
from vitascope.settings import Count, Seed, Within, made_from


@dataclass(frozen=True, kw_only=True)
class Buildup:
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

    data: fields.Data
    base: str = "resnet"
    """The network to start from, which must declare its stages, as all ResNets of ours do, also
    resnet_postact_50 and resnext_50; resnet: resnet_micro for images of at most 64 pixels,
    resnet_preact_50 for larger ones."""
    model_args: tuple[str, ...] = ()
    """Arguments of the base, as NAME=VALUE: heads=[1,2,4] head_dim=16 window=4."""
    recipe: fields.RecipeName = "laptop"
    epochs: fields.Epochs = None
    set: fields.Changes = ()
    seeds: tuple[Seed, ...] = (0, 1)
    """One run per seed and network; their mean decides."""
    validation: Annotated[float, Within(0, 1, open_low=True, open_high=True)] = 0.2
    """Share of each class's training images that is held out to decide on."""
    margin: Annotated[float, Within(0, 100, open_high=True)] = 0.0
    """Points of top-1 that a block must bring to be kept; a tie is not kept."""
    max_candidates: Count | None = None
    """Stop after this many networks besides the base."""
    image_size: fields.ImageSize = None
    out: Path = Path("runs/buildup")
    """Folder for runs, record and figure."""
    processes: fields.RunsAtATime = None
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Buildup) -> Result:
    """Search for the convolutions that should be attention."""
    from vitascope.comparison.buildup import BuildUp, build_up
    from vitascope.report.sections.buildup import says
    from vitascope.report.tables.searches import buildup_table
    from vitascope.report.tables.table import as_text
    from vitascope.runs.train_model import pairs, recipe_from

    question = made_from(
        options,
        BuildUp,
        model_args=pairs(options.model_args, "--model-args"),
        recipe=recipe_from(options.recipe, options.epochs, options.set),
    )
    with Progress(quiet=options.quiet or options.json) as bar:
        answer = build_up(question, options.out, this_machine(options), progress=bar.tell)
    summary = f"{as_text(buildup_table(answer))}\n\n{says(answer)}\n"
    return with_figures("buildup", answer, summary, options.out)
