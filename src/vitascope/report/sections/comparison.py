"""A comparison of models over fractions of the images."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vitascope.formatting import count, duration, interval, number, short, signed
from vitascope.measure.attention.figures import GATE, NONLOCALITY
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.comparison_figures import comparison_figures
from vitascope.report.sections.comparison_record import ComparisonRecord, Entry, Model
from vitascope.report.sections.mistakes import LISTS, chosen_models_mistakes
from vitascope.report.sections.section import Again, Badge, Fold, ModelBar, Section, again
from vitascope.table import Cell, Table, as_text, row

_MOST_BARS = 8  # models under the headline; all are in the tables
_ACCURACY = {
    "top1": ("Top-1 accuracy", "The share of images whose most probable class is the right one."),
    "balanced": (
        "Balanced accuracy",
        "The mean over classes of the share of a class's images that are recognised: every class "
        "counts alike, however many images it has.",
    ),
}
_CHOICE = {
    "validation": "Held out of the training images, to choose the model. Accuracies and leads are "
    "measured on test images, which were not used for selection.",
    "held-out": "Every training image was held out once, in one of the folds, and tested by a "
    "model that had not seen it; the model is chosen on these images. Intervals take the overlap "
    "of the training sets into account (Nadeau and Bengio 2003).",
    "test": "The test images choose the model and measure it too, so the accuracy of the best of "
    "several is too high.",
}
_TERMS = (
    (
        "Lead",
        "a − r percentage points, with the mean accuracies a of the model and r of the reference. "
        "“Ahead” and “behind” mean that the 95 % interval of the lead, paired over the test images "
        "and crossed with the seeds, excludes zero. Otherwise, and always with one run per model, "
        "there is no measurable difference.",
    ),
    (
        "95 % interval",
        "If the comparison were repeated with other test images and other seeds, 95 of 100 such "
        "intervals would contain the true number. It is the only kind of spread on this page.",
    ),
    ("Fraction", "The same share of every class, drawn with the seed."),
    (
        "Multiply-adds",
        "Multiplications with an addition in one forward pass of one image; papers often call them "
        "FLOPs.",
    ),
)
_ATTENTION_TERMS = {"gates": ("Gate", GATE), "nonlocality": ("Nonlocality", NONLOCALITY)}


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of every model compared."""
    return [
        (str(model["name"]), str(model.get("kind", "other")))
        for source in sources
        for model in source.record.values.get("models") or ()
    ]


def section(source: Source, styles: Styles) -> Section:
    """Return one section per comparison."""
    comparison = ComparisonRecord(source.record, styles)
    advice, data = comparison.values["recommendation"], comparison.values["data"]
    seeds = comparison.num_seeds
    badge = _badge(advice, seeds)
    chosen = comparison.values.get("chosen_by") or {}
    choosing = [(f"{chosen['images']} images", count(chosen["count"]))] if chosen else []
    held = chosen["count"] if chosen.get("images") == "validation" else 0
    channels = f", {data['size'][0]} channels" if data["size"][0] != 1 else ", grey"
    facts = (
        ("images", str(data["name"])),
        ("training images", count(data["num_train"] - held)),
        *choosing,
        *([("test images", count(data["num_test"]))] if data["num_test"] else []),
        ("classes", count(data["num_classes"])),
        (f"pixels{channels}", f"{data['size'][1]} × {data['size'][2]}"),
        ("seed per model" if seeds == 1 else "seeds per model", str(seeds)),
    )
    figures = comparison_figures(comparison)
    names = {figure.name for figure in figures}
    labels = {name: model.label for name, model in comparison.models.items()}
    wrong = chosen_models_mistakes(source.record, labels)
    tables = (accuracy_table(comparison), cost_table(comparison), *wrong.tables)
    galleries = [gallery.table.name for gallery in wrong.galleries]
    drawn = names | {table.name for table in tables} | {*galleries}
    sentences = tuple(advice.get("sentences") or ())
    cautions = tuple(advice.get("cautions") or ())
    others = tuple(each for each in sentences[1:] if each not in cautions)
    folds = (
        Fold(title="How the model was chosen, and what else to know", sentences=others),
        Fold(title="Mistakes, class by class", names=("confusion", "classes", *LISTS)),
        Fold(title="Learning curves", names=("learning",)),
        Fold(title="Gates and nonlocality over training", names=("gates", "nonlocality")),
        Fold(title="Cost", names=("cost",)),
    )
    bars = _bars(comparison)
    return Section(
        kind="compare",
        label="Comparison",
        title=f"Which model for {data['name']}?",
        question=comparison.values.get("question") or "Which model for these images?",
        answer=advice["headline"],
        badge=badge,
        leads=sentences[:1],
        cautions=cautions,
        bars=tuple(bars[:_MOST_BARS]),
        bars_title=_bars_title(comparison, len(bars)),
        steps=_steps(source),
        mistakes=wrong.first,
        facts=facts,
        folds=tuple(fold for fold in folds if fold.sentences or set(fold.names) & drawn),
        explored=_pair(advice.get("model"), comparison),
        figures=(*figures, *wrong.figures),
        galleries=wrong.galleries,
        tables=tables,
        terms=(
            *_choice_terms(comparison),
            *_TERMS,
            *(term for name, term in _ATTENTION_TERMS.items() if name in names),
        ),
        agains=(_again(comparison),),
        source=source.path.name,
    )


