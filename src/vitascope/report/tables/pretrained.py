"""The table of pretrained candidates: accuracy against cost, next to ImageNet's order."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, as_text, row

LINEAR, TUNED = "linear head", "fine-tuned"
WAYS = {LINEAR: "with a linear head on its frozen features", TUNED: "fine-tuned"}


def short_name(text: str) -> str:
    """A candidate without the path of its file, a run's folder with its parent alone.

    >>> short_name("resnet18@/a/b.safetensors"), short_name("timm:convit_tiny.fb_in1k")
    ('resnet18@b.safetensors', 'convit_tiny.fb_in1k')
    >>> short_name("/home/me/runs/a")
    'runs/a'
    """
    if text.startswith("/"):
        return "/".join(text.split("/")[-2:])
    name, at, file = text.removeprefix("timm:").partition("@")
    return f"{name}{at}{file.rpartition('/')[2]}"


def pretrained_table(
    record: Record, style_of: Callable[[str], Style | None] = lambda name: None
) -> Table:
    """One line per candidate, the best first; behind is on the images that report."""
    values = record.values
    lines = sorted(values["table"], key=lambda line: -_own(line))
    taken, tuned = values["recommendation"]["model"], way_of(record) == TUNED
    rows = [
        row(
            called(values)[line["model"]],
            [
                _percent(line["knn"]),
                Cell(words=_percent(line["linear"]), bold=line["model"] == taken and not tuned),
                Cell(words=_percent(line["fine_tuned"]), bold=line["model"] == taken and tuned),
                _behind(line.get("behind")),
                number(line["imagenet"], 1) if line["imagenet"] is not None else "",
                str(line["kind"]),
                number(line["parameters"] / 1e6, 1),
                number(line["multiply_adds"] / 1e9, 2),
                number(line["milliseconds"], 0),
                number(line["megabytes"], 0),
                str(line["license"] or ""),
            ],
            style=style_of(line["model"]),
        )
        for line in lines
    ]
    return Table(
        name="pretrained",
        title="Pretrained candidates",
        corner="Candidate",
        columns=(
            *("k-NN (%)", "Linear (%)", "Fine-tuned (%)", "Behind the best (points)"),
            *("ImageNet (%)", "Locality", "Parameters (M)", "Multiply-adds (G)"),
            *("One image (ms)", "Memory (MB)", "Licence"),
        ),
        rows=tuple(rows),
        caption=f"{_measured(values)}Behind the best: paired difference with its 95 % interval, of "
        "each candidate with the better of linear head and fine-tuning, by the images that chose; "
        "below 0 it is ahead here. Bold: the recommended.",
    )


def used_as(line: Mapping[str, Any]) -> str:
    """The better way to use a candidate."""
    return str(line.get("way", LINEAR if line["fine_tuned"] is None else TUNED))


def _own(line: Mapping[str, Any]) -> float:
    """A candidate's accuracy, used the better way."""
    return float(line["fine_tuned"] if used_as(line) == TUNED else line["linear"])


def way_of(record: Record) -> str:
    """Return how the recommended candidate is used: frozen or fine-tuned."""
    advice = record.values["recommendation"]
    return str(advice.get("way", TUNED if advice["stage"] == "race" else LINEAR))


def _measured(values: Mapping[str, Any]) -> str:
    """Which images the accuracies are of."""
    reported, chosen = values["reported_on"], values["chosen_by"]
    words = f"Accuracies are on {reported['count']:,} {reported['images']} images"
    if reported["images"] == chosen["images"]:
        return f"{words}, which were also used to choose. "
    return f"{words}; the model was chosen on {chosen['count']:,} {chosen['images']} images. "


def called(values: Mapping[str, Any]) -> dict[str, str]:
    """The candidates as a reader knows them: without files where that tells them apart."""
    names = {str(line["model"]): short_name(line["model"]) for line in values["table"]}
    plain = {model: name.partition("@")[0] for model, name in names.items()}
    return plain if len(set(plain.values())) == len(plain) else names


def shortened(text: str, values: Mapping[str, Any]) -> str:
    """A sentence with the short names of the candidates, and the way where there are two."""
    names = called(values)
    for model in sorted(names, key=len, reverse=True):  # none is the beginning of another's
        text = text.replace(model, names[model])
    return text if values["race"] else text.replace(f" ({LINEAR})", "")


def _percent(share: Any) -> str:
    return "" if share is None else number(100 * share, 1)


def _behind(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{number(found['value'], 1)} [{number(found['low'], 1)}, {number(found['high'], 1)}]"


def pretrained_headline(record: Record) -> str:
    """The recommendation in a few words: which network, used how."""
    values, advice = record.values, record.values["recommendation"]
    used = f"{advice['model']} {WAYS[way_of(record)]}"
    named = f"{advice['model']} ({way_of(record)})"
    return shortened(str(advice["headline"]).replace(f"{named}:", f"{used}:", 1), values)


def pretrained_steps(record: Record) -> list[tuple[str, str]]:
    """Return what to do with the recommended network: in words, and the command."""
    values, advice = record.values, record.values["recommendation"]
    steps = []
    if advice.get("run") is not None:
        right, reported = number(100 * advice["run_top1"], 1), values["reported_on"]
        predict = f"vitascope predict {shlex.quote(str(advice['run']))} IMAGES --out answers.csv"
        steps.append(("Use it", predict))
        share = f"{right} % of {reported['count']:,} {reported['images']} images"
        words = f"Train it on all training images (the run above is right on {share})"
    else:
        words = "Use it: first train it on all training images"
    if advice.get("command"):
        steps.append((words, str(advice["command"])))
    return steps


def no_run(record: Record) -> list[str]:
    """Say so where the recommended network cannot be trained here."""
    advice = record.values["recommendation"]
    if advice.get("command", "") is not None:
        return []
    name = shortened(advice["model"], record.values)
    return [f"Use it: {name} cannot be fine-tuned here; use its features in your own code."]


def pretrained_text(record: Record) -> str:
    """The table and the recommendation, for a terminal."""
    values, advice = record.values, record.values["recommendation"]
    first, *more = (shortened(str(said), values) for said in advice["sentences"])
    skipped = ", ".join(map(short_name, values.get("skipped") or {}))
    steps = [f"{words}: `{command}`" for words, command in pretrained_steps(record)]
    lines = [
        f"{pretrained_headline(record)}",
        f"{shortened(str(advice['badge']), values)}.",
        first,
        "",
        as_text(pretrained_table(record)),
        "",
        *more,
        *(shortened(str(said), values) for said in values.get("race_notes", ())),
        *([f"skipped: {skipped}"] if skipped else []),
        *no_run(record),
        "",
        *steps,
    ]
    return "\n".join(lines)
