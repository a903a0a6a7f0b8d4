"""The tables of a comparison: accuracy with the gain over the reference, and what it costs."""

from vitascope.report.figures.axes import count, short
from vitascope.report.formatting import number, signed
from vitascope.report.sections.comparison_record import ComparisonRecord, Entry
from vitascope.report.tables.table import Cell, Table, as_text, row


def accuracy_table(comparison: ComparisonRecord, *, intervals: bool = True) -> Table:
    """Top-1 of each model on each share of the images; ``intervals`` adds those of the gains."""
    rows = []
    for share in comparison.rows:
        best = max((entry.mean for entry in share.entries.values()), default=0.0)
        several = len(share.entries) > 1
        cells = []
        for name in comparison.models:
            entry = share.entries.get(name)
            bold = several and entry is not None and entry.mean == best
            cells.append(_cell(entry, intervals, bold))
        rows.append(row(f"{share.share} ({count(share.num_images)})", cells))
    models = comparison.models.values()
    entries = [entry for share in comparison.rows for entry in share.entries.values()]
    spread = any(entry.std is not None for entry in entries)
    caption = f"Mean{' ± standard deviation over seeds' if spread else ''}"
    if comparison.reference:
        gains = " with its 95 % interval" if intervals else ""
        lead = f"lead over {comparison.reference.label}, in points{gains} and in percent"
        caption += f"; {lead}"
    return Table(
        name="accuracy",
        title=f"{comparison.measured} (%)",
        caption=f"{caption}; on {comparison.images}. Bold: highest mean of a row.",
        corner="Training images",
        columns=tuple(model.label for model in models),
        styles=tuple(model.style for model in models),
        rows=tuple(rows),
        beside="lead",
    )


def _cell(entry: Entry | None, intervals: bool, bold: bool) -> Cell:
    """Mean ± spread over seeds; beside it the gain, its interval and the verdict."""
    if entry is None:
        return Cell(words="")
    spread = "" if entry.std is None else f" ± {number(entry.std, 1)}"
    note = ""
    if entry.points is not None:
        note = f"{signed(entry.points)} points"
        if intervals and entry.points_low is not None and entry.points_high is not None:
            note += f" [{signed(entry.points_low)}, {signed(entry.points_high)}]"
        note += f", {signed(entry.gain)} %" if entry.gain is not None else ""
        note += f", {entry.verdict}" if entry.verdict else ""
    tone = entry.verdict if entry.verdict in ("ahead", "behind") else ""
    return Cell(words=number(entry.mean, 1) + spread, note=note, bold=bold, tone=tone)


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
    """For a terminal: the accuracies and the recommendation."""
    advice = comparison.values["recommendation"]
    table = as_text(accuracy_table(comparison, intervals=False))
    badge = [f"{advice['badge']}."] if advice.get("badge") else []
    return "\n".join([table, "", advice["headline"], *badge, *advice["sentences"]])
