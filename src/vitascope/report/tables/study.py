"""The tables of a study: our numbers beside the paper's; and all of it for a terminal."""

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.figures.figure import known
from vitascope.report.formatting import number, plural
from vitascope.report.tables.claims import VERDICT_MARKS, correction, tally, tested
from vitascope.report.tables.table import Cell, Table, row
from vitascope.report.tables.writers import as_text


def study_table(item: Mapping[str, Any], styles: Mapping[str, Style] | None = None) -> Table:
    """One of the tables of a record: ours with its spread, the paper's number as a note.

    ``styles`` are those of the models that rows may be named after.
    """
    digits, width = int(item.get("digits", 1)), len(item["columns"])
    rows = []
    for line in item["rows"]:
        cells = [_cell(cell or {}, digits) for cell in line["cells"][:width]]
        cells += [Cell(words="–")] * (width - len(cells))
        label, theirs = str(line["label"]), str(line.get("paper_label") or "")
        note = theirs if theirs != label else ""
        rows.append(row(label, cells, note=note, style=(styles or {}).get(label)))
    unit = f": {item['unit']}" if item.get("unit") else ""
    return Table(
        name=str(item.get("name") or "table"),
        title=f"{item.get('title') or ''}{unit}",
        corner=str(item.get("corner") or ""),
        columns=tuple(map(str, item["columns"])),
        rows=tuple(rows),
    )


def _cell(cell: Mapping[str, Any], digits: int) -> Cell:
    ours = [v for v in cell.get("ours") or [] if known(v)]
    mean = cell.get("mean") if known(cell.get("mean")) else (fmean(ours) if ours else None)
    std = cell.get("std") if known(cell.get("std")) else (stdev(ours) if len(ours) > 1 else None)
    words = number(mean, digits) + ("" if std is None else f" ± {number(std, digits)}")
    paper: Any = cell.get("paper")
    return Cell(words=words, note=_theirs(paper, digits) if known(paper) else "")


def _theirs(paper: float, digits: int) -> str:
    """The paper's number, with as many digits as ours or as it has itself.

    >>> _theirs(35.0, 1), _theirs(-0.25, 1)
    ('35.0', '−0.25')
    """
    return number(paper, max(digits, len(f"{paper:g}".partition(".")[2])))


def runs_in_words(values: Mapping[str, Any]) -> str:
    """How many runs, and which of them earlier records told about.

    >>> told = {"record": "a.json", "num_runs": 12, "commit": "13c9387130fd", "time": "2026-11-17T"}
    >>> runs_in_words({"num_runs": 20, "earlier": [told]})
    '20 runs, 12 of them from the record a.json (2026-11-17, commit 13c9387)'
    """
    said = [plural(values["num_runs"], "run")]
    for each in values.get("earlier") or ():
        when, commit = str(each.get("time") or "")[:10], str(each.get("commit") or "")[:7]
        made = ", ".join(filter(None, (when, commit and f"commit {commit}")))
        said.append(f"{each['num_runs']} of them from the record {each['record']}")
        said[-1] += f" ({made})" if made else ""
    return ", ".join(said)


def study_text(record: Record) -> str:
    """For a terminal: the study's tables, and a line for each claim."""
    values = record.values
    parts = [
        f"{values['title']}  [{', '.join(values['covers'])}]",
        f"{values['scale']} scale, {values['data']}, {plural(len(values['seeds']), 'seed')}, "
        f"{runs_in_words(values)}; mean ± standard deviation",
    ]
    for table in map(study_table, values["tables"]):
        parts.append(f"{table.title}\n{as_text(table)}")
    width = max((len(str(c["verdict"])) for c in values["claims"]), default=0)
    claims = [
        f"{VERDICT_MARKS.get(c['verdict'], '?')} {c['verdict']:<{width}}  {c['source']}: "
        f"{c['text']}. {c['reading']}"
        for c in values["claims"]
    ]
    counted = f"{tally([c['verdict'] for c in values['claims']])}."
    left = correction(list(map(tested, values["claims"])))
    return "\n\n".join([*parts, "\n".join(claims), f"{counted} {left}".strip()])
