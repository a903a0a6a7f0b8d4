"""Looks at a comparison after every seed: their errors together, what they save, where they end."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from simulated_runs import World
from vitascope.errors import UserError
from vitascope.stats import levels, looks, recommend
from vitascope.stats.repeated import ALPHA, spent

COST = {"a": 3.0, "b": 2.0, "c": 1.0}


def runs(*accuracies, seeds=10, images=500, spread=1.0, seed=0):
    world = World(
        accuracies=accuracies, spreads=(spread,) * len(accuracies), seeds=seeds, images=images
    )
    return dict(zip(COST, next(iter(world.trials(1, seed))), strict=False))


@pytest.mark.parametrize("spending", ["pocock", "obrien-fleming"])
def test_all_looks_together_err_as_often_as_was_to_be_spent(spending):
    """Paths of a Brownian motion leave the boundaries in 5 % of 100,000 trials."""
    nominal = levels(range(3, 11), 10, spending=spending)
    steps = np.random.default_rng(0).standard_normal((100_000, 10))
    paths = steps.cumsum(1)[:, 2:] / np.sqrt(np.arange(3, 11))
    out = np.abs(paths) > ndtri(1 - np.array(nominal) / 2)
    assert out.any(1).mean() == pytest.approx(ALPHA, abs=0.003)
    assert (np.abs(paths) > ndtri(0.975)).any(1).mean() > 2 * ALPHA  # without it


def test_the_boundaries_are_those_of_the_literature():
    """Lan and DeMets with five equal looks at 5 %, two-sided, as in Jennison and Turnbull."""
    found = [ndtri(1 - each / 2) for each in levels([1, 2, 3, 4, 5], 5, spending="obrien-fleming")]
    assert found == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.002)
    found = [ndtri(1 - each / 2) for each in levels([1, 2, 3, 4, 5], 5)]
    assert found == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=0.002)


def test_one_look_may_use_the_whole_error():
    assert levels([5], 5) == pytest.approx([ALPHA])
    assert spent(1.0, spending="obrien-fleming") == pytest.approx(ALPHA)
    assert 2 * ndtr(ndtri(ALPHA / 2)) == pytest.approx(ALPHA)


def test_a_look_is_more_careful_than_a_comparison_that_looks_once():
    right = runs(86.0, 82.0, 78.0, images=2000)
    (first, *_) = looks(right, COST, first=3, most=10)
    once = recommend({name: each[:3] for name, each in right.items()}, COST)
    careful, usual = (found.against["b"] for found in (first.recommendation, once))
    assert careful.value == usual.value
    assert careful.low < usual.low
    assert first.alpha < ALPHA


def test_a_large_lead_is_clear_at_the_first_look():
    (look,) = looks(runs(92.0, 80.0, 76.0, seeds=3), COST, first=3, most=10)
    assert (look.recommendation.model, look.recommendation.verdict) == ("a", "clear")
    assert look.contenders == ()


def test_a_model_that_is_behind_gets_no_more_seeds_and_stays_behind():
    right = runs(86.0, 84.5, 60.0, images=2000, seed=3)
    right["c"] = right["c"][:3]
    found = looks(right, COST, first=3, most=10)
    assert len(found) > 1
    assert found[0].behind == ("c",)
    assert found[0].contenders == ("a", "b")
    for look in found[1:]:
        assert "c" in look.behind
        assert "c" not in look.recommendation.rivals


def test_looks_depend_on_the_runs_alone_so_that_they_can_be_continued():
    right = runs(84.0, 82.5, 70.0, images=2000, seed=1)
    whole = looks(right, COST, first=3, most=10)
    for seeds in range(3, 3 + len(whole)):
        part = {name: each[:seeds] for name, each in right.items()}
        early = looks(part, COST, first=3, most=10)
        assert [(x.seeds, x.behind) for x in early] == [
            (x.seeds, x.behind) for x in whole[: seeds - 2]
        ]


def test_few_images_end_the_looks_and_say_how_many_more_would_do():
    """Runs that hardly spread: more of them cannot help."""
    right = runs(84.0, 83.0, images=120, spread=0.01, seed=2)
    last = looks(right, COST, first=3, most=10)[-1]
    assert last.recommendation.verdict == "undecided"
    assert (last.limit, last.contenders) == ("images", ())
    assert last.seeds < 10
    needed = last.recommendation.needed
    assert (needed.images or needed.both[0]) > 120


def test_one_model_alone_needs_no_more_seeds():
    (look,) = looks(runs(84.0, seeds=3), COST, first=3, most=10)
    assert look.contenders == ()


def test_looks_of_repeated_folds():
    right = runs(92.0, 80.0, seeds=4, images=1000)
    found = looks(right, COST, first=3, most=6, folds=np.arange(1000) % 5)
    assert found[-1].recommendation.verdict == "clear"


def test_a_wrong_number_of_seeds_is_refused():
    with pytest.raises(UserError, match="first look takes 2 to 10 seeds, not 1"):
        looks(runs(80.0, 70.0), COST, first=1, most=10)
    with pytest.raises(UserError, match="at most 3 seeds"):
        levels([2, 4], 3)


def script():
    path = Path(__file__).parents[1] / "scripts" / "make_until.py"
    spec = importlib.util.spec_from_file_location("make_until", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("images", [360, 2000])
@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_clear_is_wrong_at_most_five_times_in_a_hundred_over_all_looks(images, spread):
    row = script().simulated(0.0, spread, images, 300)
    assert row["false_clear"] <= 0.05 + 0.02  # and a standard error and a half
    assert row["false_equivalent"] <= 0.05


@pytest.mark.slow
def test_seeds_in_rounds_take_fewer_runs_than_a_fixed_number_with_the_same_power():
    row = script().simulated(4.0, 2.0, 2000, 200)
    assert row["clear"] > 0.7
    assert row["fixed_seeds"] is not None
    assert row["runs"] < 0.85 * 3 * row["fixed_seeds"]
