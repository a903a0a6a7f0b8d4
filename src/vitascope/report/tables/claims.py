"""The claims of a paper as a table, and their counts, corrected for multiple tests too.

A paper makes many claims, and each that has no effect behind it has one chance in twenty to be
decided. So the verdicts are counted twice: by themselves, and as far as they stand at a false
discovery rate of 5 % over all claims of one paper that are counted together (Benjamini and Hochberg
1995). A claim that was tried with one run each, or whose noise is unknown, was not tested.

Records of version 0 have verdicts without these numbers; they are shown as they are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vitascope.report.formatting import number
from vitascope.report.tables.table import Cell, Table, row

VERDICT_MARKS = {
    "agrees": "+",
    "disagrees": "-",
    "undecided": "?",
    "not testable here": "o",
    "within noise": "=",  # of old records
}
LEVEL = 0.05


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

    >>> [claimed_by(source) for source in ("CB section 2.4", "Fine grid")]
    ['CB', 'our own']
    """
    name, _, place = source.partition(" ")
    return name if place.startswith(("Table", "Fig.", "App.", "section")) else "our own"


def claim_in_words(covers: str, claim: str) -> str:
    """What a study is to decide, and whose claim it is, by the first place that the study covers.

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
    found = list(claims)
    new = all("detectable" in claim for claim in found)
    columns = ("Contrast, 95 % interval", "Detectable", "Paper's") if new else ("Measured",)
    rows = []
    for claim in found:
        verdict = Cell(words=str(claim.get("verdict") or "not tried"), bold=True)
        words = _numbers(claim) if new else [str(claim.get("reading") or "")]
        rows.append(row(str(claim.get("source") or ""), [str(claim["text"]), verdict, *words]))
    return Table(
        name="claims",
        title=title,
        corner="Source",
        columns=("Claim", "Verdict", *columns),
        rows=tuple(rows),
    )


def _numbers(claim: Mapping[str, Any]) -> list[str]:
    """Contrast with its interval and unit, minimum detectable effect, the paper's contrast."""
    digits = int(claim.get("digits") or 1)

    def said(value: Any, sign: str = "") -> str:
        words = number(value, digits)
        return sign + words if isinstance(value, (int, float)) and value >= 0 else words

    contrast = said(claim["contrast"], "+")
    if claim["low"] is not None:
        contrast += f" [{said(claim['low'], '+')}, {said(claim['high'], '+')}]"
    unit = str(claim.get("unit") or "")
    known = claim["contrast"] is not None and unit
    return [
        f"{contrast} {unit}" if known else contrast,
        said(claim["detectable"]),
        said(claim["paper"], "+"),
    ]


def tally(verdicts: Sequence[str]) -> str:
    """How many claims agree, in words.

    >>> tally([]), tally(["agrees"])
    ('No claim was tried', 'The one claim agrees')
    >>> tally(["agrees", "disagrees", "agrees", "undecided"])
    '2 of 4 claims agree, 1 disagrees and 1 is undecided'
    """
    if not verdicts:
        return "No claim was tried"
    states = ("undecided", "not testable here", "within noise")
    one = {state: f"is {state}" for state in states}
    many = {"agrees": "agree", "disagrees": "disagree", **{s: f"are {s}" for s in states}}
    found = Counter(verdicts)
    order = [*(name for name in many if name in found), *(n for n in found if n not in many)]
    if len(verdicts) == 1:
        return f"The one claim {one.get(order[0], order[0])}"
    if len(found) == 1:
        return f"All {len(verdicts)} claims {many.get(order[0], order[0])}"
    said = [f"{found[n]} {(one if found[n] == 1 else many).get(n, n)}" for n in order]
    said[0] = said[0].replace(" ", f" of {len(verdicts)} claims ", 1)
    return f"{', '.join(said[:-1])} and {said[-1]}"


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
            (place, claim.p_value)
            for place, claim in enumerate(claims)
            if claim.paper == paper and claim.p_value is not None
        ]
        adjusted = false_discovery_control([p for _, p in mine]) if mine else ()
        for (place, _), p_value in zip(mine, adjusted, strict=True):
            stands[place] |= bool(p_value <= LEVEL)
    return stands


def correction(claims: Sequence[CountedClaim]) -> str:
    """What is left of the decided claims after the correction; nothing where none was tested.

    Claims of earlier records, which have no p-value, are told apart.

    >>> first = CountedClaim("A Fig. 1", "agrees", 1e-4)
    >>> second = CountedClaim("A Fig. 2", "disagrees", 0.045)
    >>> correction([first, second, CountedClaim("A Fig. 3", "undecided", 0.3)])
    'At a false discovery rate of 5 % per paper, 1 of 2 decided claims stands: 1 agrees.'
    >>> correction([first, CountedClaim("A Fig. 2", "agrees", None)]).partition(", ")[2]
    'the one decided claim stands (1 of earlier records, which have no p-value, apart).'
    """
    every = [claim for claim in claims if claim.verdict in ("agrees", "disagrees")]
    decided = [claim for claim in every if claim.p_value is not None]
    if not decided:
        return ""
    left = Counter(
        claim.verdict
        for claim, stands in zip(claims, standing(claims), strict=True)
        if stands and claim.verdict in ("agrees", "disagrees")
    )
    words = [
        f"{left[verdict]} {verdict if left[verdict] == 1 else verdict.removesuffix('s')}"
        for verdict in ("agrees", "disagrees")
        if left[verdict]
    ]
    count = left.total()
    said = f"{count or 'none'} of {len(decided)} decided claims stand{'s' * (count == 1)}"
    if len(decided) == 1:
        said = f"the one decided claim {'stands' if count else 'does not stand'}"
    told = f": {' and '.join(words)}" if words and len(decided) > 1 else ""
    old = len(every) - len(decided)
    apart = f" ({old} of earlier records, which have no p-value, apart)" if old else ""
    return f"At a false discovery rate of 5 % per paper, {said}{told}{apart}."
