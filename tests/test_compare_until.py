"""`compare --until decided`: seeds in rounds for the models still in question."""

import json
from dataclasses import replace

import numpy as np
import pytest

from vitascope.commands import main
from vitascope.comparison.cautions import Trainings, cautions
from vitascope.comparison.evidence import Evidence, RunResult, tabulate
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.question import comparison_of
from vitascope.comparison.rounds import in_rounds, most_seeds
from vitascope.data import load as load_images
from vitascope.data.held_out import dealt_out, one_fold
from vitascope.errors import UserError
from vitascope.record import load

ASKED = comparison_of(CompareOptions(data="digits", models=("a", "b", "c"), fractions=(0.1, 1.0)))
COST = {"a": 3.0, "b": 2.0, "c": 1.0}


class Made:
    """Runs of made-up models: what each model gets right with each seed."""

    def __init__(self, accuracies, images=3000, spread=0.01):
        self.accuracies, self.images, self.spread = accuracies, images, spread
        self.seeds = {}

    def right(self, model, seed):
        image = np.random.default_rng(7).standard_normal(self.images)
        rng = np.random.default_rng([seed, ord(model)])
        level = self.accuracies[model] + self.spread * rng.standard_normal()
        mixed = 0.8 * image + 0.6 * rng.standard_normal(self.images)
        return mixed < np.quantile(mixed, min(level, 1.0))

    def evidence(self, question):
        runs = [
            RunResult(model, fraction, seed, 1000, self.right(model, seed))
            for model, fraction in question.trainings()
            for seed in question.seeds_of(model, fraction)
        ]
        self.seeds = {m: question.seeds_of(m, 1.0) for m in question.models}
        return Evidence(name="validation", runs=tuple(runs))


def rounds(made, most=10, affordable=lambda runs: True):
    asked_for, told, question = [], [], ASKED

    def add(models):
        nonlocal question
        longer = question.with_another_seed(models)
        runs = [run for run in longer.runs() if run not in question.runs()]
        if not affordable(runs):
            return False
        question = longer
        asked_for.append(runs)
        return True

    found = in_rounds(
        lambda: made.evidence(question),
        add,
        COST,
        first=len(ASKED.seeds),
        most=most,
        margin=ASKED.margin,
        tell=told.append,
    )
    return question, found, asked_for, told


def test_seeds_go_to_the_models_in_question_alone_and_only_on_most_images():
    made = Made({"a": 0.86, "b": 0.85, "c": 0.5}, spread=0.008)
    question, found, asked_for, told = rounds(made)
    assert len(found.looks) > 1
    assert question.seeds_of("c", 1.0) == (0, 1, 2)
    assert question.seeds_of("a", 1.0)[:4] == (0, 1, 2, 3)
    assert question.seeds_of("a", 0.1) == (0, 1, 2)
    for round_ in asked_for:
        assert sorted(training.model for training, _, _ in round_) == ["a", "b"]
        assert {training.changes["subset.fraction"] for training, _, _ in round_} == {1.0}
    assert len(told) == len(found.looks)


def test_a_decided_comparison_trains_nothing_more():
    _, found, asked_for, _ = rounds(Made({"a": 0.9, "b": 0.7, "c": 0.5}))
    assert (found.ended, asked_for) == ("decided", [])
    assert found.recommendation.model == "a"
    assert "1 look was taken" in found.notes()[0]


def test_rounds_end_with_the_budget_and_say_so():
    made = Made({"a": 0.86, "b": 0.85, "c": 0.5}, spread=0.008)
    times = iter([True, False])
    question, found, asked_for, _ = rounds(made, affordable=lambda runs: next(times))
    assert found.ended == "budget"
    assert len(asked_for) == 1
    assert len(question.seeds_of("a", 1.0)) == 4
    assert any("budget ended" in each for each in found.notes())


def test_few_images_are_named_with_how_many_more_would_do():
    _, found, _, _ = rounds(Made({"a": 0.86, "b": 0.84, "c": 0.5}, images=150, spread=1e-4))
    assert found.ended == "images"
    needed = found.recommendation.needed
    count = needed.images or needed.both[0]
    assert f"about {count:,} more images" in found.notes()[-1]


def test_an_interrupted_comparison_comes_to_the_same_looks():
    made = Made({"a": 0.86, "b": 0.85, "c": 0.5}, spread=0.008)
    whole = rounds(made)[1]
    again = rounds(made)[1]
    assert whole.values() == again.values()


def test_a_budget_buys_as_many_seeds_as_there_is_time_for():
    assert most_seeds(3, room=95.0, one_round=30.0) == 6
    assert most_seeds(3, room=-1.0, one_round=30.0) == 3
    assert most_seeds(12, room=1e9, one_round=1.0) == 12


