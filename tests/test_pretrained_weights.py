"""Weights from anywhere: what is loaded, what is new, and in which preprocessing."""

import os
import subprocess
import sys

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import vitascope
from commands import short_run
from model_making import randomised
from vitascope import hub_access
from vitascope.commands import main
from vitascope.data import load
from vitascope.data.decoding import fit
from vitascope.data.images import FileImages, to_tensor
from vitascope.errors import UserError
from vitascope.loading.model import head_seed
from vitascope.loading.opening import open_model, open_pretrained, open_run, split_file
from vitascope.models import create_model
from vitascope.models.weights import read_state
from vitascope.record import load_config

TWO = ("ants", "bees")
SMALL = {"img_size": 16, "depth": 1, "embed_dim": 24, "num_heads": 3}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A small network of timm with five outputs, and its file."""
    model = create_model("timm:test_vit", num_classes=5)
    randomised(model)
    file = tmp_path_factory.mktemp("weights") / "five@home.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, file)
    return model, file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on the digits with seed 0."""
    return short_run(tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Class folders of photographs that are wider than high."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 4)):
        for number, name in enumerate(TWO):
            (root / part / name).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 120, (20, 30, 3)) + 100 * number
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(root / part / name / f"{index}.png")
    return root


@pytest.mark.parametrize(
    ("text", "name", "file"),
    [
        ("resnet18", "resnet18", None),
        ("resnet18@a.pt", "resnet18", "a.pt"),
        ("resnet18@/x/a@b.pt", "resnet18", "/x/a@b.pt"),
        ("timm:resnet18@a.pt", "timm:resnet18", "a.pt"),
        ("hf-hub:timm/resnet18@main", "hf-hub:timm/resnet18@main", None),
        ("local-dir:/x/a@b", "local-dir:/x/a@b", None),
    ],
)
def test_a_file_stands_after_the_first_at_of_a_plain_name(text, name, file):
    found, path = split_file(text)
    assert (found, path and str(path)) == (name, file)


def test_a_file_gives_all_weights_but_the_head(source):
    model, file = source
    found = open_pretrained(f"timm:test_vit@{file}").for_classes(TWO)
    state, theirs = found.model.state_dict(), model.state_dict()
    assert found.new == ("head.weight", "head.bias")
    for name, value in state.items():
        if name not in found.new:
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=0)
    assert state["head.weight"].shape[0] == 2
    assert found.origin.num_tensors == len(theirs) - 2
    for words in ("3 x 160 x 160", "mean 0.5", "new head for 2 classes", str(file)):
        assert words in found.line


def test_equal_numbers_of_classes_do_not_keep_the_head_unless_asked(source):
    model, file = source
    five = [f"c{number}" for number in range(5)]
    text = f"timm:test_vit@{file}"
    new = open_pretrained(text).for_classes(five)
    assert not torch.equal(new.model.head.weight, model.head.weight)
    kept = open_pretrained(text).for_classes(five, keep_head=True)
    torch.testing.assert_close(kept.model.head.weight, model.head.weight)
    assert "its head is kept" in kept.line
    with pytest.raises(UserError, match="5 outputs, the images 2 classes"):
        open_pretrained(text).for_classes(TWO, keep_head=True)


def test_the_seed_of_a_head_is_its_own():
    first = open_model("vit_micro", seed=0).model  # as a source began
    torch.manual_seed(head_seed(0))
    assert head_seed(0) != 0
    fresh = torch.nn.Linear(first.head.in_features, first.head.out_features)
    assert not torch.equal(fresh.weight, first.head.weight)


def test_a_run_keeps_its_head_only_for_classes_of_the_same_names(run):
    weights = read_state(run / "model.safetensors")["head.weight"]
    digits = [str(number) for number in range(10)]
    same = open_pretrained(str(run)).for_classes(digits)
    torch.testing.assert_close(same.model.head.weight, weights)
    other = open_pretrained(str(run)).for_classes([f"n{name}" for name in digits])
    assert not torch.equal(other.model.head.weight, weights)
    with pytest.raises(UserError, match="--keep-head"):
        open_pretrained(str(run)).for_classes(TWO, keep_head=True)


