"""Which model is recommended, and with which words, on made-up runs."""

import numpy as np
import pytest

from simulated_runs import World
from vitascope.errors import UserError
from vitascope.stats import recommend
from vitascope.stats.differences import Images, Runs, parts
from vitascope.stats.recommendation import scaled

COST = {"small": 1.0, "middle": 2.0, "large": 4.0}


def runs(*accuracies, seeds=3, images=2000, spread=0.3, seed=0):
    world = World(
        accuracies=accuracies, spreads=(spread,) * len(accuracies), seeds=seeds, images=images
    )
    return dict(zip(COST, next(iter(world.trials(1, seed))), strict=False))


def test_the_best_that_is_ahead_of_all_is_clear():
    found = recommend(runs(80.0, 84.0, 90.0, seeds=5), COST)
    assert (found.model, found.verdict, found.best) == ("large", "clear", "large")
    assert set(found.against) == {"small", "middle"}
    assert all(lead.low > 0 for lead in found.against.values())
    assert found.needed is None
    assert found.rivals == ()
    assert "\n" not in found.reason


def test_a_cheaper_model_is_taken_only_where_its_deficit_is_shown_to_be_below_the_margin():
    right = runs(89.8, 90.0, 90.1, seeds=5, images=20_000, spread=0.1)
    found = recommend(right, COST)
    assert (found.model, found.verdict) == ("small", "equivalent")
    assert found.against["small"].high < 1.0 if found.best != "small" else True
    assert recommend(right, COST, margin=0.0).verdict != "equivalent"


def test_a_cheaper_model_that_is_clearly_behind_by_less_than_the_margin_is_equivalent():
    found = recommend(runs(88.0, 90.0, seeds=5, images=20_000, spread=0.1), COST, margin=4.0)
    assert found.against["small"].low > 0
    assert (found.model, found.verdict, found.best) == ("small", "equivalent", "middle")


def test_what_cannot_be_told_names_the_best_mean_its_rivals_and_what_would_decide():
    right = runs(84.0, 88.0, seeds=2, images=359, spread=1.0)
    found = recommend(right, COST)
    assert (found.model, found.verdict) == ("middle", "undecided")
    assert found.rivals == ("small",)
    assert "Undecided between middle and small" in found.reason
    assert found.needed.seeds is not None
    assert str(found.needed.seeds) in found.reason


def test_so_many_more_images_make_the_interval_short_enough_and_fewer_do_not():
    found = recommend(runs(84.0, 86.0, seeds=3, images=300, spread=0.3, seed=3), COST)
    lead = found.against["small"]
    assert found.verdict == "undecided"
    halves = [
        scaled(lead.variance, 1 + share * found.needed.images / 300, 1.0, 3, False).half_width()
        for share in (0.9, 1.0)
    ]
    assert halves[1] < lead.value < halves[0]


@pytest.mark.parametrize(("images", "seeds"), [(4, 1), (1, 2), (4, 2)])
def test_the_variance_that_is_foretold_is_the_one_that_more_images_and_seeds_have(images, seeds):
    def totals(change):
        world = World(
            accuracies=(84.0, 88.0), spreads=(3.0, 3.0), seeds=3 * change[1], images=300 * change[0]
        )
        met = Images(world.images)
        (stack,) = world.stacked(250, seed=2)
        return parts([Runs(stack[:, k], met) for k in (0, 1)], (1, -1))[1]

    foretold = scaled(totals((1, 1)), images, seeds, 3, False)
    now = totals((images, seeds))
    for part in ("images", "seeds", "residual"):
        expected = np.mean(getattr(now, part))
        assert np.mean(getattr(foretold, part)) == pytest.approx(expected, rel=0.2)


def test_a_tie_goes_to_the_cheapest_that_is_no_more_than_the_margin_behind():
    rng = np.random.default_rng(0)
    large = rng.random((3, 200)) < 0.8
    small, middle = large.copy(), large.copy()
    for right, fewer in ((small, 6), (middle, 1)):  # of 200: 3 points and half a point
        for run in right:
            run[np.flatnonzero(run)[:fewer]] = False
    right = {"small": small, "middle": middle, "large": large}
    noisy = {name: rng.permuted(each, axis=1) for name, each in right.items()}
    cost = {"small": 1.0, "middle": 2.0, "large": 4.0}
    found = recommend(noisy, cost, margin=0.6)
    assert found.verdict == "undecided"
    assert (found.model, found.best) == ("middle", "large")
    assert "it costs less than large" in found.reason
    assert recommend(noisy, cost, margin=4.0).model == "small"


