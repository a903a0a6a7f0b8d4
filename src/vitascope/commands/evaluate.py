"""``vitascope evaluate``: accuracy, likelihood and calibration, or robustness."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitascope.commands import fields
from vitascope.commands.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.settings import Seed, Within, fields_of
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from torch import nn

    from vitascope.inspection.robustness import Trial


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure top-1, top-5, NLL and calibration error; with --on, robustness.

    Classes of --data are matched to the run's by name; they may be some of them.

    --on takes occlusion, fgsm, pgd, frequency, corruptions and calibration. The same seed gives the
    same numbers.

    Examples:
      vitascope evaluate runs/a
      vitascope evaluate runs/a --data photos/ --split all --json
      vitascope evaluate runs/a --data pets/ --map-classes puppy=dog kitten=cat
      vitascope evaluate convit_tiny --pretrained --data imagenet-v2:/data/v2
      vitascope evaluate vit_micro --weights my.safetensors --data digits
      vitascope evaluate vit_micro@my.safetensors --model-args depth=8 \\
          --data digits
      vitascope evaluate runs/a --on occlusion,fgsm,frequency,corruptions,calibration --out robust
      vitascope evaluate runs/a --on fgsm pgd --epsilons 1/255 8/255 --steps 20
    """

    common = (
        "model",
        "data",
        "on",
        "pretrained",
        "split",
        "images",
        "image_size",
        "out",
    )  # first in the help

    model: fields.Model = field(kw_only=False)
    data: fields.TestData = None
    on: tuple[str, ...] = ()
    """Robustness to measure, with spaces or commas between the names."""
    weights: Path | None = None
    """File of weights for a model given by name."""
    pretrained: fields.TimmWeights = False
    model_args: fields.ModelArguments = ()
    map_classes: fields.ClassNames = ()
    split: Literal["test", "train", "all"] = "test"
    """Which images. Where the source has no test set, test is a fifth of them; all is every one."""
    images: int | None = None
    """How many of them, drawn with the seed; all when left out."""
    seed: Seed = 0
    """Decides the choice of images and all noise."""
    image_size: fields.ModelSize = None
    sizes: tuple[float, ...] | None = None
    """Occlusion: hidden share of each side; 0.25 0.5 0.75 when left out."""
    fill: Literal["black", "mean"] | None = None
    """Occlusion: black (pixel 0) or the mean (0 after normalisation); black when left out."""
    epsilons: tuple[str, ...] | None = None
    """FGSM, PGD: change of pixels between 0 and 1; 1/255 2/255 4/255 8/255 when left out."""
    against: Literal["label", "prediction"] | None = None
    """FGSM, PGD: drive the model away from the label or from its own prediction."""
    steps: int | None = None
    """PGD: gradient steps; 10 when left out."""
    frequencies: tuple[float, ...] | None = None
    """Frequency: centres of the windows in pi; 0.0 to 1.0 in steps of 0.1 when left out."""
    window: float | None = None
    """Frequency: width of the windows in pi; 0.1 when left out."""
    rms: float | None = None
    """Frequency: strength of the noise, for pixels between 0 and 1; 0.1 when left out."""
    clamp: bool = False
    """Frequency: clip noisy pixels, which spreads the noise over other frequencies."""
    severities: tuple[int, ...] | None = None
    """Corruptions: some of 1 to 5; all when left out."""
    corrupted: Path | None = None
    """Corruptions: folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C, read instead of made."""
    num_bins: Annotated[int, Within(1, 10_000)] | None = None
    """Calibration: bins of the confidence; 15 when left out."""
    batch_size: int = 256
    """Images per batch."""
    workers: fields.WorkerCount = 0
    device: fields.Device = None
    threads: fields.Threads = None
    out: Path | None = None
    """Write a record, OUT.json; with --on a folder of records, figures and report.html."""
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Evaluate, model: "nn.Module | None" = None) -> Result:
    """Measure the model that is requested, or that is given; with ``on``, its robustness."""
    if options.pretrained:
        check_weights_can_be_had([options.model])
    use_threads(options.threads)
    from vitascope.runs.tasks.training import load_task_run
    from vitascope.runs.train_model import pairs
    from vitascope.training.classes import class_pairs

    done = load_task_run(options.model) if model is None else None
    if done is not None:
        return _task(options, done)
    how: dict[str, Any] = {
        "weights": None if options.weights is None else str(options.weights),
        "num_workers": options.workers,
        "num_images": options.images,
        "model_args": pairs(options.model_args, "--model-args"),
        "map_classes": class_pairs(options.map_classes),
        **fields_of(options, ("pretrained", "image_size", "batch_size", "device", "split")),
    }
    trial = _trial(options)
    subject = options.model if model is None else model
    if trial.on:
        return _robustness(options, subject, trial, how)
    return _accuracy(options, subject, how)


