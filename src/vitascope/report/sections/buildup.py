"""A build-up search: where attention in place of convolutions helped (Park & Kim, Fig. 12a)."""

from vitascope.report.figures.figure import Dots, DotSeries, Figure
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.buildup_figure import says
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.buildup import buildup_table
from vitascope.settings import command_line

__all__ = ["section"]


def section(source: Source, looks: Styles) -> Section:
    """One section a search."""
    record = source.record
    said = says(record)
    rows = record.values["candidates"]
    groups = tuple(" ".join(row["kinds"]) for row in rows)
    validation = [list(row["top1_seeds"]) or [row["top1"]] for row in rows]
    series = (
        DotSeries(label="validation images", values=validation, look=looks.of("validation images")),
        DotSeries(label="test images", values=[[row["test_top1"]] for row in rows],
                  look=looks.of("test images")),
    )  # fmt: skip
    answer, _, rest = said.partition(". ")
    figure = Figure(
        name="buildup",
        title="Each network, in the order tried",
        reading=said,
        how="c: a block of convolutions, a: one of attention, a word a stage. Validation images "
        "decide; test images decide nothing.",
        panels=(Dots(title="", y_label="top-1 accuracy (%)", groups=groups, series=series),),
    )
    config = record.config
    command = command_line(
        ["vitascope", "study", "buildup"],
        [("--base", config.get("base")), ("--data", config.get("data")),
         ("--seeds", tuple(config.get("seeds") or ()))],
    )  # fmt: skip
    command = made_by(record, "study") or command
    made = again(record, command, seed=config.get("seeds") or record.seed)
    return Section(
        kind="buildup", label="Study", title="Building attention into a network",
        question="Where does attention help in place of convolutions?", answer=f"{answer}.",
        leads=(rest,) if rest else (), figures=(figure,), tables=(buildup_table(record),),
        source=source.path.name,
        agains=(made,),
    )  # fmt: skip
