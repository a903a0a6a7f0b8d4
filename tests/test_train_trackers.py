"""Metrics reach whoever was asked to keep them."""

import re

import pytest
from accelerate.tracking import GeneralTracker, on_main_process

import vitascope
from vitascope import data
from vitascope.cli import main
from vitascope.train import recipe, train


class Notebook(GeneralTracker):
    """A tracker that somebody else wrote."""

    name = "notebook"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.config, self.lines, self.finished = {}, [], False

    @property
    def tracker(self):
        return self.lines

    @on_main_process
    def store_init_configuration(self, values):
        self.config = values

    @on_main_process
    def log(self, values, step=None, **_):
        self.lines.append((step, values))

    @on_main_process
    def finish(self):
        self.finished = True


def few_digits():
    images = data.load("digits")
    few = {"train": images.train.take(range(64)), "test": images.test.take(range(40))}
    return data.Dataset(**{**images.__dict__, **few})


def test_any_tracker_of_the_engine_gets_the_settings_and_every_epochs_metrics(tmp_path):
    notebook = Notebook()
    model = vitascope.create_model("vit_micro", img_size=8, in_chans=1, num_classes=10)
    plan = recipe("laptop", epochs=2, batch_size=32)
    run = train(
        model,
        few_digits(),
        plan,
        tmp_path / "a",
        seed=7,
        quiet=True,
        trackers=[notebook],
        model_config={"name": "vit_micro"},
    )
    assert [step for step, _ in notebook.lines] == [2, 4]
    assert notebook.lines[-1][1]["top1"] == run.final["top1"]
    assert notebook.config["recipe.lr"] == plan.lr
    assert notebook.config["model.name"] == "vit_micro"
    assert notebook.config["seed"] == 7
    assert notebook.finished


@pytest.mark.parametrize(
    ("tracker", "said"),
    [
        ("notes", "unknown tracker 'notes'; there are: aim, "),
        ("wandb", r"'wandb' is not installed \(installed: tensorb"),
    ],
)
def test_a_tracker_that_is_not_there_is_refused_before_training(tracker, said, tmp_path, capsys):
    words = ["train", "--model", "vit_micro", "--data", "digits", "--trackers", tracker]
    assert main([*words, "--out", str(tmp_path / "a")]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "a").exists()
