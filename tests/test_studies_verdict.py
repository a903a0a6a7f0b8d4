"""How claims of the papers are judged, on made-up runs: images, batches, points and numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from vitascope.papers.catalog import catalog
from vitascope.papers.judging import judged
from vitascope.papers.plan import (
    TOP1,
    CellSpec,
    Claim,
    Measurement,
    Plan,
    Reading,
    Results,
    Sample,
    TableSpec,
    Training,
)
from vitascope.papers.scale import SCALES
from vitascope.record import Record
from vitascope.stats import contrast as contrast_of
from vitascope.stats import contrast_of_batches, correlation

VIT = Training(model="vit_micro", data="digits", recipe="laptop")
CONVIT = replace(VIT, model="convit_micro")
LOOK = Reading(name="look")
AHEAD = "t: convit > vit"


def run(right=None, **values):
    """The final line of a run with its predictions."""
    if right is None:
        return Record(kind="final", values=values)
    label = np.zeros(len(right), np.uint16)
    arrays = {"predicted": np.where(right, 0, 1).astype(np.uint16), "label": label}
    return Record(kind="final", values={"top1": float(np.mean(right)), **values}, arrays=arrays)


def told(
    first,
    second,
    statement=AHEAD,
    measurement=TOP1,
    papers=(None, None),
    paper=None,
    num_test=None,
    num_test_of_table=None,
):
    """The judgement on two rows of a table: ConViT's records, and the ViT's."""
    cells = {
        (label, "c"): CellSpec(training, measurement, number)
        for label, training, number in zip(("convit", "vit"), (CONVIT, VIT), papers, strict=True)
    }
    table = TableSpec("t", "", cells, num_test=num_test_of_table)
    key = measurement.reading.key
    results = Results({(CONVIT.key, key): first, (VIT.key, key): second})
    claim = Claim(source="P Table 1", text="c", statement=statement, paper=paper)
    plan = Plan(tables=[table], claims=[claim])
    return judged(claim, plan.contrast(claim), results, num_test)


def hits(accuracy, seeds=3, images=500, seed=0):
    return np.random.default_rng(seed).random((seeds, images)) < accuracy


NATS = Measurement("number", "entropy, nats")
APES = Measurement("number", "APE", log=True)


def numbers(*values):
    return [run(number=value) for value in values]


def by_number(first, second, measurement=NATS, statement=AHEAD):
    return told(numbers(*first), numbers(*second), statement, measurement)


def test_accuracies_are_paired_over_images_and_crossed_with_seeds():
    first, second = hits(0.9), hits(0.8, seed=1)
    found = told([*map(run, first)], [*map(run, second)])
    expected = contrast_of([first, second], (1, -1))
    assert (found["contrast"], found["low"], found["high"]) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )
    assert (found["verdict"], found["p_value"]) == ("agrees", pytest.approx(expected.p_value))
    assert found["detectable"] == pytest.approx(expected.detectable)
    assert found["reading"].startswith("Measured +")
    assert " points, 95 % interval +" in found["reading"]


def test_an_error_is_an_accuracy_seen_from_the_other_side():
    first, second = hits(0.9), hits(0.8, seed=1)
    wrong = Sample(kind="images", read=lambda r: r.arrays["predicted"] != r.arrays["label"])
    error = Measurement(lambda r: 1 - r.values["top1"], "error, %", sample=wrong)
    found = told([*map(run, first)], [*map(run, second)], measurement=error)
    plain = told([*map(run, first)], [*map(run, second)])
    assert found["verdict"] == "disagrees"
    assert found["contrast"] == pytest.approx(-plain["contrast"])
    assert found["low"] == pytest.approx(-plain["high"])


def test_readings_of_the_same_runs_are_combined_seed_by_seed():
    rng = np.random.default_rng(0)
    level = np.array([0.6, 0.75, 0.9])[:, None]  # the runs differ much, their losses do not
    whole, masked = (rng.random((3, 1000)) < level - lost for lost in (0.0, 0.05))
    records = [
        Record(kind="look", values={"a": w.mean(), "b": m.mean()}, arrays={"a": w, "b": m})
        for w, m in zip(whole, masked, strict=True)
    ]

    def judged_with(unit, read):
        cells = {}
        for name in "ab":
            sample = Sample(kind="images", read=read(name))
            cells["vit", name] = CellSpec(VIT, Measurement(name, unit, LOOK, sample=sample))
        claim = Claim(source="P", text="c", statement="t: vit at a > vit at b")
        plan = Plan(tables=[TableSpec("t", "", cells)], claims=[claim])
        return judged(claim, plan.contrast(claim), Results({(VIT.key, LOOK.key): records}), None)

    found = judged_with("top-1, %", lambda name: lambda r: r.arrays[name])
    expected = contrast_of([whole, masked], (1, -1), same_runs=True)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    apart = contrast_of([whole, masked], (1, -1))
    assert expected.high - expected.low < 0.4 * (apart.high - apart.low)
    kept_no_images = judged_with("lost, %", lambda name: lambda r: None)
    paired = stats.ttest_rel(100 * whole.mean(1), 100 * masked.mean(1)).confidence_interval()
    assert (kept_no_images["low"], kept_no_images["high"]) == pytest.approx(paired, rel=1e-4)


def test_accuracies_without_their_images_have_the_noise_of_the_test_set_too():
    values = {"first": (0.60, 0.62, 0.61), "second": (0.50, 0.52, 0.51)}
    records = [[run(number=v) for v in each] for each in values.values()]
    share = Measurement("number", "top-1, %")
    few, many = (told(*records, measurement=share, num_test=n) for n in (20, 10_000))
    assert few["verdict"] == "undecided"
    assert many["verdict"] == "agrees"
    own = told(*records, measurement=share, num_test=10_000, num_test_of_table=20)
    assert own["low"] == pytest.approx(few["low"])


def test_other_shares_have_no_noise_of_the_test_set():
    records = [[run(number=v) for v in each] for each in ((0.60, 0.62, 0.61), (0.50, 0.52, 0.51))]
    lost = Measurement("number", "lost, %")
    few, none = (told(*records, measurement=lost, num_test=n) for n in (20, None))
    assert (few["low"], few["high"]) == (none["low"], none["high"])


def test_numbers_are_compared_by_welchs_test_on_their_own_spread():
    first, second = (3.0, 4.5, 5.0), (9.0, 7.0, 7.5)
    found = by_number(first, second)
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (found["low"], found["high"]) == pytest.approx(interval, rel=1e-4)
    assert (found["verdict"], found["unit"]) == ("disagrees", "nats")


def test_logarithms_compare_factors():
    one = by_number((10.0, 20.0, 40.0), (1.0, 2.0, 4.0), APES)
    other = by_number((1000.0, 2000.0, 4000.0), (100.0, 200.0, 400.0), APES)
    assert one["contrast"] == pytest.approx(np.log(10)) == pytest.approx(other["contrast"])
    assert one["low"] == pytest.approx(other["low"])
    assert "natural logarithms" in one["reading"]


def test_numbers_without_spread_and_single_ones_decide_nothing():
    for first, second in (((1.0, 1.0), (2.0, 2.0)), ((1.0,), (9.0,))):
        found = by_number(first, second)
        assert (found["verdict"], found["low"], found["detectable"]) == ("undecided", None, None)
        assert "the spread between runs is unknown" in found["reading"]


def test_one_run_each_never_decides_and_mcnemar_speaks_of_these_runs():
    first, second = hits(0.95, seeds=1), hits(0.5, seeds=1, seed=1)
    found = told([*map(run, first)], [*map(run, second)], papers=(90.0, 80.0))
    ahead, behind = (int(x.sum()) for x in (first & ~second, second & ~first))
    assert found["p_value"] == pytest.approx(stats.binomtest(ahead, ahead + behind).pvalue)
    assert (found["verdict"], found["detectable"]) == ("undecided", None)
    assert "one run each: another seed may differ" in found["reading"]
    assert "these runs alone" in found["reading"]


def test_the_papers_effect_is_the_same_contrast_of_its_numbers():
    records = [[*map(run, hits(0.9, seed=s))] for s in (0, 1)]
    small, large = (told(*records, papers=(80.0 + lead, 80.0)) for lead in (0.2, 20.0))
    assert small["paper"] == pytest.approx(0.2)
    assert small["verdict"] == "not testable here"
    assert small["detectable"] > 0.2
    assert large["verdict"] == "undecided"
    assert "the paper has +20.0" in large["reading"]
    given = told(*records, paper=0.1)
    assert (given["paper"], given["verdict"]) == (0.1, "not testable here")
    assert told(*records, papers=(80.0, None))["paper"] is None


def test_a_margin_moves_the_line():
    records = [[*map(run, hits(p, seed=s))] for s, p in enumerate((0.9, 0.5))]
    verdicts = [told(*records, f"t: convit - vit > {m}")["verdict"] for m in (0, 40, 80)]
    assert verdicts == ["agrees", "undecided", "disagrees"]
    said = told(*records, "t: convit - vit > 80")["reading"]
    assert "the claim wants more than 80" in said


def test_spectra_are_resampled_by_mini_batch():
    rng = np.random.default_rng(0)
    spectra = [rng.normal(size=(3, 16, 5)) + shift for shift in (3.0, 0.0)]
    sample = Sample(kind="batches", read=lambda r: r.arrays["e"], statistic=np.mean)
    mean = Measurement("mean", "entropy, nats", sample=sample)
    records = [
        [Record(kind="hessian", values={"mean": e.mean()}, arrays={"e": e}) for e in cell]
        for cell in spectra
    ]
    found = told(*records, measurement=mean)
    expected = contrast_of_batches(spectra, (1, -1))
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert found["verdict"] == "agrees"
    once = [[replace(r, arrays={"e": r.arrays["e"][:1]}) for r in cell] for cell in records]
    alone = told(*once, measurement=mean)  # one batch: numbers
    assert alone["low"] != pytest.approx(found["low"])


def test_a_correlation_is_judged_by_fishers_z_and_may_be_claimed_to_be_negative():
    rng = np.random.default_rng(0)
    depth = np.arange(20.0)
    points = [np.stack([depth, -depth + rng.normal(size=20)]) for _ in range(3)]
    records = [
        Record(kind="final", values={"rho": stats.spearmanr(*p).statistic}, arrays={"p": p})
        for p in points
    ]
    sample = Sample(kind="points", read=lambda r: r.arrays["p"])
    rho = Measurement("rho", "Spearman's rho", sample=sample)
    found = told(records, records, "t: convit < 0", rho)
    expected = correlation(*np.stack(points, 1)[[0]], -np.stack(points, 1)[1], "spearman")
    assert found["verdict"] == "agrees"
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert told(records, records, "t: convit > 0", rho)["verdict"] == "disagrees"
    assert told(records[:1], records[:1], "t: convit < 0", rho)["verdict"] == "undecided"


@pytest.mark.parametrize("value", [np.nan, np.inf, None])
def test_what_is_not_a_number_is_left_out_and_named_where_nothing_is_left(value):
    whole = by_number((1.0, 2.0, value), (9.0, 8.0, 7.0))
    assert whole["contrast"] == pytest.approx(1.5 - 8.0)
    found = by_number((value, value), (9.0, 8.0))
    assert (found["verdict"], found["contrast"]) == ("undecided", None)
    assert found["reading"] == "Not measured: no number for convit at c."


@pytest.mark.parametrize("scale", SCALES)
def test_the_papers_own_numbers_say_what_its_claims_say(scale):
    """A contrast of the paper's numbers that lies below the margin is a claim turned around."""
    seen = 0
    for study in catalog().values():
        plan = study.plan(SCALES[scale])
        for claim in plan.claims:
            contrast = plan.contrast(claim)
            values = [contrast.table.filled[cell].paper for cell in contrast.cells]
            if None not in values:
                weights = contrast.cells.values()
                effect = sum(w * v for w, v in zip(weights, values, strict=True))
                assert effect > contrast.margin, (study.name, claim.text, effect)
                seen += 1
    assert seen > 20
