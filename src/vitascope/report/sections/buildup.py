"""A build-up search: where attention in place of convolutions helped (Park & Kim, Fig. 12a)."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.errors import UserError
from vitascope.figure import Dots, DotSeries, Figure
from vitascope.formatting import count, number
from vitascope.record import Record
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.section import Section, again, made_by
from vitascope.settings import command_line
from vitascope.table import Table, row


def buildup_text(record: Record) -> str:
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
    """Return one section per search."""
    record = source.record
    text = buildup_text(record)
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
    answer, _, rest = text.partition(". ")
    figure = Figure(
        name="buildup",
        title="Each network, in the order tried",
        reading=text,
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


def tried_networks(record: Record) -> Sequence[Mapping[str, Any]]:
    """The networks of the record in the order tried, the base first.

    Raises:
        UserError: For a record of another kind, or of a search that has tried nothing.
    """
    if record.kind != "buildup":
        raise UserError(f"this is a record of {record.kind!r}; give one of 'buildup'")
    rows: Sequence[Mapping[str, Any]] = record.values.get("candidates") or ()
    if not rows:
        raise UserError("the build-up has tried nothing yet; the same command continues it")
    return rows


def buildup_table(record: Record) -> Table:
    """All networks, accuracies in percent."""
    rows = []
    for index, network in enumerate(tried_networks(record)):
        new, change, verdict, done = "", "", "", "base"
        if index:
            new = f"c{network['stage'] + 1}"
            change, verdict = _change(network), verdict_of(network)
            done = "kept" if network["kept"] else "not kept"
        cells = [
            new,
            str(network["num_msa"]),
            _with_spread(network, "top1"),
            change,
            verdict,
            done,
            _with_spread(network, "test_top1"),
            count(network["parameters"]),
            count(network["seconds"]),
        ]
        rows.append(row(" ".join(network["kinds"]), cells))
    return Table(
        name="buildup",
        title="All networks in the order tried; change against the last one kept",
        corner="Blocks",
        columns=(
            "New in",
            "MSAs",
            "Validation (%)",
            "Change, 95 % interval",
            "Verdict",
            "Rule",
            "Test (%)",
            "Parameters",
            "Seconds",
        ),
        rows=tuple(rows),
    )


def verdict_of(network: Mapping[str, Any]) -> str:
    """Return whether the change would come again: helps, hurts, or undecided."""
    if "noise" in network:  # an old record: half of an interval
        beyond = abs(network["change"]) > network["noise"]
        return ("helps" if network["change"] > 0 else "hurts") if beyond else "undecided"
    return str(network["verdict"])


def _change(network: Mapping[str, Any]) -> str:
    """Points against the network kept so far, with the interval."""

    def signed(value: float) -> str:
        return ("+" if value >= 0 else "") + number(value, 2)

    change = signed(network["change"])
    if "noise" in network:
        return f"{change} ± {number(network['noise'], 2)}"
    if network.get("low") is None:
        return change
    return f"{change} [{signed(network['low'])}, {signed(network['high'])}]"


def _with_spread(network: Mapping[str, Any], name: str) -> str:
    std = network.get(f"{name}_std")
    return number(network[name], 2) + ("" if std is None else f" ± {number(std, 2)}")
