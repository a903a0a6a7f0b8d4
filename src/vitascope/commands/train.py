"""``vitascope train``: one model, one data set, one recipe, one folder; for any task."""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from vitascope import option_types
from vitascope.commands.engine import engine_of
from vitascope.commands.parsing import typed_line
from vitascope.commands.result import Result
from vitascope.errors import UserError
from vitascope.runs.options import EngineOptions
from vitascope.settings import Seed

if TYPE_CHECKING:
    from vitascope.training import Run


@dataclass(frozen=True, kw_only=True)
class Train(EngineOptions):
    """Train a model into a run folder; a run that was stopped resumes to bit-identical results.

    Examples:
      vitascope train --model convit_micro --data digits --recipe laptop --epochs 4 --out runs/a
      vitascope train --from runs/compare --out runs/final
      vitascope train --model convit_small --data imagenet:/data/imagenet --recipe deit \\
          --set augmentation.mixup=0 --out runs/b --resume
      vitascope train --model resnet18 --pretrained --data photos/ --recipe finetune --out runs/d
      torchrun --nproc-per-node 8 -m vitascope train --model convit_base --data ... --out runs/c
      vitascope train --task segmentation --model convit_small --data ade20k:/data/ade --out runs/d
      vitascope train --task vqa --model vilt_base+cb --data vqa:/data/vqa --out runs/e
    """

    common = (
        "model",
        "data",
        "out",
        "from_comparison",
        "recipe",
        "epochs",
        "image_size",
        "pretrained",
        "seed",
        "resume",
    )  # first in the help

    model: str | None = field(default=None, kw_only=False)
    """A model of ours or timm's: `vitascope models` lists them. NAME@FILE, or a run's folder,
    starts from their weights."""
    data: option_types.OptionalData = None
    out: Path
    """Folder for the run."""
    from_comparison: Annotated[Path | None, arg(aliases=["--from"])] = None
    """Train the model that the comparison in this folder recommends, on all training images and
    with the settings that it was compared with. Other options replace those settings."""
    task: Literal["classification", "segmentation", "vqa"] = "classification"
    """segmentation: a backbone under a head, in ADE20K's layout (ade20k:PATH), by its mean IoU;
    vqa: vilt_base or vilt_micro on VQAv2's layout (vqa:PATH), measured by the VQA score."""
    recipe: option_types.TaskRecipe = None
    epochs: option_types.Epochs = None
    fraction: float | None = None
    """Train on this share of each class; with scale_epochs in the recipe, epochs grow to match."""
    validation: float | None = None
    """Hold out this share of each class's training images, and measure on it instead of the test
    images."""
    fold: str | None = None
    """Measure on this fold of the training images, as WHICH/COUNT, and train on the others: 2/5
    (2/5/1 deals the images out anew, with seed 1). Where the source has no test images, the folds
    are of all images."""
    set: option_types.Changes = ()
    model_args: tuple[str, ...] = ()
    """Arguments of the model, as NAME=VALUE: num_gpsa_blocks=2 locality_strength=2; for
    segmentation also head=fpn width=128."""
    image_size: option_types.ImageSize = None
    pretrained: bool = False
    """Start from timm's pretrained weights for the model, with a new head for these classes."""
    weights: Path | None = None
    """Start from the weights in this file, with a new head; the same as --model NAME@FILE."""
    keep_head: bool = False
    """With pretrained weights: keep their head, which must be for these classes."""
    teacher: str | None = None
    """Distil from this timm model or run (with --distillation)."""
    distillation: Literal["none", "hard", "soft"] = "none"
    """Learn from the teacher's decisions (hard) or from its probabilities (soft)."""
    seed: Seed = 0
    """Decides the initial weights, the order of the images and the augmentation."""
    resume: bool = False
    """Continue the run in OUT, if there is one."""
    device: option_types.Device = None
    workers: option_types.WorkerCount = 0
    threads: option_types.Threads = None
    fsdp: bool = False
    """Shard the model over the processes of torchrun."""
    trackers: tuple[str, ...] | None = None
    """Experiment trackers that also get the metrics: tensorboard (when left out), wandb, mlflow,
    comet_ml, aim, clearml, dvclive, swanlab, trackio."""
    no_tracking: bool = False
    """Use no tracker: metrics are only in the run folder."""
    pictures: bool = False
    """Send the trackers pictures of attention maps, gates and nonlocality too, at about ten epochs
    spaced evenly on a log scale (tensorboard, wandb, aim, clearml, swanlab)."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


_ANY_TASK = (  # options of every task; the others are for classification
    *("task", "model", "data", "out", "recipe", "epochs", "changes", "model_args", "image_size"),
    *("seed", "resume", "device", "num_workers", "quiet"),
)


def run(options: Train) -> Result | None:
    """Train, and return how good the model is; None in other processes of the same run."""
    if options.from_comparison is not None:
        options = _recommended(options, options.from_comparison)
    missing = [f"--{name}" for name in ("model", "data") if getattr(options, name) is None]
    if missing:
        raise UserError(
            f"Required options were not provided: {', '.join(missing)} "
            "(or --from with the folder of a comparison)"
        )
    if options.task == "classification" and options.recipe in ("segmentation", "vqa"):
        raise UserError(
            f"the recipe {options.recipe} is for --task {options.recipe}; leave it out, or give "
            "another"
        )
    if options.pretrained and options.task == "classification":
        from vitascope.hub_access import check_weights_can_be_had

        check_weights_can_be_had([str(options.model)])
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes, the one that makes the folder
        from vitascope.training.run_folder.run import refuse_used

        refuse_used(options.out, options.resume)  # before torch is loaded
    if options.engine == "slurm":
        return _on_cluster(options)
    engine_of(options)  # refuses options of a cluster
    from vitascope.threads import use_threads

    use_threads(options.threads)
    given = dict(vars(options))
    for name in ("threads", "json", "from_comparison", *_CLUSTER):
        del given[name]
    given |= {"changes": given.pop("set"), "num_workers": given.pop("workers")}
    given["quiet"] = options.quiet or options.json
    if options.task == "classification":
        return _classification(options, given)
    return _other(options, given)


_CLUSTER = tuple(each.name for each in dataclasses.fields(EngineOptions))


def _on_cluster(options: Train) -> Result:
    """Train in a SLURM job, and wait for it."""
    from vitascope.runs.slurm import submit_command
    from vitascope.training import load_run

    usual: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(EngineOptions)}
    here = dataclasses.replace(options, **usual, resume=True, quiet=True, json=False)
    line = typed_line("train", here).removeprefix("vitascope ")
    submit_command(f"vitascope {line}", options.out.parent, engine_of(options))
    done = load_run(options.out)
    return _trained(done, "top-1" if done.metric == "top1" else done.metric)


def _recommended(options: Train, folder: Path) -> Train:
    """Fill in the model, images and settings that a comparison recommends."""
    from vitascope.training.run_folder.run import recommendation_of

    advice = recommendation_of(folder)
    if advice is None:
        raise UserError(f"--from takes the folder of a comparison; {folder} holds none")
    settings = advice.get("train")
    if not isinstance(settings, dict):
        raise UserError(f"{folder} does not say how to train its model; make the comparison again")
    names = {each.name for each in dataclasses.fields(Train)}
    usual = {each.name: each.default for each in dataclasses.fields(Train)}
    given = {name: value for name, value in settings.items() if name in names and value}
    if options.model is None and not _opens_no_code(str(given.get("model", ""))):
        raise UserError(f"the model of {folder} is a Python function; give it with --model")
    for name in given:
        own = getattr(options, name)
        if name in ("set", "model_args"):
            given[name] = (*map(str, given[name]), *own)
        elif own != usual[name]:
            given[name] = own
    return dataclasses.replace(options, **given)


def _opens_no_code(model: str) -> bool:
    """Return whether a model's name refers to weights alone, not to a Python function."""
    from vitascope.loading.opening import is_named, split_file

    return is_named(model) or Path(model).is_dir() or split_file(model)[1] is not None


