"""The claims of a study: their verdicts counted, also corrected for multiple tests, and as a table.

A paper makes many claims, and each that has no effect behind it has one chance in twenty to be
decided. So the verdicts are counted twice: alone, and those that remain significant at a false
discovery rate of 5 % over all claims of one paper that are counted together (Benjamini and Hochberg
1995). A claim that was tried with one run each, or whose noise is unknown, was not tested.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vitascope.formatting import number
from vitascope.table import Cell, Table, row

LEVEL = 0.05
_PLACES = r"(?:Fig\.|Table|App\.|section)"  # of a paper


class CountedClaim(NamedTuple):
    """The parts of a claim that are counted."""

    source: str
    verdict: str
    p_value: float | None  # None if it was not tested

    @property
    def paper(self) -> str:
        """The paper that makes the claim."""
        return claimed_by(self.source)


def claimed_by(source: str) -> str:
    """Return the paper that makes the claim; a claim without a place in a paper is our own.

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
        verdict = Cell(text=str(claim.get("verdict") or "not tried"), bold=True)
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

    def shown(value: Any, sign: str = "") -> str:
        text = number(value, digits)
        return sign + text if isinstance(value, (int, float)) and value >= 0 else text

    contrast = shown(claim.get("contrast"), "+")
    if claim.get("low") is not None:
        contrast += f" [{shown(claim['low'], '+')}, {shown(claim.get('high'), '+')}]"
    unit = str(claim.get("unit") or "")
    measured = claim.get("contrast") is not None and unit
    return [
        f"{contrast} {unit}" if measured else contrast,
        shown(claim.get("detectable")),
        shown(claim.get("paper"), "+"),
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
    """Return which verdicts are significant at a false discovery rate of 5 % over a paper's claims.

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
