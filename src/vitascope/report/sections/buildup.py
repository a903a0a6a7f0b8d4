"""A build-up search: where attention in place of convolutions helped (Park & Kim, Fig. 12a)."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.errors import UserError
from vitascope.figure import Dots, DotSeries, Figure
from vitascope.record import Record
from vitascope.report.figures.figure import Cell, Row, Table
from vitascope.report.figures.scale import count
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number, signed
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.report.tables.terminal import table
from vitascope.settings import command_line

__all__ = ["says", "section", "tabulated"]


def _rows(record: Record) -> Sequence[Mapping[str, Any]]:
    """The networks that were tried, the base first."""
    if record.kind != "buildup":
        raise UserError(f"this is a record of {record.kind!r}; give one of 'buildup'")
    rows: Sequence[Mapping[str, Any]] = record.values.get("candidates") or ()
    if not rows:
        raise UserError("the build-up has tried nothing yet; the same command goes on with it")
    return rows


def tabulated(record: Record) -> str:
    """All networks, one line each, accuracies in percent."""
    head = ["tried", "blocks", "new in", "MSAs", "validation", "change", "", "test"]
    head += ["parameters", "seconds"]
    lines = []
    for place, row in enumerate(_rows(record)):
        new, change, verdict = "", "", "base"
        if place:
            new, change = f"c{row['stage'] + 1}", f"{row['change']:+.2f} ± {row['noise']:.2f}"
            verdict = "kept" if row["kept"] else "not kept"
        cells = [str(place), " ".join(row["kinds"]), new, str(row["num_msa"])]
        cells += [_percent(row, "top1"), change, verdict, _percent(row, "test_top1")]
        lines.append([*cells, f"{row['parameters']:,}", f"{row['seconds']:.0f}"])
    return table(head, lines)


def _percent(row: Mapping[str, Any], name: str) -> str:
    std = row[f"{name}_std"]
    return f"{row[name]:.2f}" + ("" if std is None else f" ± {std:.2f}")


def says(record: Record) -> str:
    """What was found, and whether one can know."""
    rows = _rows(record)
    base, kept = rows[0], [row for row in rows if row["kept"]][-1]
    tried = len(rows) - 1
    if kept is base:
        found = f"No MSA block helped: {' '.join(base['kinds'])} stays."
    else:
        before, after = (" ".join(row["kinds"]) for row in (base, kept))
        found = (
            f"Kept {after}: {kept['top1']:.2f} % on the validation images against "
            f"{base['top1']:.2f} % of {before}, and {kept['test_top1']:.2f} % against "
            f"{base['test_top1']:.2f} % on the test images."
        )
    clear = sum(abs(row["change"]) > row["noise"] for row in rows[1:])
    found += f" {clear} of {tried} changes {'is' if clear == 1 else 'are'} beyond the noise (95 %)."
    if clear < tried:
        found += " More seeds or images would tell more."
    if base["top1_std"] is None:
        found += " One seed a network: the spread between runs is unknown."
    if not record.values["complete"]:
        found += " The rule has blocks left to try."
    return found


def section(source: Source, styles: Styles) -> Section:
    """One section per search."""
    record = source.record
    said = says(record)
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
    answer, _, rest = said.partition(". ")
    figure = Figure(
        name="buildup",
        title="Each network, in the order tried",
        reading=said,
        how="c: a block of convolutions, a: one of attention, one word per stage. ✓: kept, ✗: "
        "taken back. Validation images decide; test images decide nothing.",
        panels=(Dots(title="", y_label="top-1 accuracy (%)", groups=groups, series=series),),
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
        tables=(_table(rows),),
        source=source.path.name,
        agains=(made,),
    )


def _table(rows: Sequence[Any]) -> Table:
    columns = ("Attention blocks", "Validation (%)", "Change", "Verdict", "Test (%)", "Parameters")
    found = []
    for place, row in enumerate(rows):
        std = "" if row["top1_std"] is None else f" ± {number(row['top1_std'], 2)}"
        change = f"{signed(row['change'])} ± {number(row['noise'], 1)}" if place else "–"
        verdict = ("✓ kept" if row["kept"] else "✗ not kept") if place else "base"
        words = (
            str(row["num_msa"]),
            number(row["top1"], 2) + std,
            change,
            verdict,
            number(row["test_top1"], 2),
            count(row["parameters"]),
        )
        found.append(Row(label=" ".join(row["kinds"]), cells=tuple(Cell(words=w) for w in words)))
    return Table(
        name="buildup",
        title="All networks; change against the last one kept",
        corner="Blocks",
        columns=columns,
        rows=tuple(found),
    )
