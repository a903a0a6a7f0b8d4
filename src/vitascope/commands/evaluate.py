"""``vitascope evaluate``: accuracy, likelihood and calibration, or robustness."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope import option_types
from vitascope.commands.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.inspection.options import EvaluateOptions
from vitascope.progress import Progress
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Evaluate(EvaluateOptions):
    """Measure top-1, top-5, NLL and calibration error; with --on, robustness.

    Classes of --data are matched to the run's by name; they may be some of them.

    --on takes occlusion, fgsm, pgd, frequency, corruption and calibration. The same seed gives the
    same numbers.

    Examples:
      vitascope evaluate runs/a
      vitascope evaluate runs/a --data photos/ --split all --json
      vitascope evaluate runs/a --data pets/ --map-classes puppy=dog kitten=cat
      vitascope evaluate convit_tiny --pretrained --data imagenet-v2:/data/v2
      vitascope evaluate vit_micro --weights my.safetensors --data digits
      vitascope evaluate vit_micro@my.safetensors --model-args depth=8 \\
          --data digits
      vitascope evaluate runs/a --on occlusion,fgsm,frequency,corruption,calibration --out robust
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

    out: Path | None = None
    """Write a record, OUT.json; with --on a folder of records, figures and report.html."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Evaluate, model: "nn.Module | None" = None) -> Result:
    """Measure the model that is requested, or that is given; with ``on``, its robustness."""
    if options.pretrained:
        check_weights_can_be_had([options.model])
    if model is None and Path(options.model).is_dir():
        from vitascope.training.run_folder.run import finished_folder

        finished_folder(options.model)  # before torch is loaded
    use_threads(options.threads)
    from vitascope.inspection.robustness import given_options, on_names
    from vitascope.runs.tasks.training import load_task_run

    done = load_task_run(options.model) if model is None else None
    if done is not None:
        return _task(options, done)
    given_options(options)  # refuses those whose measure is not in --on
    return _robustness(options, model) if on_names(options.on) else _accuracy(options, model)


def _task(options: Evaluate, done: Any) -> Result:
    """Mean IoU of a segmentation run, the VQA score of one that answers questions."""
    from vitascope.report.sections.task import task_table
    from vitascope.runs.tasks.training import evaluate_task
    from vitascope.table import as_text

    others = (
        *("on", "weights", "pretrained", "model_args", "map_classes"),
        *("split", "images", "image_size"),
    )
    for name in others:
        if getattr(options, name) != getattr(Evaluate, name):
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


def _accuracy(options: Evaluate, model: "nn.Module | None") -> Result:
    from vitascope.inspection.evaluation import evaluate_subject
    from vitascope.report.sections.evaluation import (
        at_chance,
        evaluation_headline,
        evaluation_table,
    )
    from vitascope.table import as_text

    record = evaluate_subject(options, model)
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


def _robustness(options: Evaluate, model: "nn.Module | None") -> Result:
    from vitascope.inspection.evaluation import evaluate_on
    from vitascope.report.sections.inspection import left_out, summary_text

    with Progress("measuring", quiet=options.quiet or options.json) as bar:
        records = evaluate_on(options, model, on_step=bar.show)
    notes = next(iter(records.values())).config["notes"]
    measured = {name: {**record.values, **_few(record.arrays)} for name, record in records.items()}
    values = {"subject": options.model, "seed": options.seed, "measures": measured, "notes": notes}
    result = Result(
        records=records,
        summary=summary_text(records),
        values=values,
        notes=(*left_out(records), *(f"note: {note}" for note in notes)),
    )
    if options.out is None:
        return result
    return replace(result, written=result.save(options.out, (*FORMATS, "pdf")))
