"""What a comparison trains: timed, within its budget, tuned and matched."""

import json
from dataclasses import replace
from time import perf_counter

import pytest
import torch
from torch import nn

from vitascope import data
from vitascope.commands import main
from vitascope.comparison.budget import fit, seconds_from
from vitascope.comparison.matching import TOLERANCE, matched_widths
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.planning import duration_of, make_plan, save_plan
from vitascope.comparison.question import comparison_of
from vitascope.comparison.tuning import FACTORS, Tried, best_rates, tuning_trainings
from vitascope.data.held_out import held_out
from vitascope.errors import UserError
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import build
from vitascope.record import load
from vitascope.runs import cost
from vitascope.runs.cost import ImageCounts, Speed, seconds_of_epoch, time_steps
from vitascope.training import recipe

MODELS = ("a", "b", "c")
SPEEDS = {"a": Speed(0.001, 0.0), "b": Speed(0.002, 0.0), "c": Speed(0.004, 0.0)}
COUNTS = ImageCounts(1000, 0)
OPTIONS = CompareOptions(data="digits", models=MODELS, fractions=(0.1, 0.3, 1.0))
ASKED = replace(comparison_of(OPTIONS), reference="a")
TWO = CompareOptions(data="digits", models=("vit_micro", "resnet_micro"))


def seconds(question):
    return duration_of(question, COUNTS, SPEEDS, 1)


def fitted(budget):
    return fit(ASKED, budget, seconds)


def test_time_is_that_of_all_epochs_and_a_start_for_each_run():
    """30 epochs of 1,000 images at 1 + 2 + 4 ms, three seeds, three fractions of equal cost."""
    assert seconds(ASKED) == pytest.approx(3 * 3 * (30 * 7 + 3 * 2.0), rel=0.01)


def test_an_epoch_is_measured_as_often_per_image_on_a_fraction():
    plan = recipe("laptop")
    few = plan.override(**{"subset.fraction": 0.1})
    speed, counts = Speed(0.001, 0.001), ImageCounts(1000, 100)
    assert seconds_of_epoch(plan, counts, speed) == pytest.approx(1.1)
    assert seconds_of_epoch(few, counts, speed) == pytest.approx(0.11)


def test_few_images_in_smaller_batches_cost_more_updates():
    """100 of 1,000 images make batches of 24, not of 64, and an update takes 10 ms more."""
    plan = recipe("laptop", batch_size=64)
    few = plan.override(**{"subset.fraction": 0.1})
    speed, counts = Speed(0.001, 0.0, 0.01), ImageCounts(1000, 0)
    assert seconds_of_epoch(plan, counts, speed) == pytest.approx(1 + 0.01 * 1000 / 64)
    assert seconds_of_epoch(few, counts, speed) == pytest.approx(0.1 + 0.01 * 100 / 24)


def test_a_budget_with_room_leaves_nothing_out():
    found = fitted(seconds(ASKED) + 1)
    assert (found.question, found.left_out) == (ASKED, ())


def test_fractions_go_first_the_smallest_before_the_others():
    found = fitted(seconds(ASKED) - 1)
    assert found.question.fractions == (0.3, 1.0)
    assert found.question.models == MODELS
    assert found.left_out == ("the runs on 10 % of the images",)
    found = fitted(seconds(replace(ASKED, fractions=(1.0,))))
    assert found.left_out == ("the runs on 10 % and 30 % of the images",)
    assert found.question.recipe.epochs == 30


def test_then_epochs_go_and_never_candidates_or_seeds():
    least = replace(ASKED, fractions=(1.0,))
    budget = seconds(least) / 2
    found = fitted(budget)
    assert found.question.models == MODELS
    assert found.question.seeds == (0, 1, 2)
    assert 1 < found.question.recipe.epochs < 30
    assert found.seconds <= budget
    more = replace(found.question.recipe, epochs=found.question.recipe.epochs + 1)
    assert seconds(replace(found.question, recipe=more)) > budget
    assert found.left_out[1].endswith("of 30 epochs")


def test_a_budget_that_cannot_be_kept_says_what_would_do():
    with pytest.raises(UserError, match=r"10 seconds does not suffice: 3 models with 3 seeds take"):
        fitted(10.0)
    with pytest.raises(UserError, match="at least three seeds, and there are 2"):
        fit(replace(ASKED, seeds=(0, 1)), 1e9, seconds)


@pytest.mark.parametrize("words", ["20", "m", "", "-5m", "0s", "20 parsecs", "nanh", "infh"])
def test_a_budget_is_a_time(words):
    with pytest.raises(UserError, match="--budget takes a time such as"):
        seconds_from(words)


def test_steps_of_a_larger_model_take_longer_and_leave_nothing_behind(monkeypatch):
    def count(module, inputs, output):
        if isinstance(module, nn.Linear):  # a clock that no other work on the machine disturbs
            ticks.append(len(output))

    ticks = []
    monkeypatch.setattr(cost, "perf_counter", lambda: float(sum(ticks)))
    digits = data.load("digits")
    plan = recipe("laptop", batch_size=32)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    hook = nn.modules.module.register_module_forward_hook(count)
    try:
        small = time_steps("vit_micro", digits, plan)
        large = time_steps("vit_micro", digits, plan, depth=16)
    finally:
        hook.remove()
    layers = 4 * 4 + 1  # four in each of four blocks, and the head
    assert small == Speed(step=layers, test=layers, update=0)
    assert large.step == 4 * 16 + 1
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_each_model_is_tried_with_four_rates_at_equal_cost_and_no_test_image():
    asked = comparison_of(TWO)
    trainings = tuning_trainings(asked)
    assert len(trainings) == 2 * len(FACTORS)
    for (_, lr), training in trainings.items():
        assert training.full_recipe.lr == lr
        assert training.full_recipe.total_epochs == round(30 / 4)
        assert training.validation == 0.2
    assert sorted({lr for _, lr in trainings}) == pytest.approx([5e-4, 1e-3, 2e-3, 4e-3])