def test_position_embeddings_are_resampled_for_other_images(source, run):
    _, file = source
    for text, side in ((f"timm:test_vit@{file}", 96), (str(run), 12)):
        found = open_pretrained(text, image_size=side)
        assert found.origin.resampled
        assert "position embeddings resampled" in found.line
        with torch.no_grad():
            assert found.model(torch.zeros(1, *found.preprocessing.size)).isfinite().all()
    theirs = read_state(run / "model.safetensors")["pos_embed"]
    assert found.model.pos_embed.shape[1] > theirs.shape[1]


def test_a_file_that_does_not_fit_is_one_line(source, tmp_path):
    _, file = source
    with pytest.raises(UserError, match="does not fit resnet10t"):
        open_pretrained(f"resnet10t@{file}")
    with pytest.raises(UserError, match="no weights at"):
        open_pretrained(f"resnet10t@{tmp_path / 'none.pt'}")


def test_images_come_in_the_models_own_size_crop_and_normalisation(source, photos):
    _, file = source
    found = open_pretrained(f"timm:test_vit@{file}")
    images = found.preprocessing.load(str(photos))
    how = found.preprocessing
    assert images.train.size == how.size == (3, 160, 160)
    assert (images.mean, images.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert how.crop_pct < 1
    first = Image.open(photos / "train" / "ants" / "0.png")
    wanted = to_tensor(fit(first, 160, 160, how.crop_pct))
    torch.testing.assert_close(images.train.pixels([0])[0], wanted, rtol=0, atol=0)
    assert images.train.name(0).endswith("train/ants/0.png")


def test_memory_and_files_are_prepared_alike(tmp_path):
    digits = load("digits", image_size=16, crop_pct=0.8, interpolation="bilinear")
    plain = load("digits")
    pixels = plain.test.pixels([0])[0, 0].numpy()
    Image.fromarray(pixels).save(tmp_path / "a.png")
    files = FileImages(
        [tmp_path / "a.png"], [0], ["a"], size=(1, 16, 16), crop_pct=0.8, interpolation="bilinear"
    )
    found, wanted = digits.test.pixels([0]).int(), files.pixels([0]).int()
    assert (found - wanted).abs().max() <= 2  # torch and pillow round otherwise


def test_training_from_a_file_keeps_its_preprocessing_for_later(source, photos, tmp_path):
    _, file = source
    out = tmp_path / "run"
    words = ["train", "--model", f"timm:test_vit@{file}", "--data", str(photos), "--out", str(out)]
    more = ["--recipe", "finetune", "--epochs", "1", "--set", "batch_size=8", "--quiet"]
    assert main([*words, *more, "--image-size", "32", "--no-tracking"]) == 0
    data = load_config(out)["data"]
    assert data["size"] == [3, 32, 32]
    assert data["mean"] == [0.5, 0.5, 0.5]
    session = open_run(out)
    assert session.preprocessing.crop_pct == data["crop_pct"] < 1
    loaded = vitascope.load(out)
    image = photos / "test" / "bees" / "1.png"
    wanted = to_tensor(fit(Image.open(image), 32, 32, data["crop_pct"])) / 255
    torch.testing.assert_close(loaded.transform(image), (wanted - 0.5) / 0.5)


def test_two_sources_of_weights_are_refused(source, capsys):
    _, file = source
    words = ["train", "--model", f"timm:test_vit@{file}", "--data", "digits", "--out", "x"]
    assert main([*words, "--pretrained"]) == 2
    assert "more than one source of weights" in capsys.readouterr().err
    words[2] = "vit_micro"
    assert main([*words, "--keep-head"]) == 2


def test_without_a_network_the_hub_is_not_asked_again_and_again(monkeypatch):
    monkeypatch.setattr(hub_access, "reachable", lambda endpoint: False)
    with pytest.raises(UserError, match="NAME@FILE") as told:
        create_model("resnet10t.c3_in1k", pretrained=True)
    assert "local-dir:" in str(told.value)
    assert str(hub_access.constants.HF_HUB_CACHE) in str(told.value)
    assert not hub_access.constants.HF_HUB_OFFLINE


OFFLINE = """
import sys
from vitascope.commands import main
print(main(sys.argv[1:]), "torch" in sys.modules)
"""


def offline(home, *words):
    """A command where the hub does not answer: what it said, exit code, whether torch is loaded."""
    nowhere = {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": f"{home}/hf",
        "TORCH_HOME": f"{home}/torch",
    }
    told = subprocess.run(
        [sys.executable, "-c", OFFLINE, *words],
        env={**os.environ, **nowhere},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stderr, *told.stdout.split()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("compare --data digits --pretrained --probe-only --out x", "all 12 models"),
        ("compare --data digits --pretrained --models resnet18 --out x", "resnet18"),
        ("train --model resnet18 --data digits --pretrained --out x", "resnet18"),
        ("train --model deit_tiny --data digits --pretrained --out x", "deit_tiny"),
        ("inspect resnet18 --data digits --pretrained --out x", "resnet18"),
        ("evaluate resnet18 --data digits --pretrained", "resnet18"),
    ],
)
def test_without_network_the_answer_comes_before_torch_is_loaded(tmp_path, words, what):
    for other in ("timm--vit_tiny_patch16_224.augreg_in21k", "someone--something"):
        (tmp_path / f"hf/hub/models--{other}").mkdir(parents=True)
    said, code, torch_loaded = offline(tmp_path, *words.split())
    assert (code, torch_loaded) == ("2", "False")
    assert f"the weights of {what} are not in the cache ({tmp_path}" in said
    assert "local-dir:" in said
    assert "NAME@FILE" in said
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Empty caches of the hub and of torch, and no network."""
    monkeypatch.setattr(hub_access, "reachable", lambda endpoint: False)
    monkeypatch.setattr(hub_access.constants, "HF_HUB_CACHE", tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path


def test_what_is_cached_is_looked_at_also_without_network(caches):
    with pytest.raises(UserError, match="cannot be reached"):
        hub_access.check_weights_can_be_had(["resnet18", "timm:resnet18", "hf-hub:some/one@main"])
    hub_access.check_weights_can_be_had(["resnet18", "resnet18@a.pt"])
    (caches / "models--some--one").mkdir()
    hub_access.check_weights_can_be_had(["hf-hub:some/one@main"])
    with pytest.raises(UserError, match="cannot be reached"):
        hub_access.check_weights_can_be_had(["resnet18"])
    (caches / "models--timm--resnet18.a1_in1k").mkdir()
    hub_access.check_weights_can_be_had(["resnet18"])


@pytest.mark.parametrize("name", ["convit_micro", "resnt18"])
def test_a_name_that_timm_does_not_have_is_left_to_the_registry(caches, name):
    """It knows that there are no weights, what was meant, or whose weights they are."""
    hub_access.check_weights_can_be_had([name])


def test_weights_in_the_cache_are_never_taken_for_missing(caches, monkeypatch):
    """Of any model that timm knows, wherever it says that the weights are."""
    for name in timm.list_models(pretrained=True):
        known = timm.get_pretrained_cfg(name)
        kept = {known.hf_hub_id} if known.hf_hub_id else set()
        files = set() if kept else {known.url.rsplit("/", 1)[-1]}
        monkeypatch.setattr(hub_access, "cached_repositories", lambda kept=kept: kept)
        monkeypatch.setattr(hub_access, "_torch_checkpoints", lambda files=files: files)
        for asked in (name, name.split(".")[0], f"timm:{name}"):
            assert hub_access.may_be_cached(asked), (asked, kept, files)


def test_a_hub_that_does_not_answer_is_offline():
    assert not hub_access.reachable("http://127.0.0.1:9")
