"""``vitascope compare``: which model, with how much locality, for these images?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope import option_types
from vitascope.commands.engine import engine_of
from vitascope.commands.result import FORMATS, Result
from vitascope.comparison.options import CompareOptions
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.runs.options import EngineOptions

if TYPE_CHECKING:
    from vitascope.record import Record


@dataclass(frozen=True, kw_only=True)
class Compare(CompareOptions, EngineOptions):
    """Find out which model, with how much built-in locality, suits your images.

    Trains every model on fractions of the images with several seeds, and answers with a table,
    figures and one recommendation on a page. If it is interrupted, the same command continues.

    Examples:
      vitascope compare --data digits
      vitascope compare --data photos/ --image-size 64 --fractions 0.1 0.3 1 --seeds 0 1 2 --out c
      vitascope compare --data photos/ --image-size 64 --folds 5 --metric balanced --budget 2h
      vitascope compare --data photos/ --image-size 64 --until decided --budget 2h
      vitascope compare --data photos/ --models vit_micro convit_micro swin_tiny_patch4_window7_224
      vitascope compare --data photos/ --pretrained --probe-only
      vitascope compare --data photos/ --pretrained --until decided --budget 1h
      vitascope compare --data photos/ --pretrained --models resnet18 tf_efficientnet_lite0@a.pt
      vitascope compare --data photos/ --models vit_mini convit_mini --patch-sizes 2 4
    """

    common = (
        "data",
        "models",
        "pretrained",
        "image_size",
        "budget",
        "seeds",
        "epochs",
        "out",
    )  # first in the help

    out: Path = Path("runs/compare")
    """Folder for runs, record and report."""
    processes: option_types.RunsAtATime = None
    figures: bool = False
    """Also write the page's figures as PNG, SVG and PDF, for a paper."""
    print_commands: bool = False
    """Print one `vitascope train` per run, for a cluster's scheduler, and stop."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Compare) -> Result:
    """Train the models, or probe pretrained ones, and recommend the one that suits the images."""
    if options.pretrained:
        return _pretrained(options)
    if options.probe_only:
        raise UserError("--probe-only is for --pretrained; give that too")
    if options.budget is not None:  # before torch is loaded
        from vitascope.comparison.budget import require_seeds, seconds_from

        seconds_from(options.budget)
        require_seeds(options.seeds)
    if options.print_commands:
        if options.until or options.budget:
            given = "--until decided" if options.until else "--budget"
            raise UserError(
                f"{given} decides while it trains, and --print-commands prints all runs beforehand;"
                " leave one of them out"
            )
        from vitascope.comparison.compare import commands

        lines = commands(options, options.out)
        return Result(records={}, summary="\n".join(lines), values={"commands": lines})
    from vitascope import record
    from vitascope.comparison.compare import compare as compared
    from vitascope.report.sections.comparison import comparison_text
    from vitascope.report.sections.comparison_record import ComparisonRecord

    answer = compared(options, options.out, _engine(options))
    keys = (
        *("table", "crossings", "recommendation", "models", "chosen_by", "left_out", "rates"),
        "rounds",
    )
    explorers = sorted((options.out / "explorer").glob("*.json"))
    records = {f"explorer/{path.stem}": record.load(path.with_suffix("")) for path in explorers}
    text = comparison_text(ComparisonRecord(answer))
    return _with_page(options, {"compare": answer, **records}, text, keys)


def _with_page(
    options: Compare, records: Mapping[str, "Record"], text: str, keys: Sequence[str]
) -> Result:
    """The result of a comparison, whose record is the first; page and figures are written."""
    from vitascope.report.page import write_folder_page

    page = write_folder_page(options.out)
    result = Result(records=records, summary=f"{text}\n", values=None, written=page)
    values = {key: result.record.values[key] for key in keys}
    advice = result.record.values["recommendation"]
    run = None if advice.get("run") is None else Path(advice["run"])
    result = replace(result, best=advice["model"], run=run)
    if options.figures:
        from vitascope.report.exports import write_figures  # and matplotlib

        write_figures(result.report(), options.out, (*FORMATS, "pdf"))
    return replace(result, values={**values, "report": str(page)})


def _engine(options: Compare) -> Any:
    """Return where the runs are made.

    Raises:
        UserError: If a budget, which counts the time of this machine, is given for a cluster.
    """
    if options.engine != "local" and options.budget is not None:
        raise UserError("--budget counts the time of this machine; leave it out with --engine")
    return engine_of(options)


def _pretrained(options: Compare) -> Result:
    """Probe and fine-tune pretrained networks, and recommend one."""
    _refuse_others(options)
    check_weights_can_be_had(options.backbones)
    from vitascope.comparison.pretrained.answer import choose_pretrained
    from vitascope.report.sections.pretrained import pretrained_text

    with Progress("probing", quiet=options.quiet or options.json) as bar:
        answer = choose_pretrained(
            options,
            options.out,
            _engine(options),
            tell=bar.tell,
            on_image=bar.show,
        )
    keys = (
        *("probe", "race", "table", "recommendation", "order", "scratch", "fine_tuning"),
        *("chosen_by", "reported_on", "skipped", "rounds"),
    )
    return _with_page(options, {"pretrained": answer}, pretrained_text(answer), keys)


def _refuse_others(options: Compare) -> None:
    """Refuse what only trainings from scratch know.

    Raises:
        UserError: Naming the option.
    """
    if options.print_commands:
        raise UserError(
            "--print-commands is not for --pretrained: the probe decides what is trained"
        )
    for name in ("fractions", "tune", "rates", "match", "patch_sizes"):
        if getattr(options, name) != getattr(Compare, name):
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is for trainings from scratch; leave it out or --pretrained")
