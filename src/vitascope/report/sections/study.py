"""A study of a paper's tables and figures: verdicts first, our numbers next to the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from vitascope.errors import UserError
from vitascope.figure import Dots, Figure, Lines, Panel, Style, restored
from vitascope.formatting import count, finite, listed, number, plural, sentence
from vitascope.record import Record
from vitascope.report.figures.style import Styles, apart
from vitascope.report.records import Source
from vitascope.report.sections.claims import (
    CountedClaim,
    claim_in_words,
    correction,
    tally,
    tested,
    with_authors,
)
from vitascope.report.sections.section import VERDICTS, Badge, JudgedClaim, Section, again
from vitascope.settings import command_line, with_changes
from vitascope.table import Cell, Table, as_text, row

_SCALES = {
    "smoke": "Smoke scale: seconds of training show that it runs, not what is true",
    "laptop": "Laptop scale: small models and few images, not the paper's",
    "desk": "Desk scale: small models on real images, not the paper's",
}
_VERDICTS = (
    "Agrees, disagrees, undecided, not testable here",
    "A claim of the paper is tested on our numbers. It is decided when the 95 % interval of the "
    "contrast, over test images and seeds, lies on one side. Otherwise it is not testable here if "
    "the paper's own effect is smaller than what is detected here with 80 % power, and "
    "undecided if we should have seen it, or if the paper gives no number.",
)
_SPREAD = ("±", "One standard deviation over seeds.")
_ONE_SEED = "There is one seed, so no claim about the models can be decided. Run three:"
_LARGER = {"smoke": "laptop", "laptop": "desk", "desk": "paper"}  # the next scale


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of the models that lines and rows are about."""
    names: dict[str, str] = {}
    for source in sources:
        kinds = source.record.values.get("kinds") or {}
        for figure in source.record.values.get("figures") or ():
            for panel in figure.get("panels") or ():
                for line in panel.get("series") or ():
                    name = str(line.get("model") or "")
                    names.setdefault(name, str(kinds.get(name, "other")))
    return [(name, kind) for name, kind in names.items() if name]


def counted(claims: Sequence[JudgedClaim]) -> list[CountedClaim]:
    """Return what the counts need of the claims of a section."""
    return [CountedClaim(claim.source, claim.badge.text, claim.p_value) for claim in claims]


def section(source: Source, styles: Styles) -> Section:
    """Return one section per study."""
    record, values = source.record, source.record.values
    claims = tuple(_claim(item) for item in values.get("claims") or ())
    figures = tuple(_figure(source, item, styles) for item in values.get("figures") or ())
    tables = tuple(study_table(item, styles.names) for item in values.get("tables") or ())
    title, covers = str(values["title"]), with_authors(listed(values.get("covers") or []))
    seeds = values.get("seeds") or []
    facts = [
        ("images", values.get("data")),
        ("to test on", values.get("num_test")),
        ("scale", values.get("scale")),
        ("seeds", listed(seeds) if seeds else None),
        ("runs", values.get("num_runs")),
        ("covers", covers),
    ]
    counts = tally([claim.badge.text for claim in claims])
    taken = (f"{runs_in_words(values)}.",) if values.get("earlier") else ()
    line = str(values.get("command") or "")
    more = f" `{with_changes(line, {'--seeds': (0, 1, 2)})}`" if line else " add --seeds 0 1 2."
    single = (f"{_ONE_SEED}{more}",) if claims and len(seeds) == 1 else ()
    terms = (_VERDICTS, _SPREAD)
    scale = _SCALES.get(str(values.get("scale")))
    said_to_hold = str(values.get("claim") or "")
    claimed = claim_in_words(covers, said_to_hold) if said_to_hold else ""
    made = again(record, line, seed=seeds or record.seed)
    return Section(
        kind="study",
        label="Study",
        title=title,
        question=f"{title} {claimed}".strip(),
        answer=f"{counts}." if claims else said_to_hold or title,
        badge=Badge(text=scale, sign="△") if scale else None,
        leads=tuple(filter(None, (correction(counted(claims)), *_main_claims(claims), *taken))),
        cautions=single,
        steps=_steps(line, str(values.get("scale"))),
        facts=tuple((k, count(v) if isinstance(v, int) else str(v)) for k, v in facts if v),
        claims=claims,
        figures=figures,
        tables=tables,
        terms=terms if claims or tables else (),
        agains=(made,),
        source=source.path.name,
    )


def _steps(line: str, scale: str) -> tuple[tuple[str, str], ...]:
    """The same study at the next scale."""
    if not line or scale not in _LARGER:
        return ()
    study = line.split(" ")[:3]  # images, seeds and epochs are the scale's own
    larger = command_line(study, [("--scale", _LARGER[scale]), ("--plan", True)])
    return ((f"See what the next scale, {_LARGER[scale]}, would take", larger),)


