"""Options and settings that nobody meant: each is taken, or refused in one line; nothing is left.

Trainings are asked for in a folder that another one holds. That is the last thing to be refused,
so a case that gets there was accepted, and costs no training.
"""

import random
import secrets
from contextlib import chdir
from dataclasses import fields
from typing import get_type_hints

import pytest

from data_making import no_waiting
from fuzzing import command, run_cases
from vitascope.commands.buildup import Buildup
from vitascope.commands.compare import Compare
from vitascope.commands.evaluate import Evaluate
from vitascope.commands.inspect import Inspect
from vitascope.commands.models import Models
from vitascope.commands.report import Report
from vitascope.commands.spectra import Spectra
from vitascope.commands.study import StudyOptions
from vitascope.commands.train import Train
from vitascope.data import load
from vitascope.data.sources.load import sources
from vitascope.errors import UserError
from vitascope.runs.train_model import recipe_from
from vitascope.settings import flat
from vitascope.training import Recipe, lock_folder, recipe

HELD = "is in use by process"
HERE = "OUT"  # stands for the folder that is held

COMMANDS = {
    "train": ["train", "--model", "vit_micro", "--data", "digits", "--out", HERE],
    "compare": ["compare", "--data", "digits", "--models", "vit_micro", "--out", HERE],
    "buildup": ["study", "buildup", "--data", "digits", "--out", HERE],
    "spectra": ["study", "spectra", "nowhere", "--out", HERE],
    "paper": ["study", "sample-efficiency", "--scale", "smoke", "--plan"],
    "inspect": ["inspect", "vit_micro", "--data", "digits", "--images=8", "--measures=entropy"],
    "evaluate": ["evaluate", "vit_micro", "--data", "digits", "--images", "8"],
    "models": ["models", "convit_micro"],
    "report": ["report", "nowhere"],
}
OPTIONS = {
    "train": Train,
    "compare": Compare,
    "buildup": Buildup,
    "spectra": Spectra,
    "paper": StudyOptions,
    "inspect": Inspect,
    "evaluate": Evaluate,
    "models": Models,
    "report": Report,
}
# These decide what the case is about, write where they are told, or ask the network.
KEPT = {
    "out",
    "plan",
    "print_commands",
    "pretrained",
    "teacher",
    "attention_map",
    "serve",
    "resume",
    "scale",
    "engine",
    "on",
    "table",
    "measures",
    "subject",
}
VALUES = [
    "-1", "0", "1", "2", "3", "0.5", "-0.0", "1.0", "1e-320", "1e400", "nan", ".nan", "inf",
    "-inf", ".inf", "99999999999999999999", "-99999999999999999999", "4294967296", "1_0", "0x10",
    "１", "", " ", "null", "none", "true", "no", "two", "[]", "[-1, 99]", "[1, 2]", "[[[[",
    "{}", "{a: b}", "a: b", "[", "]", "'", '"', "\\", "&a [*a]", "*a", "!!python/name:os.system",
    "2024-99-99", "2024-01-01", "é", "..", "cpu", "meta", "cuda:7", "adam", "adamv", "cosine",
    "rand-m9", "rand-m9-mstd0.5-inc1", "vit_micro", "resnet_micro", "convit_micro+cb", "digits",
    "=", "a=b", "lr=", "=1", "--", "%s", "{}{}", "*",
]  # fmt: skip
PIECES = [
    "", ".", "..", "x", "x.tar", "{", "{{", "}", "{0..99999999999}", "{a,b}", "{1..", "*", "**",
    "[", "?", "?test=", "?groups=", "?names=", "?labels=", "https://[::1", "pipe:ls",
    "http://127.0.0.1:1/a.tar", "~nobody-here/x", "\n", "a" * 5000, "%00", ":", "::", "a/b", "é",
    "\udcff", " ", "(", "/dev/null", "/dev/zero", "/proc/self/mem", "/etc/passwd", "-1", "#", "=",
]  # fmt: skip
NUMBERS = ["-1", "0", "1", "2", "3", "8", "16", "99999999999999999999", "4294967296"]
REALS = [*NUMBERS, "0.5", "0.1", "1e-320", "nan", "inf", "-0.0", "-0.5"]
SETTINGS = [*flat(recipe("laptop").to_dict()), "augmentation", "subset", "nothing", "lr.x", "."]
ARGUMENTS = [
    "embed_dim",
    "depth",
    "num_heads",
    "patch_size",
    "mlp_ratio",
    "img_size",
    "in_chans",
    "num_classes",
    "drop_path_rate",
    "qkv_bias",
    "nothing",
    "class",
]


def likely(options, option, rng):
    """Words after an option, mostly of its type: they get further than the parser."""
    kind = str(get_type_hints(options)[option])
    if kind == "<class 'bool'>":
        return [[]]
    numbers = REALS if "float" in kind else NUMBERS if "int" in kind else VALUES
    return [[value] for value in (numbers if rng.random() < 0.8 else VALUES)]


