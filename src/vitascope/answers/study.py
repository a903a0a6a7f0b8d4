"""Answer ``vitascope study``: a study of a paper, a build-up search, spectra of runs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope.answers.engine import engine_of, this_machine
from vitascope.answers.result import FORMATS, Result
from vitascope.progress import Progress
from vitascope.requests.buildup import Buildup
from vitascope.requests.spectra import Spectra
from vitascope.requests.study import StudyRequest
from vitascope.settings import fields_of, made_from
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from vitascope.record import Record


def run_buildup(request: Buildup) -> Result:
    """Search for the convolutions that should be attention."""
    from vitascope.report.sections.buildup import says
    from vitascope.report.tables.buildup import buildup_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.buildup import BuildUp, build_up
    from vitascope.studies.grid.train_command import pairs, recipe_from

    question = made_from(
        request,
        BuildUp,
        model_args=pairs(request.model_args, "--model-args"),
        recipe=recipe_from(request.recipe, request.epochs, request.set),
    )
    with Progress(quiet=request.quiet or request.json) as bar:
        answer = build_up(question, request.out, this_machine(request), progress=bar.tell)
    summary = f"{as_text(buildup_table(answer))}\n\n{says(answer)}\n"
    return _with_figures("buildup", answer, summary, request.out)


def run_spectra(request: Spectra) -> Result:
    """Compare the Hessian spectra of runs."""
    use_threads(request.threads)
    from vitascope.report.tables.spectra import spectra_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.inspection.spectra import spectra

    with Progress("spectra", quiet=request.quiet or request.json) as bar:
        answer = spectra(request, bar.show)
    return _with_figures("spectra", answer, f"{as_text(spectra_table(answer))}\n", request.out)


def _with_figures(name: str, answer: "Record", summary: str, out: Path) -> Result:
    """The result of a record, its figures written to ``out``."""
    from vitascope.report.exports import write_figures

    found = Result(records={name: answer}, summary=summary, values=answer.values)
    figures = write_figures(found.report(), out, (*FORMATS, "pdf"))
    told = {**answer.values, "figures": [str(path) for path in figures]}
    return replace(found, values=told, written=figures[0])


def study_with_page(name: str, request: StudyRequest) -> Result:
    """Answer one study of a paper and write the page of its folder."""
    from vitascope.report.page import write_folder_page
    from vitascope.studies.papers.answer import check_images
    from vitascope.studies.papers.catalog import find

    study = find(name)
    check_images({study.name: study.plan(scale_of(study, request))})
    return replace(run_study(study, request), written=write_folder_page(request.out))


def run_study(study: Any, request: StudyRequest) -> Result:
    """Answer one study of a paper, whose images are known to be there."""
    from vitascope.report.tables.study import study_text
    from vitascope.studies.papers.answer import answer

    found = answer(
        study, scale_of(study, request), request.out, engine_of(request), request.records
    )
    return Result(records={study.name: found}, summary=study_text(found), values=found.values)


def scale_of(study: Any, request: StudyRequest) -> Any:
    """The scale of a study, with what the request changes."""
    from vitascope.studies.papers.scale import SCALES

    needed = study.data["paper"].lower()  # of several sources, the kind that the study names
    fitting = [word for word in request.data if f"{word.partition(':')[0]}:" in needed]
    named = re.search(r"(\w+):path", needed) if request.scale == "paper" else None
    usual = named[1] if named else None  # a set without its place: cifar100
    changes: dict[str, Any] = {
        "data": next(iter([*fitting, *request.data]), usual),
        "seeds": request.seeds or tuple(range(study.seeds.get(request.scale, 0))) or None,
        **fields_of(request, ("image_size", "epochs", "recipe")),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(SCALES[request.scale], **given)
