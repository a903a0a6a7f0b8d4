"""The table of pretrained candidates: accuracy against cost, beside ImageNet's order."""

from collections.abc import Callable, Mapping
from typing import Any

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, row
from vitascope.report.tables.writers import as_text

__all__ = ["pretrained_headline", "pretrained_table", "pretrained_text", "short_name", "shortened"]


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
    """One line a candidate, the best first; behind is on the images that report."""
    values = record.values
    lines = sorted(values["table"], key=lambda line: -float(line["fine_tuned"] or line["linear"]))
    taken = values["recommendation"]["model"]
    raced = values["recommendation"]["stage"] == "race"
    rows = [
        row(
            short_name(line["model"]),
            [
                _percent(line["knn"]),
                Cell(words=_percent(line["linear"]), bold=line["model"] == taken and not raced),
                Cell(words=_percent(line["fine_tuned"]), bold=line["model"] == taken and raced),
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
    said = "of fine-tuning" if raced else "of the linear probe"
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
        caption=f"{_measured(values)}Behind the best: paired difference {said} with its 95 % "
        "interval.",
    )


def _measured(values: Mapping[str, Any]) -> str:
    """Which images the accuracies are of; records of old versions do not say."""
    if "reported_on" not in values:
        return ""
    reported, chosen = values["reported_on"], values["chosen_by"]
    words = f"Accuracies are on {reported['count']:,} {reported['images']} images"
    if reported["images"] == chosen["images"]:
        return f"{words}, which chose too. "
    return f"{words}; {chosen['count']:,} {chosen['images']} images chose. "


def shortened(text: str, values: Mapping[str, Any]) -> str:
    """A sentence with the short names of the candidates."""
    for line in values["table"]:
        text = text.replace(line["model"], short_name(line["model"]))
    return text


def _percent(share: Any) -> str:
    return "" if share is None else number(100 * share, 1)


def _behind(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{number(found['value'], 1)} [{number(found['low'], 1)}, {number(found['high'], 1)}]"


def pretrained_headline(record: Record) -> str:
    """The recommendation in one sentence."""
    found = record.values["recommendation"]
    if "headline" in found:
        raced = found["stage"] == "race"
        how = "Fine-tuned" if raced else "With a linear head on frozen features"
        return f"{shortened(found['headline'], record.values)} {how}."
    line = next(each for each in record.values["table"] if each["model"] == found["model"])
    share = line["fine_tuned"] if line["fine_tuned"] is not None else line["linear"]
    how = (
        "fine-tuned" if line["fine_tuned"] is not None else "with a linear head on frozen features"
    )
    taken = f"{short_name(found['model'])}, {how}: {number(100 * share, 1)} %"
    return f"Undecided; ahead is {taken}." if found["verdict"] == "undecided" else f"Take {taken}."


def pretrained_text(record: Record) -> str:
    """The table and the recommendation, for a terminal."""
    found = record.values["recommendation"]
    said = [found["badge"], *found["sentences"]] if "sentences" in found else [found["reason"]]
    skipped = record.values.get("skipped") or {}
    more = [f"skipped: {', '.join(map(short_name, skipped))}"] if skipped else []
    return "\n".join(
        [
            as_text(pretrained_table(record)),
            pretrained_headline(record),
            *(shortened(str(sentence), record.values) for sentence in said),
            *more,
        ]
    )
