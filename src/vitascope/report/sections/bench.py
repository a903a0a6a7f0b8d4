"""Benchmarks: how fast against peers, as ratios from one process."""

from statistics import median

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import listed, number
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.bench import ABOUT_RATIOS, bench_tables

__all__ = ["section"]


def section(source: Source, styles: Styles) -> Section:
    """One section a benchmark."""
    record = source.record
    name = record.kind.removeprefix("bench-")
    ratios = {what: float(mid) for what, _, mid, _ in record.values["speed"]}
    slow, fast = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    answer = f"{number(median(ratios.values()))} times as fast as its peers in the median"
    if len(ratios) > 1:
        answer += f", from {number(ratios[slow])} ({slow}) to {number(ratios[fast])} ({fast})"
    series = DotSeries(
        label="ours / peer", values=[[ratio] for ratio in ratios.values()], style=styles.of(name)
    )
    panel = Dots(title="", y_label="times as fast", groups=tuple(ratios), series=(series,))
    figure = Figure(
        name=f"speed {name}",
        title="Against its peers",
        reading=f"{answer}.",
        how=ABOUT_RATIOS,
        panels=(panel,),
    )
    return Section(
        kind="bench",
        label="Benchmark",
        title=f"Speed: {name}",
        question="How fast is it, beside what others use?",
        answer=f"{answer}.",
        leads=(ABOUT_RATIOS,),
        figures=(figure,),
        tables=tuple(bench_tables(record)),
        source=source.path.name,
        agains=(
            again(
                record,
                made_by(record, "bench") or f"vitascope bench {name}",
                notes=(f"Settings: {listed(record.config)}.",),
            ),
        ),
    )
