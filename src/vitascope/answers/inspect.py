"""Answer ``vitascope inspect``: look inside a model, or list its units."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vitascope.answers.result import Result
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.requests.inspect import Inspect
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from torch import nn

    from vitascope.record import Record


def run_inspect(request: Inspect, model: "nn.Module | None" = None) -> Result:
    """Look inside the model that is requested, or that is given; or list its units."""
    if request.pretrained:
        check_weights_can_be_had([request.model])
    use_threads(request.threads)
    from vitascope.studies.inspection.inspect import InspectRequest, inspect_subject, list_units

    asked = InspectRequest.of(request)
    if request.list:
        return _units(list_units(asked, model), request)
    with Progress("inspecting", quiet=request.quiet or request.json) as bar:
        found = inspect_subject(asked, bar.show, model)
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.tables.writers import as_text

    read = [
        f"{record.kind}: {READINGS[record.kind](record)}"
        for record in found.records.values()
        if record.kind in READINGS
    ]
    refused = [f"not {name}: {why}" for name, why in found.refused.items()]
    explorer = {} if found.explorer is None else {"explorer": found.explorer}
    measured = {name: dict(record.values) for name, record in found.records.items()}
    table = [as_text(summary_table(found.records))] if found.records else []
    result = Result(
        records={**found.records, **explorer},
        summary="\n".join([*table, *read, *refused]),
        values={
            "subject": found.subject,
            "measures": measured,
            "refused": dict(found.refused),
            "notes": list(found.notes),
        },
        notes=(*left_out(found.records), *(f"note: {note}" for note in found.notes)),
    )
    return result if request.out is None else replace(result, written=result.save(request.out))


def _units(found: "Record", request: Inspect) -> Result:
    from vitascope.report.tables.models import units_table
    from vitascope.report.tables.writers import as_text

    if request.out is not None:
        found.save(request.out / "units")
    return Result(
        records={"units": found},
        summary=as_text(units_table(found)),
        values={"units": found.values["units"], "size": found.values["size"]},
    )
