"""The tables of a study: our numbers next to the paper's; and all of it for a terminal.

Its claims are a table, too, and counted, also corrected for multiple tests. A paper makes many
claims, and each that has no effect behind it has one chance in twenty to be decided. So the
verdicts are counted twice: alone, and those that remain significant at a false discovery rate of
5 % over all claims of one paper that are counted together (Benjamini and Hochberg 1995). A claim
that was tried with one run each, or whose noise is unknown, was not tested.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.figures.figure import known
from vitascope.report.formatting import number, plural
from vitascope.report.tables.table import Cell, Table, as_text, row

VERDICT_MARKS = {
    "agrees": "+",
    "disagrees": "-",
    "undecided": "?",
    "not testable here": "o",
}

LEVEL = 0.05
_PLACES = r"(?:Fig\.|Table|App\.|section)"  # of a paper


class CountedClaim(NamedTuple):
    """What the counts need of a claim."""

    source: str
    verdict: str
    p_value: float | None  # None if it was not tested

    @property
    def paper(self) -> str:
        """Whose claim it is."""
        return claimed_by(self.source)


def claimed_by(source: str) -> str:
    """Whose claim it is; one that stands at no place of a paper is our own.

    >>> [claimed_by(source) for source in ("CB section 2.4", "Park & Kim Fig. 2", "Fine grid")]
    ['CB', 'Park & Kim', 'our own']
    """
    paper = re.match(rf"(.+?) {_PLACES}", with_authors(source))
    return paper[1] if paper else "our own"


def with_authors(text: str) -> str:
    """Name Park and Kim's paper after them, which earlier records call "ViT".

    >>> with_authors("ViT Fig. 6, ConViT Fig. 2")
    'Park & Kim Fig. 6, ConViT Fig. 2'
    """
    return re.sub(rf"\bViT (?={_PLACES})", "Park & Kim ", text)


def claim_in_words(covers: str, claim: str) -> str:
    """Return what a study is to decide, and whose claim it is.

    >>> [claim_in_words(covers, "it helps") for covers in ("CB Table S1, CB Fig. S1", "Fine grid")]
    ['The paper: it helps.', 'The claim: it helps.']
    """
    return f"The {'claim' if claimed_by(covers) == 'our own' else 'paper'}: {claim}."


def tested(claim: Mapping[str, Any]) -> CountedClaim:
    """A claim of a record."""
    p_value = None if claim.get("why") else claim.get("p_value")
    return CountedClaim(
        str(claim.get("source") or ""), str(claim.get("verdict") or "not tried"), p_value
    )


def claims_table(claims: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """The claims of a record: where the paper makes each, the verdict, and what was measured."""
    listed = list(claims)
    rows = []
    for claim in listed:
        verdict = Cell(words=str(claim.get("verdict") or "not tried"), bold=True)
        rows.append(
            row(
                with_authors(str(claim.get("source") or "")),
                [str(claim["text"]), verdict, *_numbers(claim)],
            )
        )
    return Table(
        name="claims",
        title=title,
        corner="Source",
        columns=("Claim", "Verdict", "Contrast, 95 % interval", "Detectable", "Paper's"),
        rows=tuple(rows),
    )


def _numbers(claim: Mapping[str, Any]) -> list[str]:
    """Contrast with its interval and unit, minimum detectable effect, the paper's contrast."""
    digits = int(claim.get("digits") or 1)

    def said(value: Any, sign: str = "") -> str:
        text = number(value, digits)
        return sign + text if isinstance(value, (int, float)) and value >= 0 else text

    contrast = said(claim.get("contrast"), "+")
    if claim.get("low") is not None:
        contrast += f" [{said(claim['low'], '+')}, {said(claim.get('high'), '+')}]"
    unit = str(claim.get("unit") or "")
    measured = claim.get("contrast") is not None and unit
    return [
        f"{contrast} {unit}" if measured else contrast,
        said(claim.get("detectable")),
        said(claim.get("paper"), "+"),
    ]


