"""What is typed is understood as it was meant."""

import shlex

import pytest

from vitascope.commands.parsing import parse
from vitascope.commands.train import Train
from vitascope.runs.train_model import recipe_from
from vitascope.settings import changed, command_line, pairs
from vitascope.training import RECIPES, recipe


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_typed_out_in_full_is_that_recipe(name):
    wanted = recipe(name, travel=("*gating_param", "a b"), mixed_precision="no")
    settings = {key: value for key, value in wanted.to_dict().items() if key != "name"}
    line = command_line(
        ["vitascope", "train"],
        [
            ("--model", "convit_micro"),
            ("--data", "a 'b'"),
            ("--out", "o"),
            ("--recipe", name),
            ("--set", changed(settings)),
        ],
    )
    asked = parse(Train, "vitascope train", shlex.split(line)[2:])
    assert asked.data == "a 'b'"
    assert recipe_from(asked.recipe, None, asked.set) == wanted


@pytest.mark.parametrize(
    "value",
    [
        "no",
        "null",
        "1",
        "1e3",
        "*star",
        "a: b",
        "",
        "a,b",
        "[",
        "~",
        "true",
        "cosine",
        "x/y.z",
        None,
        True,
        3,
        0.1,
        [],
        ["no", 1, None],
        "2001-01-01",
    ],
)
def test_every_value_comes_back_as_it_was(value):
    assert pairs(changed({"field": value}), "--set") == {"field": value}


def test_tuples_come_back_as_lists():
    found = pairs(changed({"kinds": (("c", "a"), (1.5,))}), "--set")
    assert found == {"kinds": [["c", "a"], [1.5]]}


def test_what_is_usual_is_not_typed():
    usual = {"lr": 0.1, "subset": {"fraction": 1.0, "seed": 0}, "ema": None}
    wanted = {"lr": 0.1, "subset": {"fraction": 0.5, "seed": 0}, "ema": None}
    assert changed(wanted, usual) == ("subset.fraction=0.5",)
    assert changed({"new": None}, {}) == ("new=null",)
