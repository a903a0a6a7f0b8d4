"""``vitascope train``: one model, one data set, one recipe, one folder; for any task."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from vitascope.cli.options import parse
from vitascope.errors import UserError
from vitascope.requests.train import Train

_ANY_TASK = (  # options of every task; the others are for classification
    *("task", "model", "data", "out", "recipe", "epochs", "changes", "model_args", "image_size"),
    *("seed", "resume", "device", "num_workers", "quiet"),
)


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope train``, train and print."""
    request = parse(Train, "vitascope train", words)
    if request.pretrained and request.task == "classification":
        from vitascope.hub_access import check_weights_can_be_had

        check_weights_can_be_had([request.model])
    from vitascope.threads import use_threads

    use_threads(request.threads)
    given = dict(vars(request))
    for name in ("threads", "json"):
        del given[name]
    given |= {"changes": given.pop("set"), "num_workers": given.pop("workers")}
    given["quiet"] = request.quiet or request.json
    if request.task == "classification":
        _classification(request, given)
    else:
        _other(request, given)


def _classification(request: Train, given: dict[str, Any]) -> None:
    from vitascope.studies.grid.train_command import train_once

    del given["task"], given["no_tracking"], given["pictures"]
    given |= {"trackers": () if request.no_tracking else request.trackers}
    if request.pictures:
        from vitascope.report.instruments.pictures import pictures

        given["draw"] = pictures
    done = train_once(**given | {"recipe": request.recipe or "laptop"})
    if done is None:  # another process of the same run prints
        return
    if request.json:
        print(json.dumps({"folder": str(done.folder), **done.final}))
    else:
        top1 = 100 * done.final["top1"]
        epochs = "1 epoch" if done.epochs == 1 else f"{done.epochs} epochs"
        print(f"{done.folder}: top-1 {top1:.2f} % after {epochs}, {done.seconds:.0f} s")


def _other(request: Train, given: dict[str, Any]) -> None:
    from vitascope.report.tables.task import METRICS
    from vitascope.studies.tasks.training import train_task_once

    usual = {field.name: field.default for field in fields(Train)}
    for name in sorted(set(given) - set(_ANY_TASK)):
        if given.pop(name) != usual[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{option} is for classification; leave it out of --task {request.task}"
            )
    done = train_task_once(**given | {"recipe": request.recipe or request.task})
    if request.json:
        print(json.dumps({"folder": str(done.folder), **done.final}))
        return
    value = 100 * done.final[done.metric]
    print(
        f"{done.folder}: {METRICS[done.metric]} {value:.2f} % after {done.epochs} epochs, "
        f"{done.seconds:.0f} s"
    )
