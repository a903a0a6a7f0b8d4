"""Answer ``vitascope compare``: train the models, recommend one, write the page."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitascope.answers.engine import this_machine
from vitascope.answers.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.requests.compare import Compare
from vitascope.settings import made_from

if TYPE_CHECKING:
    from vitascope.record import Record


def run_compare(request: Compare) -> Result:
    """Train the models and say which one suits the images."""
    if request.pretrained:
        from vitascope.answers.pretrained import run_pretrained

        return run_pretrained(request)
    if request.probe_only:
        raise UserError("--probe-only is for --pretrained; give that too")
    from vitascope import record
    from vitascope.report.sections.comparison_record import ComparisonRecord
    from vitascope.report.tables.comparison import comparison_text
    from vitascope.studies.comparison.compare import compare as compared
    from vitascope.studies.comparison.planning import PlanOptions

    question, options = question_of(request), made_from(request, PlanOptions)
    answer = compared(question, request.out, this_machine(request), options)
    keys = ("table", "crossings", "recommendation", "models", "chosen_by", "left_out", "rates")
    explorers = sorted((request.out / "explorer").glob("*.json"))
    records = {f"explorer/{path.stem}": record.load(path.with_suffix("")) for path in explorers}
    use = f"Use it: `vitascope predict {shlex.quote(str(request.out))} IMAGES --out answers.csv`"
    text = f"{comparison_text(ComparisonRecord(answer))}\n{use}"
    return with_page(request, {"compare": answer, **records}, text, keys)


def with_page(
    request: Compare, records: Mapping[str, "Record"], text: str, keys: Sequence[str]
) -> Result:
    """The result of a comparison, whose record is the first; page and figures are written."""
    from vitascope.report.exports import write_figures
    from vitascope.report.page import write_folder_page

    page = write_folder_page(request.out)
    found = Result(records=records, summary=f"{text}\n", values=None, written=page)
    told = {key: found.record.values[key] for key in keys}
    if request.figures:
        write_figures(found.report(), request.out, (*FORMATS, "pdf"))
    return replace(found, values={**told, "report": str(page)})


def source_of(request: Compare) -> str:
    """The images, with their groups and class names."""
    from vitascope.studies.images import described

    names = None if request.class_names is None else str(request.class_names)
    return described(request.data, request.groups, names)


def question_of(request: Compare) -> Any:
    """What a comparison trains."""
    from vitascope.studies.comparison.patch_sizes import at_patch_sizes
    from vitascope.studies.comparison.question import Comparison, rates_from
    from vitascope.studies.grid.train_command import recipe_from

    models = at_patch_sizes(request.models, request.patch_sizes)
    return made_from(
        request,
        Comparison,
        models=models,
        recipe=recipe_from(request.recipe, request.epochs, request.set),
        overrides=request.set,
        data=source_of(request),
        rates=rates_from(request.rates, models),
    )
