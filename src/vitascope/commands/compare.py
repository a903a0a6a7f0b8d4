"""``vitascope compare``: which model, with how much locality, for these images?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitascope.commands import fields
from vitascope.commands.engine import EngineOptions, engine_of
from vitascope.commands.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.settings import Seed, Within, made_from

if TYPE_CHECKING:
    from vitascope.record import Record


# The candidates of --pretrained where none are named: timm's, small, from hard to no locality.
PRETRAINED_MODELS = (
    "resnet18.a1_in1k",
    "regnety_008.pycls_in1k",
    "convnext_tiny.fb_in1k",
    "efficientnet_b0.ra_in1k",
    "swin_tiny_patch4_window7_224.ms_in1k",
    "maxvit_tiny_tf_224.in1k",
    "caformer_s18.sail_in1k",
    "timm:convit_tiny.fb_in1k",
    "deit_tiny_patch16_224.fb_in1k",
    "vit_small_patch16_224.augreg_in21k_ft_in1k",
    "vit_small_patch14_dinov2.lvd142m",
    "vit_base_patch32_clip_224.openai",
)


@dataclass(frozen=True, kw_only=True)
class Compare(EngineOptions):
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

    data: fields.Data
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    """Models of ours or timm's; gains are relative to the first. With --pretrained: NAME,
    NAME@FILE, hf-hub:, local-dir:, hf:, a run's folder, package.module:function; twelve of timm's
    when left out."""
    patch_sizes: tuple[Annotated[int, Within(1, 1024)], ...] = ()
    """Try every transformer of ours with patches of these sides: NAME+patch2, NAME+patch4. A finer
    grid may bring accuracy and costs compute; the answer says how much."""
    pretrained: bool = False
    """Compare pretrained backbones instead of training from scratch: probe their frozen features,
    fine-tune the best (recipe finetune_small), and recommend one."""
    probe_only: bool = False
    """With --pretrained: stop after the probe."""
    groups: str | None = None
    """Images that belong together, such as a patient's or a video's: a column of csv:, or a pattern
    on file names (its first bracket, if there is one). A group is never divided by a split, and
    confidence intervals count it as one."""
    class_names: Path | None = None
    """A file of readable class names: lines of folder,name."""
    fractions: tuple[float, ...] = (0.1, 1.0)
    """Shares of each class to train on."""
    seeds: tuple[Seed, ...] = (0, 1, 2)
    """One run per seed; more seeds give smaller error bars."""
    margin: Annotated[float, Within(0, 100)] = 1.0
    """Points of top-1 that are too few to matter: a cheaper model is recommended if it is shown to
    lose no more than this to the best."""
    validation: Annotated[float, Within(0, 1, open_high=True)] = 0.2
    """Share of each class's training images that is held out to choose the model; test images only
    measure how good the choice is. 0: choose on the test images too."""
    folds: Annotated[int, Within(2, 100)] | None = None
    """Cross-validate over this many folds of the training images, instead of holding one validation
    share out; where the source has no test images, of all images. For few images: 5."""
    metric: Literal["top1", "balanced"] = "top1"
    """top1: share of images classified correctly; balanced: mean of that share over the classes."""
    tune: bool = False
    """Find a learning rate for each model first, in short runs with 1/4, 1/2, 1 and 2 times the
    recipe's, measured on validation images. Automatic where a --budget leaves time for it."""
    rates: tuple[str, ...] = ()
    """Learning rates of models, as NAME=VALUE, such as those that --tune found."""
    match: Literal["compute"] | None = None
    """Change the widths of our models so that all have as many multiply-adds as the first."""
    budget: str | None = None
    """Finish within this time: 90s, 20m, 2h. As far as needed, small fractions are left out first,
    then images are made smaller, then epochs go, never models or seeds; the output says which. Time
    that is left goes to further seeds, as with --until decided."""
    until: Literal["decided"] | None = None
    """decided: add seeds in rounds, only to the models still in question, until the answer is clear
    or no sensible number of seeds would make it so. The answer stays right 95 times in 100 however
    often the results are looked at."""
    recipe: fields.RecipeName = "laptop"
    epochs: fields.Epochs = None
    set: fields.Changes = ()
    image_size: fields.ImageSize = None
    out: Path = Path("runs/compare")
    """Folder for runs, record and report."""
    processes: fields.RunsAtATime = None
    figures: bool = False
    """Also write the page's figures as PNG, SVG and PDF, for a paper."""
    print_commands: bool = False
    """Print one `vitascope train` per run, for a cluster's scheduler, and stop."""
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Compare) -> Result:
    """Train the models, or probe pretrained ones, and recommend the one that suits the images."""
    if options.pretrained:
        return _pretrained(options)
    if options.probe_only:
        raise UserError("--probe-only is for --pretrained; give that too")
    if options.print_commands:
        if options.until or options.budget:
            given = "--until decided" if options.until else "--budget"
            raise UserError(
                f"{given} decides while it trains, and --print-commands prints all runs beforehand;"
                " leave one of them out"
            )
        from vitascope.comparison.compare import commands

        lines = commands(question_of(options), options.out)
        return Result(records={}, summary="\n".join(lines), values={"commands": lines})
    from vitascope import record
    from vitascope.comparison.compare import compare as compared
    from vitascope.comparison.planning import PlanOptions
    from vitascope.report.sections.comparison_record import ComparisonRecord
    from vitascope.report.tables.comparison import comparison_text

    plan = made_from(options, PlanOptions)
    answer = compared(question_of(options), options.out, _engine(options), plan)
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
    from vitascope.report.exports import write_figures
    from vitascope.report.page import write_folder_page

    page = write_folder_page(options.out)
    result = Result(records=records, summary=f"{text}\n", values=None, written=page)
    values = {key: result.record.values[key] for key in keys}
    advice = result.record.values["recommendation"]
    run = None if advice.get("run") is None else Path(advice["run"])
    result = replace(result, best=advice["model"], run=run)
    if options.figures:
        write_figures(result.report(), options.out, (*FORMATS, "pdf"))
    return replace(result, values={**values, "report": str(page)})