def test_one_seed_is_too_few_for_a_first_look():
    with pytest.raises(UserError, match="two or more seeds"):
        replace(ASKED, seeds=(0,), until="decided")


def test_training_cut_short_by_a_budget_is_the_first_caution():
    runs = tuple(
        RunResult(model, 1.0, seed, 1000, np.random.default_rng(seed).random(500) < share)
        for model, share in (("a", 0.9), ("b", 0.5))
        for seed in range(3)
    )
    test = Evidence(name="test", runs=runs)
    trainings = Trainings(epochs=7, asked_epochs=30, leak="3 test images are also in training")
    found = cautions(tabulate(test, "a"), trainings, 1.0, model="a", chosen=test, reported=test)
    assert "7 of 30 epochs" in found[0].words
    whole = replace(trainings, epochs=30)
    found = cautions(tabulate(test, "a"), whole, 1.0, model="a", chosen=test, reported=test)
    assert "epochs" not in found[0].words


WORDS = ["compare", "--data", "digits", "--models", "vit_micro", "resnet_micro", "--epochs", "2"]
WORDS += ["--fractions", "0.2", "--set", "scale_epochs=false", "--processes", "1"]
WORDS += ["--until", "decided"]


def test_the_page_and_the_terminal_say_how_many_looks_were_taken(tmp_path, capsys):
    out = tmp_path / "c"
    assert main([*WORDS, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "after 3 seeds" in said.err
    assert "1 look was taken" in said.out
    assert "Use it: `vitascope predict" in said.out
    page = (out / "report.html").read_text()
    assert "1 look was taken" in page
    record = load(out / "compare")
    assert [each["seeds"] for each in record.values["rounds"]["looks"]] == [3]
    times = [path.stat().st_mtime_ns for path in sorted(out.glob("runs/*/*/record.json"))]
    assert main([*WORDS, "--out", str(out), "--json"]) == 0  # nothing is trained again
    assert json.loads(capsys.readouterr().out)["rounds"] == record.values["rounds"]
    assert times == [p.stat().st_mtime_ns for p in sorted(out.glob("runs/*/*/record.json"))]


def test_every_seed_may_have_folds_of_its_own():
    question = replace(ASKED, folds=3, redraw=True, fractions=(1.0,))
    training = question.training("a", 1.0)
    assert [part.fold for part in question.on_every_fold(training, 0)] == [(0, 3), (1, 3), (2, 3)]
    drawn = [part.fold for part in question.on_every_fold(training, 2)]
    assert drawn == [(0, 3, 2), (1, 3, 2), (2, 3, 2)]
    keys = {part.key for seed in (0, 2) for part in question.on_every_fold(training, seed)}
    assert len(keys) == 6
    same = replace(question, redraw=False)
    assert [part.fold for part in same.on_every_fold(training, 2)] == [(0, 3), (1, 3), (2, 3)]
    assert "redraw" not in same.config


def test_folds_are_dealt_anew_with_each_seed():
    digits = load_images("digits", test_fraction=0)
    dealt = dealt_out(digits, 5, (0, 3))
    assert dealt.shape == (2, len(digits.train))
    assert (dealt[0] != dealt[1]).mean() > 0.5
    for row, seed in zip(dealt, (0, 3), strict=True):
        assert np.ptp(np.bincount(row)) <= 1
        for fold in range(5):
            part = one_fold(digits, (fold, 5, seed))
            np.testing.assert_array_equal(part.test.labels, digits.train.labels[row == fold])
    np.testing.assert_array_equal(  # the first draw is the one that there always was
        one_fold(digits, (1, 5)).test.labels, one_fold(digits, (1, 5, 0)).test.labels
    )


@pytest.mark.parametrize("more", [["--until", "decided"], ["--budget", "1h"]])
def test_runs_that_are_decided_on_the_way_cannot_be_printed_beforehand(more, tmp_path, capsys):
    words = ["compare", "--data", "digits", "--print-commands", *more]
    assert main([*words, "--out", str(tmp_path / "c")]) == 2
    err = capsys.readouterr().err.strip()
    assert more[0] in err
    assert "leave one of them out" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("finish", ["best", "last"])
def test_a_training_on_all_images_takes_the_last_epoch(finish):
    """There are no validation images then, and test images must not choose the epoch."""
    recipe = {"recipe": "finetune_small", "set": (f"finish={finish}",)}
    asked = comparison_of(CompareOptions(data="digits", **recipe))
    assert "finish=last" in asked.for_all_images("vit_micro")["set"]
    assert "finish=last" not in ASKED.for_all_images("a")["set"]
