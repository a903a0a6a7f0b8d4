"""Verdicts on claims: agrees, disagrees, undecided, not testable here; and many at once."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from vitascope.report.sections.claims import CountedClaim, standing
from vitascope.stats import ErrorVariance, Estimate, difference, judge


def measured(value, error=1.0):
    return Estimate.of(value, ErrorVariance(images=error**2))


@pytest.mark.parametrize(
    ("value", "paper", "verdict"),
    [
        (3.0, None, "agrees"),
        (3.0, 0.1, "agrees"),  # what was seen was testable
        (-3.0, 9.0, "disagrees"),
        (1.0, None, "undecided"),
        (1.0, 5.0, "undecided"),
        (1.0, 2.0, "not testable here"),
        (-1.0, 2.0, "not testable here"),
    ],
)
def test_the_interval_decides_and_the_papers_effect_tells_what_could_be_seen(value, paper, verdict):
    assert judge(measured(value), paper=paper).verdict == verdict


def test_a_margin_moves_the_line_for_verdict_p_value_and_detectable_effect():
    found = [judge(measured(5.0), margin=m, paper=6.0) for m in (0, 2, 4, 8)]
    assert [f.verdict for f in found] == ["agrees", "agrees", "not testable here", "disagrees"]
    assert found[1].p_value == pytest.approx(2 * stats.norm.sf(3))
    assert found[0].p_value == pytest.approx(2 * stats.norm.sf(5), rel=1e-3)


def test_an_effect_of_the_detectable_size_is_found_four_times_of_five():
    variance = ErrorVariance(images=1.0, seeds=2.0, freedom=8)
    effect = Estimate.of(0.0, variance).detectable
    rng = np.random.default_rng(0)
    size = 20_000
    spread = 2.0 * rng.chisquare(8, size) / 8
    drawn = ErrorVariance(images=np.ones(size), seeds=spread, freedom=8.0)
    value = effect + np.sqrt(3) * rng.normal(size=size)
    assert np.mean(value > drawn.half_width()) == pytest.approx(0.8, abs=0.03)


def test_one_run_each_and_an_unknown_spread_decide_nothing():
    first, second = np.ones((1, 100), bool), np.zeros((1, 100), bool)
    found = judge(difference(first, second), paper=50.0)
    assert found.verdict == "undecided"
    assert found.p_value < 1e-20
    assert "one run" in found.why
    assert judge(None).verdict == "undecided"
    assert "unknown" in judge(None).why


def test_the_opposite_claim_gets_the_opposite_verdict():
    for value in (-3.0, -0.5, 0.0, 0.5, 3.0):
        one, other = judge(measured(value)), judge(measured(-value))
        assert {one.verdict, other.verdict} in ({"agrees", "disagrees"}, {"undecided"})
        assert one.p_value == pytest.approx(other.p_value)


def counts(values):
    """Decided claims of one paper: by themselves, and after the correction."""
    judged = [judge(measured(value)) for value in values]
    claims = [CountedClaim("P Fig. 1", one.verdict, one.p_value) for one in judged]
    decided = [claim.verdict != "undecided" for claim in claims]
    return sum(decided), sum(d and s for d, s in zip(decided, standing(claims), strict=True))


def test_many_claims_are_counted_alone_and_at_a_false_discovery_rate():
    values = [4.0, -3.5, 2.0, 2.05, 0.3, 0.1, -0.2, 0.5, 0.9]
    assert counts(values) == (4, 2)
    p_values = [judge(measured(value)).p_value for value in values]
    assert sum(stats.false_discovery_control(p_values) <= 0.05) == 2


def test_papers_are_corrected_apart_and_what_was_not_tested_counts_for_nothing():
    lead = CountedClaim("A Table 1", "agrees", 0.02)
    others = [CountedClaim("B Table 1", "undecided", 0.5)] * 9
    untested = [CountedClaim("A Fig. 3", "undecided", None)] * 9
    assert all(standing([lead, *others, *untested]))
    more = [claim._replace(source="A Fig. 2") for claim in others]
    assert standing([lead, *more]) == [False, *[True] * 9]


def test_of_claims_that_are_all_empty_few_papers_keep_one():
    rng = np.random.default_rng(0)
    papers = np.array([counts(rng.normal(size=20)) for _ in range(300)])
    alone, corrected = (papers > 0).mean(0)
    assert alone > 0.5
    assert corrected <= 0.08  # 5 % and two standard errors


def test_the_statistics_need_neither_torch_nor_the_slow_half_of_scipy():
    code = "import sys, vitascope.stats as s; s.recommend; "
    code += "print({'torch', 'scipy.stats', 'timm', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
