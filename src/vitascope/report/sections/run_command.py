"""How to train a run again: the line that was typed, or one with all of its settings."""

from vitascope.report.records import Source
from vitascope.report.sections.section import Again, again, made_by, pinned
from vitascope.settings import changed, command_line

_NO_ARGUMENT = (
    "name",
    "num_classes",
    "in_chans",
    "img_size",
    "drop_path_rate",
    "pretrained",
    "weights",
)  # of a model: they follow from data and recipe, or are options


def run_again(source: Source, title: str = "") -> Again:
    """The command, the circumstances and the whole recipe."""
    record, teacher = source.record, source.record.config.get("teacher")
    command = made_by(record, "train") or _typed_out(source)
    notes = (f"TEACHER is a {teacher}.",) if "--teacher TEACHER" in command else ()
    return again(record, command, recipe=source.settings("recipe"), notes=notes, title=title)


def _typed_out(source: Source) -> str:
    """The training from its settings alone: all of them, for the usual ones may change."""
    data, model, recipe = (source.settings(part) for part in ("data", "model", "recipe"))
    given = {name: value for name, value in model.items() if name not in _NO_ARGUMENT}
    size = data.get("size") or (None,)
    options = [
        ("--model", model.get("name")),
        ("--model-args", changed(given)),
        ("--pretrained", model.get("pretrained")),
        ("--weights", model.get("weights")),
        ("--data", data.get("name")),
        ("--image-size", size[-1]),
        ("--recipe", recipe.get("name")),
        ("--set", changed({k: v for k, v in recipe.items() if k != "name"})),
        ("--teacher", "TEACHER" if source.record.config.get("teacher") else None),
        ("--seed", source.record.seed),
        *pinned(source.record),
        ("--out", source.folder),
    ]
    return command_line(["vitascope", "train"], options)