def _classification(options: Train, given: dict[str, Any]) -> Result | None:
    from vitascope.runs.train_model import train_once

    del given["task"], given["no_tracking"], given["pictures"]
    given |= {"trackers": () if options.no_tracking else options.trackers}
    if options.pictures:
        from vitascope.report.exports import pictures

        given["draw"] = pictures
    done = train_once(**given | {"recipe": options.recipe or "laptop"})
    return None if done is None else _trained(done, "top-1")


def _other(options: Train, given: dict[str, Any]) -> Result:
    from vitascope.report.sections.task import METRICS
    from vitascope.runs.tasks.training import train_task_once

    usual = {field.name: field.default for field in dataclasses.fields(Train)}
    for name in sorted(set(given) - set(_ANY_TASK)):
        if given.pop(name) != usual[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{option} is for classification; leave it out of --task {options.task}"
            )
    done = train_task_once(**given | {"recipe": options.recipe or options.task})
    return _trained(done, METRICS[done.metric])


def _trained(run: "Run", metric: str) -> Result:
    """The result of a finished run."""
    value = 100 * run.final[run.metric]
    epochs = "1 epoch" if run.epochs == 1 else f"{run.epochs} epochs"
    return Result(
        records={},
        summary=f"{run.folder}: {metric} {value:.2f} % after {epochs}, {run.seconds:.0f} s",
        values={"folder": str(run.folder), **run.final},
        rows=run.metrics,
        best=run.config["model"]["name"],
        run=run.folder,
    )