def _task(options: Evaluate, done: Any) -> Result:
    """Mean IoU of a segmentation run, the VQA score of one that answers questions."""
    from vitascope.report.tables.models import task_table
    from vitascope.report.tables.table import as_text
    from vitascope.runs.tasks.training import evaluate_task

    usual = {each.name: each.default for each in dataclasses.fields(Evaluate)}
    others = (
        *("on", "weights", "pretrained", "model_args", "map_classes"),
        *("split", "images", "image_size"),
    )
    for name in others:
        if getattr(options, name) != usual[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{options.model} is a run of {done.task}: {option} does not apply")
    record = evaluate_task(done, options.data, device=options.device, num_workers=options.workers)
    if options.out is not None:
        record.save(options.out)
    return Result(
        records={record.kind: record},
        summary=as_text(task_table(record.values, options.model)),
        values=dict(record.values),
    )


def _accuracy(options: Evaluate, subject: "str | nn.Module", how: dict[str, Any]) -> Result:
    from vitascope.inspection.evaluation import evaluate_subject
    from vitascope.report.tables.models import at_chance, evaluation_headline, evaluation_table
    from vitascope.report.tables.table import as_text

    record = evaluate_subject(subject, options.data, seed=options.seed, **how)
    if options.out is not None:
        record.save(options.out)
    inner = record.config.get("model") or {}
    names, notes = [options.model], [*record.config["notes"], at_chance(record)]
    return Result(
        records={"evaluation": record},
        summary="\n\n".join(
            [
                evaluation_headline([record], [str(inner.get("name") or options.model)]),
                as_text(evaluation_table([record], names, [None])),
            ]
        ),
        values=dict(record.values),
        notes=tuple(f"note: {note}" for note in notes if note),
    )


def _few(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as lists, but for those with a number per image: they are in the record."""
    return {name: a.tolist() for name, a in arrays.items() if not name.startswith("images/")}


def _robustness(
    options: Evaluate, subject: "str | nn.Module", trial: Any, how: dict[str, Any]
) -> Result:
    from vitascope.inspection.evaluation import evaluate_on
    from vitascope.report.instruments.robustness import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.tables.table import as_text

    with Progress("measuring", quiet=options.quiet or options.json) as bar:
        records = evaluate_on(subject, options.data, trial=trial, on_step=bar.show, **how)
    read = [f"{name}: {READINGS[record.kind](record)}" for name, record in records.items()]
    notes = next(iter(records.values())).config["notes"]
    measured = {name: {**record.values, **_few(record.arrays)} for name, record in records.items()}
    values = {"subject": options.model, "seed": options.seed, "measures": measured, "notes": notes}
    result = Result(
        records=records,
        summary="\n".join([as_text(summary_table(records)), *read]),
        values=values,
        notes=(*left_out(records), *(f"note: {note}" for note in notes)),
    )
    if options.out is None:
        return result
    return replace(result, written=result.save(options.out, (*FORMATS, "pdf")))


def _trial(options: Evaluate) -> "Trial":
    """The robustness measures that ``--on`` names, with the options that are given."""
    from vitascope.inspection.robustness import ROBUSTNESS, Trial, on_names

    wanted = fields_of(options, dict.fromkeys(chain(*ROBUSTNESS.values())))
    if options.epsilons is not None:
        wanted["epsilons"] = tuple(map(_number, options.epsilons))
    if options.corrupted is not None:
        wanted["corrupted"] = str(options.corrupted)
    wanted["clamp"] = options.clamp or None
    given = {name: value for name, value in wanted.items() if value is not None}
    return Trial(on=on_names(options.on), given=given, seed=options.seed)


def _number(text: str) -> float:
    """A number or a fraction.

    >>> _number("0.5"), _number("1/4")
    (0.5, 0.25)
    """
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise UserError(f"--epsilons takes numbers like 8/255 or 0.03, not {text!r}") from None
