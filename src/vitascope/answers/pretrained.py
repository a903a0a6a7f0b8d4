"""Answer ``vitascope compare --pretrained``: probe, fine-tune, recommend, write the page."""

from typing import Any

from vitascope.answers.compare import source_of, with_page
from vitascope.answers.engine import this_machine
from vitascope.answers.result import Result
from vitascope.errors import UserError
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.requests.compare import PRETRAINED_MODELS, Compare
from vitascope.settings import made_from


def run_pretrained(request: Compare) -> Result:
    """Which pretrained backbone suits the images."""
    _refuse_others(request)
    check_weights_can_be_had(_models(request))
    from vitascope.report.tables.pretrained import pretrained_text
    from vitascope.studies.pretrained.answer import choose_pretrained

    with Progress("probing", quiet=request.quiet or request.json) as bar:
        answer = choose_pretrained(
            pretrained_question(request),
            request.out,
            this_machine(request),
            tell=bar.tell,
            on_image=bar.show,
        )
    keys = (
        *("probe", "race", "table", "recommendation", "order", "scratch", "fine_tuning"),
        *("chosen_by", "reported_on", "skipped"),
    )
    return with_page(request, {"pretrained": answer}, pretrained_text(answer), keys)


def _refuse_others(request: Compare) -> None:
    """Refuse what only trainings from scratch know.

    Raises:
        UserError: Naming the option.
    """
    if request.print_commands:
        raise UserError(
            "--print-commands is not for --pretrained: the probe decides what is trained"
        )
    for name in ("fractions", "tune", "rates", "match", "patch_sizes"):
        if getattr(request, name) != getattr(Compare, name):
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is for trainings from scratch; leave it out or --pretrained")


def _models(request: Compare) -> tuple[str, ...]:
    """The candidates; those of a comparison from scratch are the command's default."""
    return PRETRAINED_MODELS if request.models == Compare.models else request.models


def pretrained_question(request: Compare) -> Any:
    """What is probed and fine-tuned."""
    from vitascope.studies.comparison.budget import seconds_from
    from vitascope.studies.grid.train_command import recipe_from
    from vitascope.studies.pretrained.question import PretrainedQuestion

    name = "finetune" if request.recipe == Compare.recipe else request.recipe
    return made_from(
        request,
        PretrainedQuestion,
        data=source_of(request),
        models=_models(request),
        recipe=recipe_from(name, request.epochs, request.set),
        budget=None if request.budget is None else seconds_from(request.budget),
    )