def test_where_neither_images_nor_seeds_alone_would_decide_both_are_asked_for():
    right = runs(84.0, 86.0, seeds=3, images=300, spread=0.3, seed=4)
    found = recommend(right, COST)
    assert (found.needed.images, found.needed.seeds) == (None, None)
    images, seeds = found.needed.both
    assert f"{images:,} more images to choose by, with {seeds} more seeds" in found.reason
    assert images == 100 * seeds  # in proportion


def test_one_run_each_is_never_clear():
    right = {"small": np.zeros((1, 500), bool), "large": np.ones((1, 500), bool)}
    found = recommend(right, COST)
    assert (found.model, found.verdict) == ("large", "undecided")
    assert found.needed.seeds == 2
    assert "one run each" in found.reason


def test_one_run_each_is_never_equivalent():
    same = np.ones((1, 50_000), bool)
    assert recommend({"small": same, "large": same}, COST).verdict == "undecided"


def test_one_model_is_recommended_without_a_claim():
    found = recommend(runs(80.0), COST)
    assert (found.model, found.verdict, found.against) == ("small", "undecided", {})


@pytest.mark.parametrize("value", [True, False])
def test_equal_answers_are_equivalent_on_many_images_and_undecided_on_few(value):
    few, many = ({name: np.full((3, n), value) for name in COST} for n in (100, 2000))
    assert recommend(few, COST).verdict == "undecided"
    found = recommend(many, COST)
    assert (found.model, found.verdict) == ("small", "equivalent")


def test_seeds_of_different_number_are_compared():
    right = runs(80.0, 90.0, seeds=4)
    found = recommend({"small": right["small"][:2], "middle": right["middle"]}, COST)
    assert (found.model, found.verdict) == ("middle", "clear")
    one = recommend({"small": right["small"][:1], "middle": right["middle"]}, COST)
    assert one.model == "middle"
    assert one.against["small"].variance.freedom == pytest.approx(3)  # of the other model


def test_frames_of_few_videos_do_not_make_it_clear():
    right = runs(85.0, 88.0, images=60, seeds=4)
    copies = {name: np.repeat(each, 40, axis=1) for name, each in right.items()}
    videos = np.repeat(np.arange(60), 40)
    assert recommend(copies, COST, groups=videos).verdict == "undecided"
    grouped, alone = (recommend(copies, COST, groups=g).against["small"] for g in (videos, None))
    assert grouped.variance.images > 20 * alone.variance.images


def test_balanced_accuracy_may_choose_another_model():
    labels = np.array([0] * 1800 + [1] * 200)
    rng = np.random.default_rng(0)
    always = np.tile(labels == 0, (3, 1)) ^ (rng.random((3, 2000)) < 0.01)
    fair = rng.random((3, 2000)) < 0.8
    right = {"small": always, "large": fair}
    assert recommend(right, COST).best == "small"
    assert recommend(right, COST, labels=labels).best == "large"


def test_folds_of_one_seed_can_decide_because_every_model_was_trained_several_times():
    right = runs(70.0, 90.0, seeds=1)
    assert recommend(right, COST).verdict == "undecided"
    assert recommend(right, COST, folds=np.arange(2000) % 5).verdict == "clear"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda right: right.clear(), "no model"),
        (lambda right: right.update(small=right["small"][:, :-1]), "same images"),
        (lambda right: right.update(small=right["small"][0]), r"\(seeds, images\)"),
        (lambda right: right.update(tiny=right["small"]), "no cost is known of tiny"),
        (lambda right: right.update(small=np.full((3, 2000), np.nan)), "right or wrong"),
        (lambda right: right.update(small=np.zeros((0, 2000), bool)), "small must be"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(change, message):
    right = runs(80.0, 90.0)
    change(right)
    with pytest.raises(UserError, match=message) as error:
        recommend(right, COST)
    assert "\n" not in str(error.value)


def test_a_margin_below_zero_is_refused():
    with pytest.raises(UserError, match="margin"):
        recommend(runs(80.0, 90.0), COST, margin=-1.0)
