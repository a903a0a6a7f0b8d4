"""Evaluations: how often models are right on labelled images, and how well calibrated they are."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Figure, Style
from vitascope.formatting import count, interval, number
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.robustness.figures import reliability
from vitascope.record import Record
from vitascope.reliability import TOO_WIDE, wilson
from vitascope.report.figures.style import Styles, apart
from vitascope.report.records import Source
from vitascope.report.sections.inspection import labels_of, model_name, next_steps
from vitascope.report.sections.mistakes import LISTS, MistakeParts, mistake_parts
from vitascope.report.sections.run import TERMS
from vitascope.report.sections.section import Again, Fold, ModelBar, Section, again, made_by, pinned
from vitascope.settings import command_line
from vitascope.table import Cell, Table, row


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of each model; an evaluation does not say its kind."""
    return [(model_name(source), "other") for source in sources]


def section(sources: Sequence[Source], styles: Styles) -> Section:
    """Return one section for all evaluations."""
    names = labels_of([{"evaluation": source} for source in sources])
    chosen = apart([styles.of(model_name(source)) for source in sources])
    order = sorted(range(len(names)), key=lambda i: -sources[i].record.values["top1"])
    several, best = len(names) > 1, sources[order[0]].record
    leads = [f"Right on {_right(best)}."]
    if several:
        leads.append(_ahead(*(sources[i].record for i in order[:2])))
    cautions = [caution for source in sources if (caution := at_chance(source.record))]
    figures = _figures(sources, names, chosen)
    record = sources[0].record
    wrong = MistakeParts() if several else mistake_parts(record.values, record.arrays)
    figures += wrong.figures
    mistakes = Fold(title="Mistakes, class by class", names=("confusion", "classes", *LISTS))
    return Section(
        kind="evaluation",
        label="Evaluation" if not several else "Evaluations",
        title=f"How good {names[0]} is" if not several else f"How good {len(names)} models are",
        question="How often is it right?" if not several else "Which is right most often?",
        answer=evaluation_headline([source.record for source in sources], names),
        leads=tuple(leads),
        cautions=tuple(cautions),
        bars=tuple(_bar(sources[i].record, names[i], chosen[i]) for i in order) if several else (),
        bars_title="Top-1 accuracy, with the 95 % interval for that number of images.",
        steps=() if several else next_steps(sources[0], evaluated=True),
        mistakes=wrong.first,
        folds=(mistakes,) if wrong != MistakeParts() else (),
        figures=figures,
        galleries=wrong.galleries,
        tables=(evaluation_table([s.record for s in sources], names, chosen), *wrong.tables),
        terms=(
            *TERMS[:2],
            *((figure.title, figure.definition) for figure in figures if figure.definition),
        ),
        agains=tuple(_again(s, n, several) for s, n in zip(sources, names, strict=True)),
        source=sources[0].path.name if not several else "",
    )


def _right(record: Record) -> str:
    low, high = right_interval(record)
    top1, images = number(100 * record.values["top1"], 1), count(record.values["num_images"])
    inside = f"95 % interval {number(low, 1)} to {number(high, 1)}"
    inside = "too few images to tell" if high - low > TOO_WIDE else inside
    return f"{top1} % ({inside}) of {images} images of {record.config.get('data')}"


def _bar(record: Record, name: str, style: Style) -> ModelBar:
    low, high = right_interval(record)
    return ModelBar(label=name, style=style, value=100 * record.values["top1"], low=low, high=high)


def _ahead(first: Record, second: Record) -> str:
    """Return whether the best two differ by more than chance (McNemar's exact test)."""
    stored = [record.arrays for record in (first, second)]
    source = [[record.config.get(name) for name in ("data", "split")] for record in (first, second)]
    same = source[0] == source[1] and all("predicted" in arrays for arrays in stored)
    if not same or not np.array_equal(stored[0]["label"], stored[1]["label"]):
        return "The first two were not measured on the same images: their lead is not judged."
    from scipy.stats import binomtest  # takes a second to import

    right, other = (arrays["predicted"] == arrays["label"] for arrays in stored)
    ahead, behind = int((right & ~other).sum()), int((~right & other).sum())
    chance = binomtest(ahead, ahead + behind).pvalue if ahead + behind else 1.0
    beyond = "more" if chance < 0.05 else "no more"
    p = f"p = {number(chance, 2)}" if chance >= 0.01 else "p < 0.01"
    return (
        f"Where the first two differ, the first is right on {count(ahead)} images and the second "
        f"on {count(behind)}: {beyond} than chance (McNemar's exact test, {p})."
    )


