"""Metrics reach whoever was asked to keep them."""

import re

import numpy as np
import pytest
from accelerate.tracking import GeneralTracker, on_main_process
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import vitascope
from model_making import few_digits
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.training import at_epochs, load_run, recipe, train
from vitascope.training.observe import log_pictures, require_pictures


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


class Album(Notebook):
    """A tracker that takes pictures as well."""

    name = "album"

    def __init__(self):
        super().__init__()
        self.pictures = []

    @on_main_process
    def log_images(self, values, step=None, **extra):
        self.pictures.append((step, values, extra))


def test_any_tracker_of_the_engine_gets_the_settings_and_every_epochs_metrics(tmp_path):
    notebook = Notebook()
    model = vitascope.create_model("vit_micro", img_size=8, in_chans=1, num_classes=10)
    plan = recipe("laptop", epochs=2, batch_size=32)
    run = train(
        model,
        few_digits(64, 40),
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


WORDS = ["train", "--data", "digits", "--epochs", "2", "--fraction", "0.1", "--quiet"]
WORDS += ["--set", "scale_epochs=false", "batch_size=64"]


@pytest.mark.slow
def test_pictures_of_the_heads_are_in_the_event_file_and_the_weights_are_the_same(tmp_path):
    words = [*WORDS, "--model", "convit_micro"]
    assert main([*words, "--out", str(tmp_path / "a"), "--pictures"]) == 0
    assert main([*words, "--out", str(tmp_path / "b")]) == 0
    events, plain = (
        EventAccumulator(str(tmp_path / run / "events" / "vitascope"), size_guidance={"images": 0})
        for run in "ab"
    )
    events.Reload()
    plain.Reload()
    assert plain.Tags()["images"] == []
    assert set(events.Tags()["images"]) == {"maps", "nonlocality", "gates"}
    steps = [row["step"] for row in load_run(tmp_path / "a").metrics]
    for name in events.Tags()["images"]:
        found = events.Images(name)
        assert [image.step for image in found] == [0, *steps]
        assert len({image.encoded_image_string for image in found}) == 3  # the model has moved
        high = 300 if name != "maps" else 786  # the figures' own sizes, 100 pixels an inch
        assert {image.height for image in found} == {high}
        assert all(image.width >= 440 for image in found)
    one, other = (load_run(tmp_path / run).weights.read_bytes() for run in "ab")
    assert one == other


def test_pictures_reach_the_trackers_that_take_them_and_no_other(tmp_path):
    picture = np.zeros((4, 6, 3), np.uint8)
    album, notebook = Album(), Notebook()
    train(
        vitascope.create_model("vit_micro", img_size=8, in_chans=1, num_classes=10),
        few_digits(64, 40),
        recipe("laptop", epochs=2, batch_size=32),
        tmp_path / "a",
        quiet=True,
        trackers=[album, notebook],
        observers=[at_epochs([0, 2], lambda *_: {"square": picture}), lambda *_: None],
    )
    assert [(step, extra) for step, _, extra in album.pictures] == [(0, {}), (4, {})]
    assert all(values == {"square": [picture]} for _, values, _ in album.pictures)
    assert len(notebook.lines) == 2


@pytest.mark.parametrize("name", ["aim", "clearml"])
def test_services_that_take_one_array_a_name_get_one(name):
    album = Album()
    album.name = name
    picture = np.zeros((4, 6, 3), np.uint8)
    log_pictures([album], {"square": picture}, 3)
    ((step, values, _),) = album.pictures
    assert step == 3
    assert values["square"] is picture


def test_pictures_without_a_tracker_that_takes_them_are_refused_before_training(tmp_path, capsys):
    words = [*WORDS, "--model", "vit_micro", "--pictures", "--out", str(tmp_path / "a")]
    assert main([*words, "--no-tracking"]) == 2
    assert "pictures go to a tracker and there is none; leave --no-" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    with pytest.raises(UserError, match="notebook takes no pictures; give --trackers with one of"):
        require_pictures([Notebook()])
    require_pictures([Notebook(), Album()])


def test_a_model_without_attention_is_trained_and_the_missing_pictures_are_named(tmp_path, capsys):
    words = [word for word in WORDS if word != "--quiet"]
    out = tmp_path / "a"
    assert main([*words, "--model", "resnet_micro", "--pictures", "--out", str(out)]) == 0
    assert "note: no pictures: maps needs attention over tokens" in capsys.readouterr().err
    assert load_run(out).epochs == 2
