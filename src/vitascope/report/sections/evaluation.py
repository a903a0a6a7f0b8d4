"""Evaluations: how often models are right on labelled images, and how well calibrated they are."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Figure, Style
from vitascope.record import Record
from vitascope.report.figures.axes import count
from vitascope.report.figures.style import Styles, apart
from vitascope.report.formatting import number
from vitascope.report.instruments.instrument import Seen
from vitascope.report.instruments.mistakes import MistakeParts, mistake_parts
from vitascope.report.instruments.per_layer import joined
from vitascope.report.instruments.robustness import reliability
from vitascope.report.records import Source
from vitascope.report.sections.inspection import labels_of, model_name
from vitascope.report.sections.run import TERMS
from vitascope.report.sections.section import Again, Section, again, made_by, pinned
from vitascope.report.tables.models import evaluation_table, share_right
from vitascope.settings import command_line


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of each model; an evaluation does not say its kind."""
    return [(model_name(source), "other") for source in sources]


def section(sources: Sequence[Source], styles: Styles) -> Section:
    """All evaluations together."""
    names = labels_of([{"evaluation": source} for source in sources])
    chosen = apart([styles.of(model_name(source)) for source in sources])
    order = sorted(range(len(names)), key=lambda i: -sources[i].record.values["top1"])
    several, first = len(names) > 1, f"{names[order[0]]} is right"
    shares = [_right(sources[i].record) for i in order]
    said = [f"{names[i]} {share}" for i, share in zip(order[1:], shares[1:], strict=True)]
    lead = f"{first} most often: {shares[0]}" if several else f"{first} on {shares[0]}"
    answer = joined([lead, *said], 3)
    leads = ["The 95 % interval is for this number of images, without the spread over seeds."]
    if several:
        leads.insert(0, _ahead(*(sources[i].record for i in order[:2])))
    figures = _figures(sources, names, chosen)
    record = sources[0].record
    wrong = MistakeParts() if several else mistake_parts(record.values, record.arrays)
    figures += wrong.figures
    return Section(
        kind="evaluation",
        label="Evaluation" if not several else "Evaluations",
        title=f"How good {names[0]} is" if not several else f"How good {len(names)} models are",
        question="How often is it right?" if not several else "Which is right most often?",
        answer=answer,
        leads=tuple(leads),
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
    images = count(record.values["num_images"])
    return f"{share_right(record)} % of {images} images ({record.config.get('data')})"


def _ahead(first: Record, second: Record) -> str:
    """Whether the best two differ on the same images by more than chance (McNemar's exact test)."""
    kept = [record.arrays for record in (first, second)]
    source = [[record.config.get(name) for name in ("data", "split")] for record in (first, second)]
    same = source[0] == source[1] and all("predicted" in arrays for arrays in kept)
    if not same or not np.array_equal(kept[0]["label"], kept[1]["label"]):
        return "The first two were not measured on the same images: their lead is not judged."
    from scipy.stats import binomtest  # takes a second to import

    right, other = (arrays["predicted"] == arrays["label"] for arrays in kept)
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
    seen = [
        Seen(label=name, style=style, record=source.record)
        for source, name, style in zip(sources, names, styles, strict=True)
        if "bin_count" in source.record.arrays
    ]
    if not seen:
        return ()
    said = [f"{one.label} {number(100 * one.values['ece'], 1)} %" for one in seen]
    reading = f"Expected calibration error: {', '.join(said)}."
    return (reliability(seen, [one.record.arrays for one in seen], reading),)


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
