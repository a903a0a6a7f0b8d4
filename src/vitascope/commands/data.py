"""``vitascope data``: a table of classes, and what is wrong with the images."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope import option_types
from vitascope.commands.result import Result


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Look at images before training: numbers, sizes, balance, unreadable files and duplicates.

    Duplicates inside and across training and test images are found by their pixels and by a
    perceptual hash; the same image with two labels is named.

    Examples:
      vitascope data photos/
      vitascope data csv:labels.csv --json
    """

    source: Annotated[
        str, Positional, arg(metavar="DATA", help="Images, as --data of the other commands.")
    ]
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: DataOptions) -> Result:
    """Count, check and describe the images of a source."""
    from vitascope.data.survey import file_sizes, surveyed
    from vitascope.table import Table, as_text, row

    survey = surveyed(options.source)
    sizes = file_sizes(options.source)
    values = {**survey.values(), "sizes": sizes}
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
    named = tuple(f"{finding}: {one} | {other}" for finding, one, other in survey.pairs)
    return Result(
        records={},
        summary=f"{as_text(table)}\n{survey.short}.",
        values=values,
        notes=(*((sizes,) if sizes else ()), *survey.unreadable, *named),
    )
