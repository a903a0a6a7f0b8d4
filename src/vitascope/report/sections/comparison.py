"""A comparison of models over fractions of the images: the page's first and richest section."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from vitascope.report.figures.cost import AXES, draw_cost
from vitascope.report.figures.efficiency import draw_efficiency
from vitascope.report.figures.learning import WHAT, draw_learning
from vitascope.report.figures.over_training import FEWEST, draw_layer, trace_scale
from vitascope.report.figures.scale import count
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections import comparison_readings as readings
from vitascope.report.sections.comparison_record import Comparison, Trace
from vitascope.report.sections.section import Badge, Section
from vitascope.report.tables.comparison import accuracy_table, cost_table

__all__ = ["drawn", "models", "section"]


_SINGLE = "Thin lines: heads (point at one to see which); thick: their mean."
_BANDS = "Bands: from the least head to the most; lines: their mean."


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of every model compared."""
    return [
        (str(model["name"]), str(model.get("kind", "other")))
        for source in sources
        for model in source.record.values.get("models") or ()
    ]


def section(source: Source, looks: Styles) -> Section:
    """One section a comparison."""
    bare = Comparison(source.record)
    comparison = Comparison(source.record, {name: looks.of(name) for name in bare.models})
    advice, data = comparison.values["recommendation"], comparison.values["data"]
    seeds = num_seeds(comparison)
    if advice.get("confidence") == "clear":
        badge = Badge(words="A clear result", sign="✓", tone="good")
    elif seeds > 1:
        badge = Badge(words="Within noise: the seeds differ as much as the models")
    else:
        badge = Badge(words="Not settled: one seed shows no spread")
    channels = f", {data['size'][0]} channels" if data["size"][0] != 1 else ", grey"
    facts = (
        ("images", str(data["name"])),
        ("to train on", count(data["num_train"])),
        ("to test on", count(data["num_test"])),
        ("classes", count(data["num_classes"])),
        (f"pixels{channels}", f"{data['size'][1]} × {data['size'][2]}"),
        ("seed a model" if seeds == 1 else "seeds a model", str(seeds)),
    )
    return Section(
        kind="compare",
        label="Comparison",
        title=f"Which model for {data['name']}?",
        question=comparison.values.get("question") or "Which model for these images?",
        answer=advice["headline"],
        badge=badge,
        leads=tuple((advice.get("sentences") or [])[:3]),
        facts=facts,
        tables=(accuracy_table(comparison), cost_table(comparison)),
        source=source.path.name,
        special=comparison,
    )


def num_seeds(comparison: Comparison) -> int:
    """The most seeds that a model was given."""
    entries = [entry for row in comparison.rows for entry in row.entries.values()]
    return max((entry.num_seeds for entry in entries), default=0)


def drawn(comparison: Comparison, most: int) -> dict[str, Any]:
    """What the template shows; ``most`` bounds the points drawn of a line over epochs."""
    return {
        "comparison": comparison,
        "tables": (accuracy_table(comparison), cost_table(comparison)),
        "values": comparison.values,
        "record": comparison.record,
        "efficiency": [draw_efficiency(comparison), draw_efficiency(comparison, narrow=True)],
        "costs": [cost for what in AXES if (cost := draw_cost(comparison, what))],
        "learning": _learning(comparison, most),
        "gates": _inside(comparison, "gates", most),
        "nonlocality": _inside(comparison, "nonlocality", most),
        "heads": _SINGLE if most > FEWEST else _BANDS,
        "readings": readings,
        "seeds": num_seeds(comparison),
    }


def _learning(comparison: Comparison, most: int) -> list[tuple[str, list[Markup]]]:
    """(what is drawn, a plot a fraction) for accuracy and training loss."""
    found = []
    for what, name in WHAT.items():
        plots = [
            plot for row in comparison.rows if (plot := draw_learning(comparison, row, what, most))
        ]
        if plots:
            found.append((name, plots))
    return found


def _inside(
    comparison: Comparison, what: str, most: int
) -> list[tuple[str, list[tuple[Trace, list[Markup]]]]]:
    """(the fraction's caption, [(trace, a plot a layer)]), fewest images first."""
    traces = comparison.traces(what)
    scale = trace_scale(traces, what)
    found = []
    for fraction, group in groupby(traces, key=lambda trace: trace.fraction):
        row = comparison.row(fraction)
        share = row.share if row else f"{100 * fraction:.3g} %"
        plots = [
            (trace, [draw_layer(trace, i, what, scale, most) for i in range(len(trace.layers))])
            for trace in group
        ]
        images = f"{share} images" if row is None else f"{share} ({count(row.num_images)} images)"
        found.append((images, plots))
    return found
