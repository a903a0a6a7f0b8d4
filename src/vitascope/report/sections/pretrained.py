"""Which pretrained backbone: the answer, accuracy against cost, what probing and weights added."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from vitascope.figure import Figure, Lines, Series, Style
from vitascope.formatting import count, number
from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.mistakes import LISTS, chosen_models_mistakes
from vitascope.report.sections.section import Badge, Fold, ModelBar, Section, again, made_by
from vitascope.table import Cell, Table, as_text, row

LINEAR, TUNED = "linear head", "fine-tuned"
WAYS = {LINEAR: "with a linear head on its frozen features", TUNED: "fine-tuned"}
BADGES = {
    "clear": Badge(text="clear", sign="✓", tone="good"),
    "equivalent": Badge(text="equivalent and cheaper", sign="✓", tone="good"),
    "undecided": Badge(text="undecided"),
}
KINDS = {"hard": "cnn", "soft": "convit", "none": "vit"}
TERMS = (
    (
        "k-NN",
        "Vote of the k nearest training images by cosine of frozen features; k by inner folds.",
    ),
    ("Linear", "Logistic regression on frozen features; penalty chosen by inner cross-validation."),
    (
        "Fine-tuned",
        "The linear head is fitted first, then all weights, early layers slower.",
    ),
    ("ImageNet", "Published top-1: how one would choose without these images."),
)


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of each candidate."""
    return [
        (str(line["model"]), KINDS.get(line["kind"], "other"))
        for source in sources
        for line in source.record.values["table"]
    ]


def section(source: Source, styles: Styles) -> Section:
    """Return one section per question."""
    record = source.record
    values, data = record.values, record.values["data"]
    chosen = values["chosen_by"]
    wrong = chosen_models_mistakes(record, called(values))
    sentences = leads(record)
    cautions = tuple(shortened(str(each), values) for each in values["recommendation"]["cautions"])
    others = tuple(each for each in sentences[1:] if each not in cautions)
    folds = (
        Fold(title="How the model was chosen, and what else to know", sentences=others),
        Fold(title="Mistakes, class by class", names=("confusion", "classes", *LISTS)),
    )
    tables = (*wrong.tables, *(gallery.table for gallery in wrong.galleries))
    names = {figure.name for figure in wrong.figures} | {table.name for table in tables}
    return Section(
        kind="pretrained",
        label="Pretrained backbones",
        title=f"Pretrained backbones for {str(data['name']).partition('?')[0]}",
        question=str(values["question"]),
        answer=pretrained_headline(record),
        badge=_badge(record),
        leads=(*sentences[:1], *no_run(record)),
        cautions=cautions,
        bars=_bars(record, styles),
        bars_title="The best candidates, each used the better way, with 95 % intervals.",
        steps=tuple(pretrained_steps(record)),
        mistakes=wrong.first,
        folds=tuple(fold for fold in folds if fold.sentences or set(fold.names) & names),
        facts=(
            ("training images", count(data["num_train"])),
            (f"{chosen['images']} images", count(chosen["count"])),
            ("test images", count(data["num_test"])),
            ("classes", count(len(data["classes"]))),
            ("candidates", count(len(values["table"]))),
        ),
        figures=(_accuracy_and_cost(record, styles), *wrong.figures),
        galleries=wrong.galleries,
        tables=(pretrained_table(record, styles.of), *wrong.tables),
        terms=TERMS,
        agains=(
            again(
                record,
                made_by(record, "compare"),
                notes=(
                    *(str(line["line"]) for line in values["table"]),
                    *(f"skipped {name}: {why}" for name, why in values["skipped"].items()),
                    *map(str, data["notes"]),
                ),
            ),
        ),
        source=source.path.name,
    )


def _bars(record: Record, styles: Styles) -> tuple[ModelBar, ...]:
    """The best candidates, each with its better usage."""
    bars = []
    for line in record.values["table"]:
        key = "fine_tuned" if used_as(line) == TUNED else "linear"
        ends = (line.get("intervals") or {}).get(key)
        bars.append(
            ModelBar(
                label=called(record.values)[line["model"]],
                style=styles.of(line["model"]),
                value=100 * line[key],
                low=ends["low"] if ends else None,
                high=ends["high"] if ends else None,
                note=f"{used_as(line)}, {line['parameters'] / 1e6:.1f} M parameters",
            )
        )
    return tuple(sorted(bars, key=lambda bar: -bar.value)[:6])


def _badge(record: Record) -> Badge:
    """Return the first reason against the answer, such as leaked test images; else the verdict."""
    advice = record.values["recommendation"]
    if advice["cautions"]:
        return Badge(text=shortened(str(advice["badge"]), record.values))
    return BADGES[advice["verdict"]]