def _figure(source: Source, item: Mapping[str, Any], styles: Styles) -> Figure:
    """A figure of the record in the styles of the page."""
    try:
        figure = restored(item, source.record.arrays)
    except UserError as error:
        raise UserError(f"{source.path}: {error}") from None
    panels = tuple(_styled(panel, styles) for panel in figure.panels)
    hows = [figure.how]
    if any(isinstance(p, Lines) and any(line.low for line in p.series) for p in panels):
        bands = source.record.values.get("bands") or "lowest to highest seed"
        hows.append(f"Bands: {bands}.")
    if any(isinstance(panel, Dots) for panel in panels):
        hows.append("Small dots: single seeds; rings: the paper's numbers.")
    return replace(figure, panels=panels, how=" ".join(filter(None, hows)))


def _styled(panel: Panel, styles: Styles) -> Panel:
    """A model has its own style; what is no model (a layer, a loss) has one within its panel."""
    if not isinstance(panel, (Lines, Dots)):
        return panel
    own = Styles()
    chosen = apart(
        [styles.of(line.model) if line.model else own.of(line.label) for line in panel.series]
    )
    lines: Any = zip(panel.series, chosen, strict=True)
    series: Any = tuple(replace(line, style=style) for line, style in lines)
    return replace(panel, series=series)


def _claim(item: Mapping[str, Any]) -> JudgedClaim:
    verdict, text = str(item.get("verdict") or "not tried"), str(item["text"])
    sign, tone = VERDICTS.get(verdict, ("?", "unsure"))
    return JudgedClaim(
        source=with_authors(str(item.get("source") or "")),
        text=sentence(text),
        reading=str(item.get("reading") or ""),
        badge=Badge(text=verdict, sign=sign, tone=tone),
        p_value=tested(item).p_value,
        stored=item,
    )


def _main_claims(claims: Sequence[JudgedClaim]) -> tuple[str, ...]:
    """The first claim that disagrees and the first that agrees, with their numbers."""
    main = []
    for wanted, start in (("disagrees", "Does not hold here"), ("agrees", "Holds here")):
        claim = next((claim for claim in claims if claim.badge.text == wanted), None)
        if claim is not None:
            main.append(claim_line(claim, start))
    return tuple(main) or tuple(claim_line(claim, "Not settled") for claim in claims[:1])


def claim_line(claim: JudgedClaim, start: str) -> str:
    """A claim and what we found, in one line."""
    return f"{start}: {claim.text.rstrip('.')}. {claim.reading}".strip()


VERDICT_MARKS = {
    "agrees": "+",
    "disagrees": "-",
    "undecided": "?",
    "not testable here": "o",
}


def study_table(item: Mapping[str, Any], styles: Mapping[str, Style] | None = None) -> Table:
    """One of the tables of a record: ours with its spread, the paper's number as a note.

    ``styles`` are those of the models that rows may be named after.
    """
    digits, width = int(item.get("digits", 1)), len(item["columns"])
    rows = []
    for line in item["rows"]:
        cells = [_cell(cell or {}, digits) for cell in line["cells"][:width]]
        cells += [Cell(text="–")] * (width - len(cells))
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
    ours = [v for v in cell.get("ours") or [] if finite(v)]
    mean = cell.get("mean") if finite(cell.get("mean")) else (fmean(ours) if ours else None)
    std = cell.get("std") if finite(cell.get("std")) else (stdev(ours) if len(ours) > 1 else None)
    text = number(mean, digits) + ("" if std is None else f" ± {number(std, digits)}")
    paper: Any = cell.get("paper")
    return Cell(text=text, note=_theirs(paper, digits) if finite(paper) else "")


def _theirs(paper: float, digits: int) -> str:
    """The paper's number, with as many digits as ours or as it has itself.

    >>> _theirs(35.0, 1), _theirs(-0.25, 1)
    ('35.0', '−0.25')
    """
    return number(paper, max(digits, len(f"{paper:g}".partition(".")[2])))


def runs_in_words(values: Mapping[str, Any]) -> str:
    """Return how many runs, and which of them earlier records told about.

    >>> before = {
    ...     "record": "a.json",
    ...     "num_runs": 12,
    ...     "commit": "13c9387130fd",
    ...     "time": "2026-11-17T",
    ... }
    >>> runs_in_words({"num_runs": 20, "earlier": [before]})
    '20 runs, 12 of them from the record a.json (2026-11-17, commit 13c9387)'
    """
    parts = [plural(values["num_runs"], "run")]
    for each in values.get("earlier") or ():
        when, commit = str(each.get("time") or "")[:10], str(each.get("commit") or "")[:7]
        made = ", ".join(filter(None, (when, commit and f"commit {commit}")))
        parts.append(f"{each['num_runs']} of them from the record {each['record']}")
        parts[-1] += f" ({made})" if made else ""
    return ", ".join(parts)


def study_text(record: Record) -> str:
    """For a terminal: the verdicts, the study's tables, and a line for each claim."""
    values = record.values
    verdicts = f"{tally([c['verdict'] for c in values['claims']])}."
    left = correction(list(map(tested, values["claims"])))
    answer = [f"{verdicts} {left}".strip()] if values["claims"] else []
    parts = [
        *answer,
        f"{values['title']}  [{with_authors(', '.join(values['covers']))}]",
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
    return "\n\n".join([*parts, "\n".join(claims)]).rstrip()
