"""Answer ``vitascope evaluate``: accuracy, likelihood and calibration, or robustness."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from vitascope.answers.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.requests.evaluate import Evaluate
from vitascope.settings import fields_of
from vitascope.threads import use_threads


def run_evaluate(request: Evaluate) -> Result:
    """Accuracy, likelihood and calibration; with ``on``, robustness."""
    if request.pretrained:
        check_weights_can_be_had([request.model])
    use_threads(request.threads)
    from vitascope.studies.inspection.robustness import Trial
    from vitascope.studies.session.models import class_pairs
    from vitascope.studies.tasks.training import load_task_run

    done = load_task_run(request.model)
    if done is not None:
        return _task(request, done)
    how: dict[str, Any] = {
        "weights": None if request.weights is None else str(request.weights),
        "num_workers": request.workers,
        "num_images": request.images,
        "map_classes": class_pairs(request.map_classes),
        **fields_of(request, ("pretrained", "image_size", "batch_size", "device", "split")),
    }
    trial = Trial.of(request)
    return _robustness(request, trial, how) if trial.on else _accuracy(request, how)


def _task(request: Evaluate, done: Any) -> Result:
    """Mean IoU of a segmentation run, the VQA score of one that answers questions."""
    from vitascope.report.tables.task import task_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.tasks.training import evaluate_task

    usual = {field.name: field.default for field in fields(Evaluate)}
    others = ("on", "weights", "pretrained", "map_classes", "split", "images", "image_size")
    for name in others:
        if getattr(request, name) != usual[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{request.model} is a run of {done.task}: {option} does not apply")
    found = evaluate_task(done, request.data, device=request.device, num_workers=request.workers)
    if request.out is not None:
        found.save(request.out)
    return Result(
        records={found.kind: found},
        summary=as_text(task_table(found.values, request.model)),
        values=dict(found.values),
    )


def _accuracy(request: Evaluate, how: dict[str, Any]) -> Result:
    from vitascope.report.tables.evaluation import evaluation_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.session.evaluation import evaluate_subject

    found = evaluate_subject(request.model, request.data, seed=request.seed, **how)
    if request.out is not None:
        found.save(request.out)
    return Result(
        records={"evaluation": found},
        summary=as_text(evaluation_table([found], [request.model], [None])),
        values=dict(found.values),
        notes=tuple(f"note: {note}" for note in found.config["notes"]),
    )


def _few(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as lists, but for those with a number per image: they are in the record."""
    return {name: a.tolist() for name, a in arrays.items() if not name.startswith("images/")}


def _robustness(request: Evaluate, trial: Any, how: dict[str, Any]) -> Result:
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.session.evaluation import evaluate_on

    with Progress("measuring", quiet=request.quiet or request.json) as bar:
        records = evaluate_on(request.model, request.data, trial=trial, on_step=bar.show, **how)
    read = [f"{name}: {READINGS[record.kind](record)}" for name, record in records.items()]
    notes = next(iter(records.values())).config["notes"]
    measured = {name: {**record.values, **_few(record.arrays)} for name, record in records.items()}
    told = {"subject": request.model, "seed": request.seed, "measures": measured, "notes": notes}
    result = Result(
        records=records,
        summary="\n".join([as_text(summary_table(records)), *read]),
        values=told,
        notes=(*left_out(records), *(f"note: {note}" for note in notes)),
    )
    if request.out is None:
        return result
    return replace(result, written=result.save(request.out, (*FORMATS, "pdf")))
