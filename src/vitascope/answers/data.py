"""Answer ``vitascope data``: a table of classes, and what is wrong with the images."""

from vitascope.answers.result import Result
from vitascope.requests.data import DataRequest


def run_data(request: DataRequest) -> Result:
    """Look at the images."""
    from vitascope.report.tables.table import Table, row
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.images import sizes_of, surveyed

    found = surveyed(request.source)
    sizes = sizes_of(request.source)
    values = {**found.values(), "sizes": sizes}
    table = Table(
        name="classes",
        title="Images of each class",
        corner="Class",
        columns=("Training", "Test"),
        rows=tuple(
            row(line["name"], [f"{line['train']:,}", f"{line['test']:,}"])
            for line in values["classes"]
        ),
    )
    named = tuple(f"{what}: {one} | {other}" for what, one, other in found.pairs)
    return Result(
        records={},
        summary=f"{as_text(table)}\n{found.short}.",
        values=values,
        notes=(*((sizes,) if sizes else ()), *found.unreadable, *named),
    )
