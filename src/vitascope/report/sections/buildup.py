"""A build-up search: where attention in place of convolutions helped (Park & Kim, Fig. 12a)."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.searches import buildup_table, tried_networks, verdict_of
from vitascope.settings import command_line


def says(record: Record) -> str:
    """The result in sentences, and how many changes are decided."""
    rows = tried_networks(record)
    base, final = rows[0], [row for row in rows if row["kept"]][-1]
    tried = len(rows) - 1
    if final is base:
        text = f"No MSA block helped: {' '.join(base['kinds'])} stays."
    else:
        before, after = (" ".join(row["kinds"]) for row in (base, final))
        text = (
            f"Kept {after}: {final['top1']:.2f} % on the validation images against "
            f"{base['top1']:.2f} % of {before}, and {final['test_top1']:.2f} % against "
            f"{base['test_top1']:.2f} % on the test images."
        )
    clear = sum(verdict_of(row) != "undecided" for row in rows[1:])
    one = base["top1_std"] is None
    text += f" {clear} of {tried} changes {'is' if clear == 1 else 'are'} decided"
    text += ": the 95 % interval, paired over validation images and crossed with seeds, says so."
    if clear < tried:
        text += f" {_undecided(rows[1:])}"
    if one:
        text += " One seed per network: another may differ, so nothing is decided."
    if not record.values["complete"]:
        text += " The rule has blocks left to try."
    return text


def _undecided(rows: Sequence[Mapping[str, Any]]) -> str:
    """The smallest change that would have been found, where nothing is decided."""
    seen = [row["detectable"] for row in rows if row.get("detectable") is not None]
    more = "More seeds or images would tell more"
    return f"{more}: here {min(seen):.1f} points or more would be found." if seen else f"{more}."


def section(source: Source, styles: Styles) -> Section:
    """One section per search."""
    record = source.record
    summary = says(record)
    rows = record.values["candidates"]
    groups = tuple(f"{'✓' if row['kept'] else '✗'} {' '.join(row['kinds'])}" for row in rows)
    validation = [list(row["top1_seeds"]) or [row["top1"]] for row in rows]
    series = (
        DotSeries(
            label="validation images", values=validation, style=styles.of("validation images")
        ),
        DotSeries(
            label="test images",
            values=[[row["test_top1"]] for row in rows],
            style=styles.of("test images"),
        ),
    )
    answer, _, rest = summary.partition(". ")
    figure = Figure(
        name="buildup",
        title="Each network, in the order tried",
        reading=summary,
        how="c: a block of convolutions, a: one of attention, one word per stage. ✓: kept, ✗: "
        "taken back. Validation images decide; test images decide nothing.",
        panels=(Dots(y_label="top-1 accuracy (%)", groups=groups, series=series),),
    )
    config = record.config
    command = command_line(
        ["vitascope", "study", "buildup"],
        [
            ("--base", config.get("base")),
            ("--data", config.get("data")),
            ("--seeds", tuple(config.get("seeds") or ())),
        ],
    )
    command = made_by(record, "study") or command
    made = again(record, command, seed=config.get("seeds") or record.seed)
    return Section(
        kind="buildup",
        label="Study",
        title="Building attention into a network",
        question="Where does attention help in place of convolutions?",
        answer=f"{answer}.",
        leads=(rest,) if rest else (),
        figures=(figure,),
        tables=(buildup_table(record),),
        source=source.path.name,
        agains=(made,),
    )