def source(rng):
    """Images that nobody meant, mostly behind a prefix that there is."""
    pieces = [rng.choice(PIECES) for _ in range(rng.choice([1, 1, 2, 3]))]
    return "".join([rng.choice([*sources(), ""]), *pieces])


def mutated(name, rng):
    """A command with one or two things changed."""
    words = list(COMMANDS[name])
    names = [field.name for field in fields(OPTIONS[name]) if field.name not in KEPT]
    for _ in range(rng.choice([1, 1, 2])):
        option = rng.choice(names)
        if option == "set":
            values = [f"{rng.choice(SETTINGS)}={rng.choice(VALUES)}"]
        elif option == "data" and rng.random() < 0.5:
            values = [source(rng)]
        elif option == "model_args":
            values = [f"{rng.choice(ARGUMENTS)}={rng.choice(VALUES)}"]
        else:
            values = rng.choice(likely(OPTIONS[name], option, rng))
        words += [f"--{option.replace('_', '-')}", *values]
    return words


def told(words, folder):
    """The exit code and what was said; nothing is left in the folder."""
    words = [str(folder / "held") if word == HERE else word for word in words]
    with lock_folder(folder / "held"):
        code, said = command(words)
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert left == ["held", "held/.lock"], (words, left)
    return code, said


def case(number, folder):
    """A mistyped command, or one in four as it should be; its outcome."""
    name, rng = list(COMMANDS)[number % len(COMMANDS)], random.Random(number)
    whole = (
        name not in ("spectra", "report", "evaluate") and rng.random() < 0.3
    )  # those name no run
    with chdir(folder):
        code, said = told(list(COMMANDS[name]) if whole else mutated(name, rng), folder)
    if whole:
        assert HELD in said or not code, f"{COMMANDS[name]} was refused: {said}"
        return "whole"
    return "held" if HELD in said else "refused" if code else "done"


def check(numbers, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(home))
    met, wrong = run_cases(case, numbers, home)
    assert not wrong, "\n\n".join(wrong)
    # or it says little
    assert min(met[name] for name in ("held", "refused", "done", "whole")) > 0, met


def test_a_mistyped_option_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    check(range(60), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(10))
def test_two_thousand_mistyped_options_are_one_line_each(part, tmp_path, monkeypatch):
    start = secrets.randbelow(10**9)  # new ones each time; a failure names its case's number
    check(range(start, start + 200), tmp_path, monkeypatch)


def made_or_refused(name, changes):
    """The recipe, or why there is none."""
    try:
        return recipe_from(name, None, changes)
    except UserError as error:
        return str(error)


def test_any_setting_makes_a_recipe_that_survives_writing_or_is_refused_in_a_line():
    rng, made = random.Random(0), 0
    for _ in range(1500):
        changes = [f"{rng.choice(SETTINGS)}={rng.choice(VALUES)}"]
        plan = made_or_refused(rng.choice(["laptop", "deit"]), changes)
        if isinstance(plan, Recipe):
            assert Recipe.from_dict(plan.to_dict()) == plan, changes
            assert 1 <= plan.total_epochs <= 1_000_000
            made += 1
        else:
            assert len(plan.splitlines()) == 1, (changes, plan)
    assert 150 < made < 1350


def loaded_or_refused(name):
    """Why a source cannot be loaded; nothing if it can."""
    try:
        with no_waiting(10, name):
            load(name)
    except UserError as error:
        return str(error)
    return ""


def test_images_that_are_nowhere_are_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    for name in [*(source(rng) for _ in range(25)), "wds:~nobody-here/x", "wds:https://[::1"]:
        why = loaded_or_refused(name)
        assert why, name
        assert len(why.splitlines()) == 1, (name, why)
        assert len(why) <= 1000, (name, why)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("models --speed", "--speed needs at least one value"),
        ("compare --data digits --seeds --out x", "--seeds needs at least one value"),
        ("train --model vit_micro --data digits --out x --model-args in_chans=0", "cannot build"),
        ("train --model vit_micro --data digits --out x --model-args embed_dim=0", "cannot build"),
        ("train --model vit_micro --data digits --out x --model-args depth=-1", "cannot build"),
        ("data wds:x-{0..99999999999}.tar", "names 100,000,000,000 shards; give at most"),
    ],
)
def test_what_once_ran_on_or_warned_is_refused_in_a_line(words, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = command(words.split())
    assert code == 2
    assert why in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "train --set lr=3e-4 augmentation.mixup=0.2 ema=0.999 keep_epochs=[0,30]",
        "train --seed 4294967295 --image-size 16 --workers 2 --device cpu --fraction 0.5",
        "train --recipe cifar --epochs 1 --model-args depth=2 --set optimizer=sgd drop_path=0.9",
        "compare --fractions 0.1 0.11 1 --seeds 0 7 --processes 3 --set weight_decay=0",
        "buildup --margin 0.5 --validation 0.1 --max-candidates 1 --seeds 3",
    ],
)
def test_what_is_meant_is_accepted(words, tmp_path):
    name, *rest = words.split()
    assert HELD in told([*COMMANDS[name], *rest], tmp_path)[1]
