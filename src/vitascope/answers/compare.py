"""Answer ``vitascope compare``: train the models, recommend one, write the page."""

from typing import Any

from vitascope.answers.engine import this_machine
from vitascope.answers.result import FORMATS, Result
from vitascope.errors import UserError
from vitascope.requests.compare import Compare
from vitascope.settings import made_from


def run_compare(request: Compare) -> Result:
    """Train the models and say which one suits the images."""
    if request.pretrained:
        from vitascope.answers.pretrained import run_pretrained

        return run_pretrained(request)
    if request.probe_only:
        raise UserError("--probe-only is for --pretrained; give that too")
    from vitascope import record
    from vitascope.report.exports import write_figures
    from vitascope.report.page import write_folder_page
    from vitascope.report.sections.comparison_record import ComparisonRecord
    from vitascope.report.tables.comparison import comparison_text
    from vitascope.studies.comparison.compare import compare as compared
    from vitascope.studies.comparison.planning import Wish

    question, wish = question_of(request), made_from(request, Wish)
    answer = compared(question, request.out, this_machine(request), wish)
    page = write_folder_page(request.out)
    keys = ("table", "crossings", "recommendation", "models", "chosen_by", "left_out", "rates")
    explorers = sorted((request.out / "explorer").glob("*.json"))
    result = Result(
        records={
            "compare": answer,
            **{f"explorer/{path.stem}": record.load(path.with_suffix("")) for path in explorers},
        },
        summary=f"{comparison_text(ComparisonRecord(answer))}\n",
        values={**{key: answer.values[key] for key in keys}, "report": str(page)},
        written=page,
    )
    if request.figures:
        write_figures(result.report(), request.out, (*FORMATS, "pdf"))
    return result


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