def _choice_terms(comparison: ComparisonRecord) -> list[tuple[str, str]]:
    """Return what is measured, and which images chose."""
    terms = [_ACCURACY[comparison.metric]]
    images = (comparison.values.get("chosen_by") or {}).get("images")
    if images:
        terms.append((f"{images.capitalize()} images", _CHOICE[images]))
    return terms


def _badge(advice: Mapping[str, Any], seeds: int) -> Badge:
    """Return how far the answer can be trusted; cautions come first."""
    cautions = advice.get("cautions") or ()
    if cautions:
        return Badge(text=advice.get("badge") or f"With caution. {cautions[0]}")
    if advice.get("badge"):
        good = advice["confidence"] in ("clear", "equivalent")
        return Badge(text=advice["badge"], **({"sign": "✓", "tone": "good"} if good else {}))
    margin = f"{advice.get('margin', 1.0):g} point"
    sentences = {
        "clear": "A clear result",
        "equivalent": f"Shown to be within {margin} of the best, and cheaper",
    }
    if advice.get("confidence") in sentences:
        return Badge(text=sentences[advice["confidence"]], sign="✓", tone="good")
    if seeds == 1:
        return Badge(text="Not settled: one seed shows no spread")
    return Badge(text="Undecided: the models are too close for these runs and test images")


def _bars(comparison: ComparisonRecord) -> list[ModelBar]:
    """The models on the most images, the best first."""
    rows = comparison.known_rows
    entries = rows[-1].entries.values() if rows else ()
    return [
        ModelBar(
            label=entry.model.label,
            style=entry.model.style,
            value=entry.mean,
            low=entry.low,
            high=entry.high,
            note=_note(entry.model),
        )
        for entry in sorted(entries, key=lambda entry: -entry.mean)
    ]


def _bars_title(comparison: ComparisonRecord, number: int) -> str:
    """Return what the bars are, and how many models they leave out."""
    rows = comparison.known_rows
    if not rows:
        return ""
    training = f"after training on {count(rows[-1].num_images)} images"
    title = f"{comparison.measured} on {comparison.images}, {training}, with 95 % intervals."
    more = number - _MOST_BARS
    return f"{title} {more} more in the table." if more > 0 else title


def _note(model: Model) -> str:
    size = f"{short(model.parameters)} parameters" if model.parameters else ""
    locality = f"built-in locality: {model.locality}" if model.locality else ""
    return ", ".join(filter(None, (locality, size)))


def _steps(source: Source) -> tuple[tuple[str, str], ...]:
    """Return what to do next; a record made before commands were kept in it has the run's alone."""
    advice = source.record.values["recommendation"]
    if "next" in advice:
        return tuple((str(step), str(command)) for step, command in advice["next"])
    if not advice.get("run"):
        return ()
    predict = f"vitascope predict {shlex.quote(str(advice['run']))} IMAGES --out answers.csv"
    return (("Use it", predict),)


def _pair(model: str | None, comparison: ComparisonRecord) -> tuple[str, ...]:
    """The recommended model and the best of the others, for the explorer."""
    rows = comparison.known_rows
    entries = sorted(rows[-1].entries.values(), key=lambda each: -each.mean) if rows else []
    names = [entry.model.name for entry in entries]
    return tuple(sorted(names, key=lambda name: name != model)[:2])