def tally(verdicts: Sequence[str]) -> str:
    """Return how many claims agree, in words.

    >>> tally([]), tally(["agrees"])
    ('No claim was tried', 'The one claim agrees')
    >>> tally(["agrees", "disagrees", "agrees", "undecided"])
    '2 of 4 claims agree, 1 disagrees and 1 is undecided'
    """
    if not verdicts:
        return "No claim was tried"
    states = ("undecided", "not testable here")
    one = {state: f"is {state}" for state in states}
    many = {"agrees": "agree", "disagrees": "disagree", **{s: f"are {s}" for s in states}}
    counts = Counter(verdicts)
    order = [*(name for name in many if name in counts), *(n for n in counts if n not in many)]
    if len(verdicts) == 1:
        return f"The one claim {one.get(order[0], order[0])}"
    if len(counts) == 1:
        return f"All {len(verdicts)} claims {many.get(order[0], order[0])}"
    parts = [f"{counts[n]} {(one if counts[n] == 1 else many).get(n, n)}" for n in order]
    parts[0] = parts[0].replace(" ", f" of {len(verdicts)} claims ", 1)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def standing(claims: Sequence[CountedClaim]) -> list[bool]:
    """Which verdicts stand at a false discovery rate of 5 % over each paper's tested claims.

    >>> standing(
    ...     [CountedClaim("A Fig. 1", "agrees", 0.04), CountedClaim("A Fig. 2", "undecided", 0.6)]
    ... )
    [False, True]
    >>> standing(
    ...     [CountedClaim("A Fig. 1", "agrees", 0.04), CountedClaim("B Fig. 2", "undecided", 0.6)]
    ... )
    [True, True]
    """
    from scipy.stats import false_discovery_control  # takes a second to import

    stands = [claim.verdict not in ("agrees", "disagrees") for claim in claims]
    for paper in {claim.paper for claim in claims}:
        mine = [
            (index, claim.p_value)
            for index, claim in enumerate(claims)
            if claim.paper == paper and claim.p_value is not None
        ]
        adjusted = false_discovery_control([p for _, p in mine]) if mine else ()
        for (index, _), p_value in zip(mine, adjusted, strict=True):
            stands[index] |= bool(p_value <= LEVEL)
    return stands


def correction(claims: Sequence[CountedClaim]) -> str:
    """Describe which decided claims remain significant after the correction for several claims.

    >>> first = CountedClaim("A Fig. 1", "agrees", 1e-4)
    >>> second = CountedClaim("A Fig. 2", "disagrees", 0.045)
    >>> third = CountedClaim("A Fig. 3", "undecided", 0.3)
    >>> correction([first, second, third]).partition(", ")[2]
    '1 of 2 decided claims remains significant: 1 agrees.'
    >>> correction([first, CountedClaim("A Fig. 2", "undecided", None)]).partition(", ")[2]
    'the one decided claim remains significant.'
    """
    decided = [claim for claim in claims if claim.verdict in ("agrees", "disagrees")]
    if not decided:
        return ""
    left = Counter(
        claim.verdict
        for claim, stands in zip(claims, standing(claims), strict=True)
        if stands and claim.verdict in ("agrees", "disagrees")
    )
    parts = [
        f"{left[verdict]} {verdict if left[verdict] == 1 else verdict.removesuffix('s')}"
        for verdict in ("agrees", "disagrees")
        if left[verdict]
    ]
    count = left.total()
    verb = "remains" if count == 1 else "remain"
    sentence = f"{count or 'none'} of {len(decided)} decided claims {verb} significant"
    if len(decided) == 1:
        remains = "remains" if count else "does not remain"
        sentence = f"the one decided claim {remains} significant"
    detail = f": {' and '.join(parts)}" if parts and len(decided) > 1 else ""
    return f"At a false discovery rate of 5 % per paper, {sentence}{detail}."


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
    text = number(mean, digits) + ("" if std is None else f" ± {number(std, digits)}")
    paper: Any = cell.get("paper")
    return Cell(words=text, note=_theirs(paper, digits) if known(paper) else "")


def _theirs(paper: float, digits: int) -> str:
    """The paper's number, with as many digits as ours or as it has itself.

    >>> _theirs(35.0, 1), _theirs(-0.25, 1)
    ('35.0', '−0.25')
    """
    return number(paper, max(digits, len(f"{paper:g}".partition(".")[2])))


def runs_in_words(values: Mapping[str, Any]) -> str:
    """Return how many runs, and which of them earlier records told about.

    >>> told = {"record": "a.json", "num_runs": 12, "commit": "13c9387130fd", "time": "2026-11-17T"}
    >>> runs_in_words({"num_runs": 20, "earlier": [told]})
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
    counted = f"{tally([c['verdict'] for c in values['claims']])}."
    left = correction(list(map(tested, values["claims"])))
    answer = [f"{counted} {left}".strip()] if values["claims"] else []
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
