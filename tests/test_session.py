"""A model with its images: built, or opened again."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vitascope import capture, data
from vitascope.errors import UserError
from vitascope.loading.opening import build, is_named, open_model, open_run
from vitascope.loading.session import Session, open_session
from vitascope.runs.train_model import recipe_from, train_once
from vitascope.settings import pairs


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    words = {"model": "convit_micro", "data": "digits", "out": out, "recipe": "laptop"}
    how = {"quiet": True, "trackers": ()}
    changes = ["batch_size=32", "keep_epochs=[0, 1]"]
    return train_once(
        **words,
        epochs=1,
        fraction=0.2,
        changes=changes,
        model_args=["depth=2", "num_gpsa_blocks=1"],
        **how,
    )


def tiny():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def nothing():
    return 3


@pytest.mark.parametrize("name", ["convit_micro", "vit_micro", "resnet_micro", "test_resnet"])
def test_any_model_is_built_for_the_images(digits, name):
    session = build(name, digits, seed=1)
    assert session.model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert session.model.training
    again = build(name, digits, seed=1)
    for a, b in zip(session.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_run_is_opened_with_its_weights_data_and_statistics(run):
    opened = open_run(run.folder)
    assert (opened.name, opened.preprocessing.size) == ("convit_micro", (1, 8, 8))
    assert len(opened.model.blocks) == 2
    assert len(opened.preprocessing.mean) == 1
    early = open_run(run.folder, epoch=0)
    assert (early.model.head.weight - opened.model.head.weight).abs().max() > 0
    assert (early.model.blocks[0].attn.gate > 0.73).all()


def test_images_of_no_name_are_not_taken_for_those_of_the_run(run):
    assert open_session(str(run.folder)).loaded.name == "digits"
    unnamed = open_session(str(run.folder), data="")
    with pytest.raises(UserError, match="the data source is empty"):
        _ = unnamed.loaded


def test_names_and_factories_are_opened(run):
    assert open_session(str(run.folder)).source == "digits"
    assert open_model("timm:test_vit").preprocessing.size == (3, 160, 160)
    assert open_model("test_session:tiny").preprocessing.size is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("convit_tyni", "did you mean 'convit_tiny'"),
        ("no_such_module:f", "cannot open no_such_module:f"),
        ("test_session:missing", "cannot open test_session:missing"),
        ("test_session:nothing", "returned int, not an nn.Module"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_error(text, says):
    with pytest.raises(UserError, match=says):
        open_session(text)


def test_a_hugging_face_folder_is_opened_offline(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=16,
        patch_size=4,
    )
    ViTForImageClassification(config).save_pretrained(tmp_path)
    assert open_model(f"hf:{tmp_path}").preprocessing.size == (3, 16, 16)
    with pytest.raises(UserError, match="no Hugging Face image model"):
        open_session(f"hf:{tmp_path / 'none'}")


def test_images_that_do_not_fit_are_refused_before_training(digits):
    with pytest.raises(UserError, match="cannot take images of 1 x 8 x 8"):
        build("levit_128s", digits)
    with pytest.raises(UserError, match="takes no such argument"):
        build("convit_micro", digits, hedas=3)


def test_images_are_loaded_when_they_are_asked_for_and_only_once(run, digits):
    session = open_session(str(run.folder), "no-such-source")  # the model alone needs none
    with pytest.raises(UserError, match="unknown data source 'no-such-source'"):
        session.images  # noqa: B018
    session = open_session(str(run.folder))
    assert session.images is session.images
    assert session.images.classes == session.opened.classes
    assert Session(opened=open_run(run.folder), given=digits).images is digits


def test_batches_are_drawn_with_the_seed_and_normalised_for_the_model(run):
    session = open_session(str(run.folder))
    positions = session.draw(13, seed=3)
    assert len(set(positions)) == 13
    assert list(positions) == sorted(session.draw(13, seed=3))
    assert list(positions) != list(session.draw(13, seed=4))
    sizes = [len(batch.labels) for batch in session.batches(positions, 6)]
    assert sizes == [6, 6, 1]
    sizes = [len(batch.labels) for batch in session.batches(positions, 6, smallest=4)]
    assert min(sizes) >= 4
    batch = next(iter(session.batches(positions, 13)))
    mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in session.statistics)
    pixels = session.images.test.pixels(positions) / 255
    torch.testing.assert_close(batch.images, (pixels - mean) / std)


def test_labels_of_other_classes_are_an_error_only_for_what_needs_them(run):
    session = open_session("test_session:tiny", "digits")
    session.require_labels("masking")
    three = replace(session.opened, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
    other = replace(session, opened=three)
    assert other.images.classes == session.images.classes
    with pytest.raises(UserError, match="masking needs labels of the model's own classes: the mo"):
        other.require_labels("masking")
    with pytest.raises(UserError, match="3 outputs without names, the images 10 classes"):
        other.labelled_images  # noqa: B018


def test_a_model_by_name_has_random_weights_whatever_its_suffix():
    for name in ("vit_micro", "vit_micro+cb", "vit_micro+cb:front:msa", "timm:test_vit"):
        (note,) = open_session(name).notes
        assert note.startswith(f"random weights: {name} was built, not trained")
    assert is_named("hf-hub:timm/test_vit.r160_in1k")
    assert not any(map(is_named, ("test_session:tiny", "hf:google/vit", "test_session:tiny+cb")))


def test_one_image_is_tried_and_the_model_is_left_in_its_mode():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Dropout(0.5))
    assert capture.try_image(model, torch.zeros(5, 1, 4, 4), "it", "no").shape == (1, 2, 2, 2)
    with pytest.raises(
        UserError, match=r"^it cannot take images of 3 x 4 x 4: .*; give grey ones$"
    ):
        capture.try_image(model, torch.zeros(1, 3, 4, 4), "it", "give grey ones")
    assert model.training
    assert model[1].training


def test_no_size_is_advised_for_a_model_that_needs_more_than_images():
    class Packed(nn.Module):
        def forward(self, patches, mask, shapes, scale=1.0):
            return patches * mask

    with pytest.raises(UserError) as refusal:
        capture.try_image(Packed(), torch.zeros(1, 3, 4, 4), "it", "give --image-size")
    assert "mask, shapes" in str(refusal.value)
    assert "image-size" not in str(refusal.value)


def test_words_become_values():
    assert pairs(["a=1", "b=[1, 2]", "c=null", "d=x=y"], "--set") == {
        "a": 1,
        "b": [1, 2],
        "c": None,
        "d": "x=y",
    }
    with pytest.raises(UserError, match="takes NAME=VALUE, not 'lr'"):
        pairs(["lr"], "--set")


def test_the_warm_up_keeps_its_share_unless_it_is_set():
    assert recipe_from("deit", 30, []).warmup_epochs == 0.5
    assert recipe_from("deit", 30, ["warmup_epochs=3"]).warmup_epochs == 3
    assert recipe_from("deit", None, []).warmup_epochs == 5
    with pytest.raises(UserError, match="unknown recipe 'diet'; did you mean 'deit'"):
        recipe_from("diet", None, [])