def test_the_rate_with_the_best_validation_accuracy_is_taken():
    found = [Tried("a", 1.0, 90, 0.1), Tried("a", 2.0, 91, 0.9), Tried("b", 1.0, 50, 2.0)]
    assert best_rates(found) == {"a": 2.0, "b": 1.0}


def test_rates_are_tuned_kept_and_used(tmp_path, capsys):
    words = ["compare", "--data", "digits", "--models", "resnet_micro", "--fractions", "0.1"]
    words += ["--epochs", "4", "--seeds", "0", "--set", "scale_epochs=false", "--processes", "1"]
    words += ["--out", str(tmp_path / "c"), "--tune"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "1 model (resnet_micro) x 1 fraction x 1 seed: 1 run of 4 epochs, after 4" in said.err
    assert "Learning rates were chosen for each model" in said.out
    tuning = load(tmp_path / "c/tuning").values
    assert len(tuning["tried"]) == 4
    answer = load(tmp_path / "c/compare")
    assert answer.values["rates"] == tuning["rates"]
    assert answer.values["models"][0]["lr"] == tuning["rates"]["resnet_micro"]
    runs = sorted((tmp_path / "c").glob("runs/*/*/record.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    assert main([*words, "--json"]) == 0  # all is there: nothing is trained again
    assert json.loads(capsys.readouterr().out)["recommendation"]["model"] == "resnet_micro"
    assert [path.stat().st_mtime_ns for path in runs] == times


def test_a_budget_that_cannot_be_kept_writes_nothing(tmp_path, capsys):
    words = ["compare", "--data", "digits", "--models", "resnet_micro", "vit_micro"]
    words += ["--fractions", "0.05", "0.1", "--epochs", "400", "--set", "scale_epochs=false"]
    words += ["--processes", "1", "--out", str(tmp_path / "c"), "--budget"]
    assert main([*words, "1s"]) == 2
    err = capsys.readouterr().err.strip()
    assert "does not suffice" in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_budget_with_room_tunes_and_one_without_does_not(tmp_path):
    digits = held_out(data.load("digits"), 0.2)
    asked = comparison_of(TWO)
    recipes, long = dict.fromkeys(asked.models, asked.recipe), replace(TWO, budget="10h")
    plan = make_plan(asked, long, digits, recipes, tmp_path, 1)
    assert (plan.tune, plan.left_out, plan.question) == (True, (), asked)
    tight = replace(TWO, budget=f"{0.4 * plan.seconds:.0f}s")
    short = make_plan(asked, tight, digits, recipes, tmp_path, 1)
    assert not short.tune
    assert short.question.seeds == asked.seeds
    assert short.notes[0].startswith("Left out to end within")
    assert short.lines[1:] == short.notes
    late = perf_counter() - 36_000 + 0.3 * plan.seconds  # ten hours ago, nearly
    later = make_plan(asked, long, digits, recipes, tmp_path, 1, late)
    assert later.left_out  # what it took so far is off the budget
    save_plan(short, asked, tight, tmp_path)  # timed again it would differ
    assert make_plan(asked, tight, digits, recipes, tmp_path, 1) == short
    assert make_plan(asked, TWO, digits, recipes, tmp_path, 1).left_out == ()


@pytest.mark.slow
def test_widths_are_chosen_so_that_costs_agree():
    digits = data.load("digits", image_size=16)
    names = ("vit_micro", "convit_micro", "resnet_micro")
    found = matched_widths(names, digits)
    wanted = count(build("vit_micro", digits).model, digits.train.size)[1]
    before = count(build("resnet_micro", digits).model, digits.train.size)[1]
    assert abs(before / wanted - 1) > TOLERANCE
    for name in names[1:]:
        cost = count(build(name, digits, **found[name]).model, digits.train.size)[1]
        assert cost == pytest.approx(wanted, rel=TOLERANCE)
    with pytest.raises(UserError, match="has no width that can be set"):
        matched_widths(("vit_micro", "timm:test_vit"), digits)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rates", "vit_mirco=1"], "names none of the models"),
        (["--rates", "vit_micro=fast"], "NAME=VALUE with a positive number"),
        (["--match", "size"], "--match takes compute"),
        (["--folds", "1"], "--folds must be from 2 to 100, not 1"),
        (["--validation", "1"], "--validation must be in [0, 1), not 1"),
        (["--metric", "f1"], "--metric takes top1 or balanced"),
        (["--budget", "soon"], "--budget takes a time such as"),
    ],
)
def test_a_wrong_wish_is_one_line_before_anything_is_trained(words, says, tmp_path, capsys):
    assert main(["compare", "--data", "digits", *words, "--out", str(tmp_path / "c")]) == 2
    err = capsys.readouterr().err.strip()
    assert says in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
