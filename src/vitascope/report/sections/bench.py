"""Benchmarks: how fast against peers, as ratios from one process."""

from statistics import median

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import listed, number
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.bench import ABOUT_RATES, ABOUT_RATIOS, bench_tables


def section(source: Source, styles: Styles) -> Section:
    """One section per benchmark."""
    record = source.record
    name = record.kind.removeprefix("bench-")
    rates = {who: float(rate) for who, _, rate, *_ in record.values.get("throughput") or ()}
    shown = rates or {what: float(mid) for what, _, mid, _ in record.values["speed"]}
    slow, fast = min(shown, key=shown.__getitem__), max(shown, key=shown.__getitem__)
    if rates:
        parts = [f"{who} {number(rate)}" for who, rate in rates.items()]
        answer, about = f"Images a second: {listed(parts)}", ABOUT_RATES
    else:
        answer, about = f"{number(median(shown.values()))} times as fast as its peers", ABOUT_RATIOS
        answer += " in the median"
        if len(shown) > 1:
            answer += f", from {number(shown[slow])} ({slow}) to {number(shown[fast])} ({fast})"
    unit = "images a second" if rates else "times as fast"
    series = DotSeries(
        label="inference" if rates else "ours / peer",
        values=[[value] for value in shown.values()],
        style=styles.of(name),
    )
    panel = Dots(y_label=unit, groups=tuple(shown), series=(series,))
    figure = Figure(
        name=f"speed {name}",
        title="Speed against peers",
        reading=f"{answer}.",
        how=about,
        panels=(panel,),
    )
    return Section(
        kind="bench",
        label="Benchmark",
        title=f"Speed: {name}",
        question="How fast is it compared with other implementations?",
        answer=f"{answer}.",
        leads=(about,),
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
