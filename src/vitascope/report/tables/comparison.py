"""The tables of a comparison: accuracy with the lead over the reference, and what it costs."""

from vitascope.report.figures.axes import count, short
from vitascope.report.formatting import interval, number, signed
from vitascope.report.sections.comparison_record import ComparisonRecord, Entry
from vitascope.report.tables.table import Cell, Table, as_text, row


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
            else Cell(words="")
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
    words, note = number(entry.mean, 1), ""
    if entry.low is not None:
        words += f" {interval(entry.low, entry.high)}"
    elif entry.std is not None:
        words += f" ± {number(entry.std, 1)}"
    if entry.points is not None:
        note = signed(entry.points)
        if intervals and entry.points_low is not None:
            note += f" {interval(entry.points_low, entry.points_high, sign=True)}"
        verdict = {"within noise": "no measurable difference"}.get(entry.verdict, entry.verdict)
        note += f", {verdict}" if verdict else ""
    tone = entry.verdict if entry.verdict in ("ahead", "behind") else ""
    return Cell(words=words, note=note, bold=bold, tone=tone)


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
    steps = [f"{words}: `{command}`" for words, command in advice.get("next") or ()]
    answer = [advice["headline"], *badge, *sentences[:1], *cautions]
    return "\n".join([*answer, "", table, "", *more, "", *steps])
