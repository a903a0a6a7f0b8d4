"""Which pretrained backbone: the answer, accuracy against cost, what probing and weights added."""

from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any

from vitascope.figure import Figure, Lines, Series
from vitascope.record import Record
from vitascope.report.figures.axes import count
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number
from vitascope.report.instruments.mistakes import LISTS, chosen_models_mistakes
from vitascope.report.records import Source
from vitascope.report.sections.section import Badge, Fold, ModelBar, Section, again, made_by
from vitascope.report.tables.pretrained import (
    TUNED,
    called,
    no_run,
    pretrained_headline,
    pretrained_steps,
    pretrained_table,
    shortened,
    used_as,
)

BADGES = {
    "clear": Badge(words="clear", sign="✓", tone="good"),
    "equivalent": Badge(words="equivalent and cheaper", sign="✓", tone="good"),
    "undecided": Badge(words="undecided"),
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
    """One section per question."""
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
        return Badge(words=shortened(str(advice["badge"]), record.values))
    return BADGES[advice["verdict"]]


def leads(record: Record) -> list[str]:
    """The evidence behind the answer, in sentences."""
    values, names = record.values, called(record.values)
    advice = values["recommendation"]
    said = [*advice["sentences"], *values.get("race_notes", ())]
    found = [shortened(str(each), values) for each in said]
    found.append(f"{values['images']['short']}.")
    tuned = values.get("fine_tuning")
    if tuned:
        gain = tuned["gain"]
        found.append(
            f"Fine-tuning {names[tuned['model']]} changed the {number(tuned['linear'], 1)} % "
            f"of a linear head on its frozen features by {number(gain['value'], 1)} points "
            f"[{number(gain['low'], 1)}, {number(gain['high'], 1)}]."
        )
    scratch = values.get("scratch")
    if scratch:
        gain = scratch["gain"]
        found.append(
            f"From random weights the same network gets {number(scratch['top1'], 1)} % in as many "
            f"epochs, {number(gain['value'], 1)} points [{number(gain['low'], 1)}, "
            f"{number(gain['high'], 1)}] less; how far a longer training from scratch gets is what "
            "`vitascope compare` without --pretrained tells."
        )
    taken = values["recommendation"]["model"]
    lines = {each["model"]: each for each in values["table"]}
    static = values["order"]["imagenet"]
    if len(static) > 1:
        found.append(_by_imagenet(lines[static[0]], taken, names))
    more = lines[taken].get("twice")
    found.append(
        f"Twice the images would bring the linear probe of {names[taken]} from "
        f"{number(more['now'], 1)} to about {number(more['value'], 1)} % "
        f"[{number(more['low'], 1)}, {number(more['high'], 1)}]."
        if more
        else "What twice the images would bring cannot be said from these."
    )
    return found


def _by_imagenet(first: Mapping[str, Any], taken: str, names: Mapping[str, str]) -> str:
    """Return what one would have chosen without these images."""
    said = f"ImageNet accuracy alone would have chosen {names[first['model']]}"
    gap = first.get("behind")
    if first["model"] == taken:
        return f"{said} too."
    if gap is None:
        return f"{said}, the highest mean here too."
    return (
        f"{said}: here {number(gap['value'], 1)} points [{number(gap['low'], 1)}, "
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
