"""Does a measured contrast agree with what a paper claims, and could we have seen it?

A claim says that a contrast lies above a margin (zero as a rule):

    agrees              the 95 % interval lies above the margin
    disagrees           it lies below
    not testable here   neither, and the paper's own effect is below our minimum detectable effect
    undecided           neither, though an effect of the paper's size would have been found

The minimum detectable effect is the distance from the margin at which four of five repetitions
would decide. A paper makes many claims, and one in twenty would be decided by chance:
:func:`counted` also counts what is left at a false discovery rate of 5 % (Benjamini and Hochberg).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vitascope.studies.stats.variance import Estimate

__all__ = ["Counts", "Judgement", "Verdict", "counted", "judge"]

Verdict = Literal["agrees", "disagrees", "undecided", "not testable here"]
LEVEL = 0.05


@dataclass(frozen=True)
class Judgement:
    """A verdict with its numbers."""

    verdict: Verdict
    p_value: float | None  # two-sided, of the contrast being at the margin
    detectable: float | None  # from the margin
    why: str = ""  # what is missing


def judge(
    estimate: Estimate | None, *, margin: float = 0.0, paper: float | None = None
) -> Judgement:
    """The verdict on one claim.

    Args:
        estimate: The measured contrast; None where its noise is unknown.
        margin: What the contrast must exceed.
        paper: The same contrast in the paper's own numbers.

    >>> from vitascope.studies.stats.variance import ErrorVariance
    >>> measured = Estimate.of(0.3, ErrorVariance(images=1.0))
    >>> [judge(measured, paper=effect).verdict for effect in (5.0, 0.7)]
    ['undecided', 'not testable here']
    """
    if estimate is None:
        return Judgement("undecided", None, None, "the spread between runs is unknown")
    detectable = estimate.detectable
    if estimate.one_run:
        why = "one run each: another seed may differ"
        return Judgement("undecided", estimate.p_at(margin), detectable, why)
    if estimate.low > margin or estimate.high < margin:
        verdict: Verdict = "agrees" if estimate.low > margin else "disagrees"
    else:
        unseen = paper is not None and abs(paper - margin) < detectable
        verdict = "not testable here" if unseen else "undecided"
    return Judgement(verdict, estimate.p_at(margin), detectable)


@dataclass(frozen=True)
class Counts:
    """How many claims got which verdict: each by itself, and after the correction."""

    alone: Mapping[Verdict, int]
    corrected: Mapping[Verdict, int]
    kept: tuple[bool, ...]  # is each claim's verdict still one after the correction?


def counted(claims: Sequence[Judgement]) -> Counts:
    """The verdicts on one paper, by themselves and at a false discovery rate of 5 %.

    A decided claim that does not stand after the correction counts as undecided.
    """
    from scipy.stats import false_discovery_control  # takes a second to import

    tested = [c.p_value for c in claims if c.p_value is not None and not c.why]
    adjusted = iter(false_discovery_control(tested) if tested else ())
    after = [next(adjusted) if c.p_value is not None and not c.why else 1.0 for c in claims]
    kept = tuple(
        claim.verdict not in ("agrees", "disagrees") or bool(p <= LEVEL)
        for claim, p in zip(claims, after, strict=True)
    )
    left: list[Verdict] = [
        claim.verdict if stands else "undecided" for claim, stands in zip(claims, kept, strict=True)
    ]
    return Counts(Counter(claim.verdict for claim in claims), Counter(left), kept)