def _figures(
    sources: Sequence[Source], names: Sequence[str], styles: Sequence[Style]
) -> tuple[Figure, ...]:
    binned = [
        ModelRecord(label=name, style=style, record=source.record)
        for source, name, style in zip(sources, names, styles, strict=True)
        if "bin_count" in source.record.arrays
    ]
    if not binned:
        return ()
    parts = [f"{one.label} {number(100 * one.values['ece'], 1)} %" for one in binned]
    reading = f"Expected calibration error: {', '.join(parts)}."
    return (reliability(binned, [one.record.arrays for one in binned], reading),)


def _again(source: Source, name: str, titled: bool) -> Again:
    record, config = source.record, source.record.config
    options = [
        ("--data", config.get("data")),
        ("--split", config.get("split")),
        ("--weights", config.get("weights")),
        ("--images", config.get("num_images")),
        ("--image-size", config.get("image_size")),
        *pinned(record),
        ("--out", source.path.with_suffix("")),
    ]
    subject = str(config.get("subject") or model_name(source))
    command = command_line(["vitascope", "evaluate", subject], options)
    notes = tuple(map(str, config.get("notes") or ()))
    return again(
        record, made_by(record, "evaluate") or command, notes=notes, title=name if titled else ""
    )


def right_interval(record: Record) -> tuple[float, float]:
    """Wilson's 95 % interval of top-1 in percent, which is not empty at 0 or 100 %."""
    images = np.array(int(record.values["num_images"]))
    low, high = wilson(images * float(record.values["top1"]), images)
    return 100 * float(low), 100 * float(high)


def share_right(record: Record) -> str:
    """Top-1 in percent with its 95 % interval."""
    return f"{number(100 * record.values['top1'], 1)} {interval(*right_interval(record))}"


def at_chance(record: Record) -> str:
    """Say so where a model is not shown to be better than guessing."""
    classes = len(record.values.get("per_class") or ())
    low, _ = right_interval(record)
    if classes < 2 or low > 100 / classes:
        return ""
    return (
        f"This is no better than guessing one of the {classes} classes, so it says nothing about "
        "the model. Train it longer, or check that the images belong to its classes: `vitascope "
        "data IMAGES`"
    )


def evaluation_headline(records: Sequence[Record], names: Sequence[str]) -> str:
    """Say how often each model is right."""
    order = sorted(range(len(names)), key=lambda index: -records[index].values["top1"])
    shares = [f"{names[i]}: {number(100 * records[i].values['top1'], 0)} % correct" for i in order]
    return "; ".join([*shares[:3], *([f"{len(order) - 3} more"] if len(order) > 3 else [])])


def evaluation_table(
    records: Sequence[Record], names: Sequence[str], styles: Sequence[Style | None]
) -> Table:
    """One line per model; the highest top-1 of several is bold."""
    best = max(float(record.values["top1"]) for record in records)
    rows = []
    for record, name, style in zip(records, names, styles, strict=True):
        values, config = record.values, record.config
        cells: list[str | Cell] = [
            Cell(text=share_right(record), bold=len(records) > 1 and values["top1"] == best),
            number(100 * values["top5"], 1) if values.get("top5") is not None else "",
            number(values["nll"], 3),
            number(100 * values["ece"], 1),
            f"{count(values['num_images'])} of {config.get('data')}, {config.get('split')}",
        ]
        rows.append(row(name, cells, style=style))
    return Table(
        name="evaluations",
        title="On labelled images",
        corner="Model",
        columns=("Top-1 (%)", "Top-5 (%)", "NLL", "ECE (%)", "Images"),
        rows=tuple(rows),
    )