def _source_of(options: Compare) -> str:
    """The images, with their groups and class names."""
    from vitascope.data.sources.load import described

    names = None if options.class_names is None else str(options.class_names)
    return described(options.data, options.groups, names)


def question_of(options: Compare) -> Any:
    """Turn the options into the question of a comparison."""
    from vitascope.comparison.patch_sizes import at_patch_sizes
    from vitascope.comparison.question import Comparison, rates_from
    from vitascope.runs.train_model import recipe_from

    models = at_patch_sizes(options.models, options.patch_sizes)
    return made_from(
        options,
        Comparison,
        models=models,
        recipe=recipe_from(options.recipe, options.epochs, options.set),
        overrides=options.set,
        data=_source_of(options),
        rates=rates_from(options.rates, models),
    )


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
    check_weights_can_be_had(_models(options))
    from vitascope.comparison.pretrained.answer import choose_pretrained
    from vitascope.report.tables.pretrained import pretrained_text

    with Progress("probing", quiet=options.quiet or options.json) as bar:
        answer = choose_pretrained(
            pretrained_question(options),
            options.out,
            _engine(options),
            tell=bar.tell,
            on_image=bar.show,
        )
    keys = (
        *("probe", "race", "table", "recommendation", "order", "scratch", "fine_tuning"),
        *("chosen_by", "reported_on", "skipped"),
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
    if options.until:
        raise UserError(
            "--until decided is for trainings from scratch; with --pretrained give more --seeds, "
            "or --folds to choose by every training image"
        )
    for name in ("fractions", "tune", "rates", "match", "patch_sizes"):
        if getattr(options, name) != getattr(Compare, name):
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is for trainings from scratch; leave it out or --pretrained")


def _models(options: Compare) -> tuple[str, ...]:
    """The candidates; those of a comparison from scratch are the command's default."""
    return PRETRAINED_MODELS if options.models == Compare.models else options.models


def pretrained_question(options: Compare) -> Any:
    """Turn the options into the question of a comparison of pretrained networks."""
    from vitascope.comparison.budget import seconds_from
    from vitascope.comparison.pretrained.race import PretrainedQuestion
    from vitascope.runs.train_model import recipe_from

    name = "finetune_small" if options.recipe == Compare.recipe else options.recipe
    plan = recipe_from(name, options.epochs, options.set)
    if options.folds is not None or not options.validation:
        plan = plan.override(finish="last")  # the images that measure must not choose the epoch
    return made_from(
        options,
        PretrainedQuestion,
        data=_source_of(options),
        models=_models(options),
        recipe=plan,
        budget=None if options.budget is None else seconds_from(options.budget),
    )
