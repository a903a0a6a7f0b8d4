"""Images a second of models that took turns, next to Table 1 of the ConViT paper."""

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import listed, number
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.models import throughput_table

HOW = "Noise images, medians over turns in one process; rates hold for this machine alone."


def section(source: Source, styles: Styles) -> Section:
    """One section per record."""
    record = source.record
    rates = {name: float(rate) for name, _, rate, *_ in record.values["throughput"]}
    answer = f"Images a second: {listed([f'{n} {number(rate)}' for n, rate in rates.items()])}."
    series = DotSeries(
        label="inference",
        values=[[rate] for rate in rates.values()],
        style=styles.of("throughput"),
    )
    figure = Figure(
        name="speed throughput",
        title="Speed of the models",
        reading=answer,
        how=HOW,
        panels=(Dots(y_label="images a second", groups=tuple(rates), series=(series,)),),
    )
    command = f"vitascope models --speed {' '.join(rates)}"
    return Section(
        kind="throughput",
        label="Speed",
        title="Speed of the models",
        question="How many images a second?",
        answer=answer,
        leads=(HOW,),
        figures=(figure,),
        tables=(throughput_table(record),),
        source=source.path.name,
        agains=(
            again(
                record,
                made_by(record, "models") or command,
                notes=(f"Settings: {listed(record.config)}.",),
            ),
        ),
    )