def _again(comparison: ComparisonRecord) -> Again:
    """The command and the circumstances, with the evidence and what is said of the data."""
    record, values = comparison.record, comparison.values
    data = values["data"]
    made = again(
        record,
        str(values.get("command") or ""),
        seed=values.get("seeds") or record.seed,
        recipe=values.get("recipe") or {},
        notes=(*values["recommendation"].get("evidence", ()), *data.get("notes", ())),
    )
    more: list[tuple[str, Any]] = []
    if values.get("training_seconds"):
        more.append(("training", f"{duration(values['training_seconds'])}, all runs together"))
    if data.get("classes"):
        more.append(("classes", data["classes"]))
    return replace(made, rows=(*made.rows, *more))


def accuracy_table(comparison: ComparisonRecord, *, intervals: bool = True) -> Table:
    """Accuracy of each model on each share of the images; ``intervals`` adds those of the leads."""
    shares = comparison.rows
    best = [max((e.mean for e in share.entries.values()), default=0.0) for share in shares]
    rows = []
    for model in comparison.models.values():
        own = [share.entries.get(model.name) for share in shares]
        cells = [
            _cell(entry, intervals, len(share.entries) > 1 and entry.mean == top)
            if entry
            else Cell(text="")
            for entry, share, top in zip(own, shares, best, strict=True)
        ]
        rows.append(row(model.label, cells, style=model.style))
    entries = [entry for share in shares for entry in share.entries.values()]
    spread = " [95 % interval]" if any(entry.low is not None for entry in entries) else ""
    if not spread and any(entry.std is not None for entry in entries):
        spread = " ± standard deviation over seeds"
    caption = f"Mean{spread} on {comparison.images}"
    if comparison.reference:
        caption += f"; lead over {comparison.reference.label} in percentage points"
    return Table(
        name="accuracy",
        title=f"{comparison.measured} (%)",
        caption=f"{caption}. Bold: highest mean of a column.",
        corner="Model",
        columns=tuple(f"{share.share} ({count(share.num_images)} images)" for share in shares),
        rows=tuple(rows),
        beside="lead",
    )


def _cell(entry: Entry, intervals: bool, bold: bool) -> Cell:
    """The mean; next to it the lead and its verdict."""
    text, note = number(entry.mean, 1), ""
    if entry.low is not None:
        text += f" {interval(entry.low, entry.high)}"
    elif entry.std is not None:
        text += f" ± {number(entry.std, 1)}"
    if entry.points is not None:
        note = signed(entry.points)
        if intervals and entry.points_low is not None:
            note += f" {interval(entry.points_low, entry.points_high, sign=True)}"
        verdict = {"within noise": "no measurable difference"}.get(entry.verdict, entry.verdict)
        note += f", {verdict}" if verdict else ""
    tone = entry.verdict if entry.verdict in ("ahead", "behind") else ""
    return Cell(text=text, note=note, bold=bold, tone=tone)


def cost_table(comparison: ComparisonRecord) -> Table:
    """Size, work, speed and accuracy of each model."""
    last = comparison.rows[-1] if comparison.rows else None
    rows = []
    for model in comparison.models.values():
        entry = last.entries.get(model.name) if last else None
        cells = [
            short(model.parameters) if model.parameters else "",
            short(model.multiply_adds, 1) if model.multiply_adds else "",
            count(model.images_per_second) if model.images_per_second else "",
            number(entry.mean, 1) if entry else "",
        ]
        rows.append(row(model.label, cells, style=model.style))
    images = f" with {count(last.num_images)} training images" if last else ""
    return Table(
        name="cost",
        title="What it costs",
        caption="Size, work for one image, speed in training on the machine named below, and "
        f"accuracy{images}.",
        corner="Model",
        columns=("Parameters", "Multiply-adds", "Images/s", f"{comparison.measured} (%)"),
        rows=tuple(rows),
    )


def comparison_text(comparison: ComparisonRecord) -> str:
    """For a terminal: the answer, the accuracies, what else to know, and what to do next."""
    advice = comparison.values["recommendation"]
    cautions, sentences = advice["cautions"], advice["sentences"]
    more = [each for each in sentences[1:] if each not in cautions]
    badge = [f"{advice['badge']}."] if advice.get("badge") else []
    table = as_text(accuracy_table(comparison, intervals=False))
    steps = [f"{step}: `{command}`" for step, command in advice.get("next") or ()]
    answer = [advice["headline"], *badge, *sentences[:1], *cautions]
    return "\n".join([*answer, "", table, "", *more, "", *steps])
