"""Does a measured contrast agree with what a paper claims, and could we have seen it?

A claim says that a contrast lies above a margin (zero as a rule):

    agrees              the 95 % interval lies above the margin
    disagrees           it lies below
    not testable here   neither, and the paper's own effect is below our minimum detectable effect
    undecided           neither, though an effect of the paper's size would have been found

The minimum detectable effect is the distance from the margin at which four of five repetitions
would decide. A paper makes many claims, and one in twenty would be decided by chance: tables also
count what is left at a false discovery rate of 5 % (:mod:`vitascope.report.sections.claims`).
"""

from dataclasses import dataclass
from typing import Literal

from vitascope.stats.variance import Estimate

__all__ = ["Judgement", "Verdict", "judge"]

Verdict = Literal["agrees", "disagrees", "undecided", "not testable here"]


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

    >>> from vitascope.stats.variance import ErrorVariance
    >>> measured = Estimate.of(0.3, ErrorVariance(images=1.0))
    >>> [judge(measured, paper=effect).verdict for effect in (5.0, 0.7)]
    ['undecided', 'not testable here']
    """
    if estimate is None:
        return Judgement("undecided", None, None, "the spread between runs is unknown")
    if estimate.one_run:  # what could be found of the models is unknown too
        why = "one run each: another seed may differ"
        return Judgement("undecided", estimate.p_at(margin), None, why)
    detectable = estimate.detectable
    if estimate.low > margin or estimate.high < margin:
        verdict: Verdict = "agrees" if estimate.low > margin else "disagrees"
    else:
        unseen = paper is not None and abs(paper - margin) < detectable
        verdict = "not testable here" if unseen else "undecided"
    return Judgement(verdict, estimate.p_at(margin), detectable)
