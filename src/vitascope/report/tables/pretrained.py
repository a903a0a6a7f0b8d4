"""The table of pretrained candidates: accuracy against cost, beside ImageNet's order."""

from collections.abc import Callable, Mapping
from typing import Any

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, as_text, row

LINEAR, TUNED = "linear head", "fine-tuned"
WAYS = {LINEAR: "with a linear head on its frozen features", TUNED: "fine-tuned"}
NAMED = 2  # rivals in a headline; more are counted
METRICS = {"top1": "top-1", "balanced": "balanced accuracy"}


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
        "each candidate with the better of linear head and fine-tuning by the images that chose; "
        "below 0 it is ahead here. Bold: the recommended.",
    )


def _own(line: Mapping[str, Any]) -> float:
    """A candidate's accuracy, used the better way."""
    better = line.get("way", LINEAR if line["fine_tuned"] is None else TUNED)
    return float(line["fine_tuned"] if better == TUNED else line["linear"])


def way_of(record: Record) -> str:
    """How the recommended candidate is used; the first records did not weigh the two ways."""
    advice = record.values["recommendation"]
    return str(advice.get("way", TUNED if advice["stage"] == "race" else LINEAR))


def _measured(values: Mapping[str, Any]) -> str:
    """Which images the accuracies are of."""
    reported, chosen = values["reported_on"], values["chosen_by"]
    words = f"Accuracies are on {reported['count']:,} {reported['images']} images"
    if reported["images"] == chosen["images"]:
        return f"{words}, which chose too. "
    return f"{words}; {chosen['count']:,} {chosen['images']} images chose. "


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
    """The recommendation in one sentence: which network, used how."""
    values, found = record.values, record.values["recommendation"]
    name, way = shortened(found["model"], values), way_of(record)
    if found["verdict"] != "undecided" or not found["rivals"]:
        said = str(found["headline"])
        used = f"{found['model']} {WAYS[way]}"
        return shortened(said.replace(f"{found['model']} ({way})", used, 1), values)
    level, chosen, reported = found["accuracy"], values["chosen_by"], values["reported_on"]
    rivals = [shortened(str(each), values) for each in found["rivals"]]
    others = " or ".join(rivals) if len(rivals) <= NAMED else f"{len(rivals)} others"
    by = "the" if chosen["images"] == reported["images"] else f"{chosen['count']:,}"
    return (
        f"Take {name} {WAYS[way]} for now: {number(level['mean'], 1)} % "
        f"{METRICS[values['metric']]} [{number(level['low'], 1)}, {number(level['high'], 1)}] on "
        f"{reported['count']:,} {reported['images']} images. Undecided: {by} {chosen['images']} "
        f"images do not tell it from {others}."
    )


def pretrained_next(record: Record) -> list[str]:
    """What to type to use the recommended way."""
    values, found = record.values, record.values["recommendation"]
    if "command" not in found:  # of the first records
        return []
    if found["command"] is None:
        name = shortened(found["model"], values)
        return [f"No run can be made of {name}: use its features in your own code."]
    said = []
    if found["run"] is not None:
        right, reported = number(100 * found["run_top1"], 1), values["reported_on"]
        said.append(
            f"Use it: `vitascope predict {found['run']} FILES --out answers.csv`; this run has "
            f"{right} % of {reported['count']:,} {reported['images']} images right."
        )
    return [*said, f"Train it on all training images: `{found['command']}`"]


def pretrained_text(record: Record) -> str:
    """The table and the recommendation, for a terminal."""
    values = record.values
    found, skipped = values["recommendation"], values.get("skipped") or {}
    more = [f"skipped: {', '.join(map(short_name, skipped))}"] if skipped else []
    return "\n".join(
        [
            as_text(pretrained_table(record)),
            pretrained_headline(record),
            *(shortened(str(said), values) for said in [found["badge"], *found["sentences"]]),
            *(shortened(str(said), values) for said in values.get("race_notes", ())),
            *more,
            *pretrained_next(record),
        ]
    )