def leads(record: Record) -> list[str]:
    """The evidence behind the answer, in sentences."""
    values, names = record.values, called(record.values)
    advice = values["recommendation"]
    sentences = [*advice["sentences"], *values.get("race_notes", ())]
    evidence = [shortened(str(each), values) for each in sentences]
    evidence.append(f"{values['images']['short']}.")
    tuned = values.get("fine_tuning")
    if tuned:
        gain = tuned["gain"]
        evidence.append(
            f"Fine-tuning {names[tuned['model']]} changed the {number(tuned['linear'], 1)} % "
            f"of a linear head on its frozen features by {number(gain['value'], 1)} points "
            f"[{number(gain['low'], 1)}, {number(gain['high'], 1)}]."
        )
    scratch = values.get("scratch")
    if scratch:
        gain = scratch["gain"]
        evidence.append(
            f"From random weights the same network gets {number(scratch['top1'], 1)} % in as many "
            f"epochs, {number(gain['value'], 1)} points [{number(gain['low'], 1)}, "
            f"{number(gain['high'], 1)}] less; how far a longer training from scratch gets is what "
            "`vitascope compare` without --pretrained tells."
        )
    taken = values["recommendation"]["model"]
    lines = {each["model"]: each for each in values["table"]}
    static = values["order"]["imagenet"]
    if len(static) > 1:
        evidence.append(_by_imagenet(lines[static[0]], taken, names))
    more = lines[taken].get("twice")
    evidence.append(
        f"Twice the images would bring the linear probe of {names[taken]} from "
        f"{number(more['now'], 1)} to about {number(more['value'], 1)} % "
        f"[{number(more['low'], 1)}, {number(more['high'], 1)}]."
        if more
        else "What twice the images would bring cannot be said from these."
    )
    return evidence


def _by_imagenet(first: Mapping[str, Any], taken: str, names: Mapping[str, str]) -> str:
    """Return what one would have chosen without these images."""
    choice = f"ImageNet accuracy alone would have chosen {names[first['model']]}"
    gap = first.get("behind")
    if first["model"] == taken:
        return f"{choice} too."
    if gap is None:
        return f"{choice}, the highest mean here too."
    return (
        f"{choice}: here {number(gap['value'], 1)} points [{number(gap['low'], 1)}, "
        f"{number(gap['high'], 1)}] behind the best."
    )


def _labels(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names that tell the candidates apart: without files and without a beginning they share.

    >>> _labels([{"model": "tf_efficientnet_lite0@a.pt"}, {"model": "tf_efficientnet_lite1@b.pt"}])
    ['lite0', 'lite1']
    """
    plain = list(called({"table": lines}).values())
    shared = commonprefix(plain).rpartition("_")  # noqa: RUF071 - names, not paths
    return [name.removeprefix("".join(shared[:2])) for name in plain]


def _accuracy_and_cost(record: Record, styles: Styles) -> Figure:
    lines: list[dict[str, Any]] = list(record.values["table"])
    labels = dict(zip((line["model"] for line in lines), _labels(lines), strict=True))
    names = called(record.values)

    def series(key: str) -> tuple[Series, ...]:
        return tuple(
            Series(
                label=labels[line["model"]],
                x=[line["multiply_adds"] / 1e9],
                y=[100 * line[key]],
                low=[line["intervals"][key]["low"]] if "intervals" in line else None,
                high=[line["intervals"][key]["high"]] if "intervals" in line else None,
                model=line["model"],
                style=styles.of(line["model"]),
            )
            for line in lines
            if line[key] is not None
        )

    panels = tuple(
        Lines(
            title=title,
            x_label="multiply-adds of one image (G)",
            y_label="top-1 (%)",
            series=series(key),
            x_log=True,
            ceiling=100,
            marks=True,
            joined=False,
        )
        for key, title in (
            ("knn", "nearest neighbours"),
            ("linear", "linear probe"),
            ("fine_tuned", "fine-tuned"),
        )
        if series(key)
    )
    best = max(lines, key=lambda line: line["linear"])
    return Figure(
        name="pretrained",
        title="Accuracy against cost",
        reading=(
            f"With a linear head on frozen features, {names[best['model']]} has the highest mean: "
            f"{number(100 * best['linear'], 1)} %."
        ),
        how="Up and to the left is better. Bars: 95 % intervals of each by itself; for differences "
        "the paired intervals of the table are narrower.",
        panels=panels,
    )


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
                Cell(text=_percent(line["linear"]), bold=line["model"] == taken and not tuned),
                Cell(text=_percent(line["fine_tuned"]), bold=line["model"] == taken and tuned),
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
    """Say which images the accuracies are of."""
    reported, chosen = values["reported_on"], values["chosen_by"]
    accuracies = f"Accuracies are on {reported['count']:,} {reported['images']} images"
    if reported["images"] == chosen["images"]:
        return f"{accuracies}, which were also used to choose. "
    return f"{accuracies}; the model was chosen on {chosen['count']:,} {chosen['images']} images. "


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


def _behind(gap: Mapping[str, float] | None) -> str:
    if gap is None:
        return ""
    return f"{number(gap['value'], 1)} [{number(gap['low'], 1)}, {number(gap['high'], 1)}]"


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
        step = f"Train it on all training images (the run above is right on {share})"
    else:
        step = "Use it: first train it on all training images"
    if advice.get("command"):
        steps.append((step, str(advice["command"])))
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
    first, *more = (shortened(str(each), values) for each in advice["sentences"])
    skipped = ", ".join(map(short_name, values.get("skipped") or {}))
    steps = [f"{step}: `{command}`" for step, command in pretrained_steps(record)]
    lines = [
        f"{pretrained_headline(record)}",
        f"{shortened(str(advice['badge']), values)}.",
        first,
        "",
        as_text(pretrained_table(record)),
        "",
        *more,
        *(shortened(str(each), values) for each in values.get("race_notes", ())),
        *([f"skipped: {skipped}"] if skipped else []),
        *no_run(record),
        "",
        *steps,
    ]
    return "\n".join(lines)
