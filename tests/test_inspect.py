"""``vitascope inspect`` as a user meets it."""

import json
import re
import sys
from dataclasses import fields

import numpy as np
import pytest
from safetensors.torch import save_file

import vitascope
from report_making import check_drawn_again_without_torch
from vitascope.commands import main
from vitascope.commands.evaluate import Evaluate
from vitascope.commands.inspect import Inspect
from vitascope.inspection.inspect import MEASURES, ON_REQUEST, inspect_subject
from vitascope.inspection.options import InspectOptions
from vitascope.measure.registry import INSTRUMENTS, family
from vitascope.record import load

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.stem = nn.Conv2d(channels, 4, 3, padding=1)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.conv(x.relu())
        return self.head(x.mean((2, 3)))

class Flat(Net):
    def forward(self, x):
        return super().forward(x * 0)

def flat():
    return Flat()

def grey():
    torch.manual_seed(0)
    return Net(1)

def number():
    return 7

def needs():
    return nn.Linear(3, 2)
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of a few seconds."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    words = "--model convit_micro --data digits --epochs 2 --fraction 0.3 --set keep_epochs=[1,2]"
    words += " batch_size=32 scale_epochs=false --no-tracking --quiet"
    assert main(["train", *words.split(), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_nets"
    sys.modules.pop("my_nets", None)


def look(capsys, *words):
    """What the command prints as JSON."""
    assert main(["inspect", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.bit_exact("drawn again by another process to the same bytes")
def test_a_run_is_looked_at_on_its_own_images_with_every_measure(trained, tmp_path, capsys):
    out = tmp_path / "inside"
    assert main(["inspect", str(trained), "--images", "16", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for name in MEASURES:
        assert f"\n{name} " in f"\n{printed}"
        record = load(out / name)
        assert record.kind == name
        assert record.config["run"] == str(trained)
        assert record.config["data"] == "digits"
        assert record.seed == 0
        assert record.seconds is not None
        assert (out / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"figures/{name}.svg").read_bytes()
    assert "not " not in printed
    assert "random weights" not in printed
    assert re.search(
        r"left out of (fourier|norms|variance|, )+: head: one vector an image", printed
    )
    assert load(out / "nonlocality").values["num_images"] == 16
    check_drawn_again_without_torch(out, MEASURES)


def test_the_weights_of_an_epoch_and_another_run_can_be_compared(trained, capsys):
    words = [trained, "--images", "16", "--measures", "gates"]
    first, last = (look(capsys, *words, *more) for more in (["--epoch", "1"], []))
    gates = [found["measures"]["gates"]["per_layer"] for found in (first, last)]
    assert gates[0] != gates[1]
    found = look(capsys, trained, "--images", "16", "--other", trained, "--measures", "cka")
    np.testing.assert_allclose(np.diag(found["measures"]["cka"]["similarity"]), 1, rtol=1e-6)
    words = ["--images", "16", "--other", "timm:resnet10t", "--measures", "cka"]
    found = look(capsys, trained, *words)  # other channels, size and statistics
    assert "fc" in found["measures"]["cka"]["columns"]
    assert np.isfinite(found["measures"]["cka"]["similarity"]).all()


def test_a_timm_model_is_looked_at_with_what_makes_sense(capsys):
    name = "timm:vit_tiny_patch16_224"
    words = [name, "--data", "digits", "--image-size", "32", "--images", "9"]
    found = look(capsys, *words, "--batch-size", "4", "--units", "blocks.0.*")
    assert set(found["refused"]) == {"gates", "windows", "masking", "lesion"}
    assert "has no gates" in found["refused"]["gates"]
    assert "random weights" in found["refused"]["lesion"]
    assert set(found["measures"]) == set(MEASURES) - set(found["refused"])
    (note,) = found["notes"]
    assert note.startswith(f"random weights: {name} was built, not trained")
    assert found["measures"]["variance"]["units"] == ["blocks.0.attn", "blocks.0.mlp"]
    assert found["measures"]["cka"]["num_images"] == 9  # the last image is not a batch of one
    assert look(capsys, *words, "--measures", "lesion", "--units", "blocks.0.mlp")["measures"]


def test_a_hugging_face_folder_is_looked_at(tmp_path, capsys):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=16,
        patch_size=4,
        num_labels=10,
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    words = [f"hf:{tmp_path / 'vit'}", "--data", "digits", "--images", "8"]
    found = look(capsys, *words)
    assert list(found["refused"]) == ["gates", "windows"]
    assert found["measures"]["nonlocality"]["grid"] == [[4, 4], [4, 4]]
    assert found["notes"] == ["classes are matched by position: the model has no names for its 10"]
    listed = look(capsys, *words[:1], "--list")
    assert [unit["kind"] for unit in listed["units"]].count("attention") == 2


BACKBONES = {"DINOv3ViT": 2, "ViTMAE": 2, "SiglipVision": 3}


@pytest.mark.parametrize("kind", BACKBONES)
def test_a_hugging_face_backbone_needs_no_classifier(kind, tmp_path, capsys):
    import transformers

    sizes = {"hidden_size": 16, "intermediate_size": 32, "image_size": 16, "patch_size": 4}
    numbers = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes, **numbers)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path / "net")
    words = [f"hf:{tmp_path / 'net'}", "--data", "digits", "--images", "4"]
    found = look(capsys, *words, "--measures", "cka,entropy,lesion")
    assert "cka" in found["measures"]
    assert "lesion" in found["refused"]
    if "entropy" in found["measures"]:
        assert len(found["measures"]["entropy"]["layers"]) == BACKBONES[kind]
    else:
        assert "chance" in found["refused"]["entropy"]  # of masked tokens


def test_a_measure_that_does_not_suit_the_model_is_skipped_with_its_reason(factory, capsys):
    words = [f"{factory}:flat", "--data", "digits", "--images", "4"]
    found = look(capsys, *words, "--measures", "entropy,fourier,cka")
    assert set(found["measures"]) == {"fourier"}
    assert set(found["refused"]) == {"entropy", "cka"}


def test_a_torchvision_model_is_run_at_its_own_size(capsys):
    words = ["torchvision.models:swin_v2_t", "--data", "digits", "--images", "1"]
    found = look(capsys, *words[:1], "--list")
    assert found["size"] == [3, 256, 256]


def test_a_factory_is_looked_at_and_brings_its_channels(factory, capsys):
    words = [f"{factory}:grey", "--data", "digits", "--images", "8"]
    found = look(capsys, *words)
    assert set(found["measures"]) == {"fourier", "variance", "norms", "pca", "cka", "lesion"}
    assert set(found["refused"]) == set(MEASURES) - set(found["measures"])
    assert all("\n" not in why for why in found["refused"].values())


def test_a_list_of_units_needs_no_images(trained, factory, tmp_path, capsys):
    assert main(["inspect", str(trained), "--list", "--out", str(tmp_path / "l")]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["Unit", "Kind", "Stage", "Grid", "Prefix", "Shape"]
    assert rows[0].split()[:4] == ["patch_embed", "stem", "0", "4x4"]
    assert rows[-2].split()[1:5] == ["mlp", "0", "4x4", "1"]
    assert load(tmp_path / "l/units").kind == "units"
    assert main(["inspect", f"{factory}:grey", "--list", "--image-size", "8"]) == 0
    assert "4 x 8 x 8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("convit_micro", "say on what to measure it, with --data"),
        ("convit_micro --data digits --measures gatse", "unknown measure 'gatse'"),
        ("timm:resnet10t --data digits --measures gates", "ResNet has no gates"),
        ("timm:resnet10t --data digits --measures nonlocality", "ResNet has none"),
        ("timm:resnet10t --data digits --measures masking --images 4", "neither absolute"),
        ("convit_micro --data digits --layers blok.*", "no attention layer matches 'blok.*'"),
        ("convit_micro --data digits --units x", "no unit matches 'x'"),
        ("convit_micro --data digits --measures cka --images 3", "at least 4 images"),
        ("convit_micro --data digits --query 2 2 --measures maps", "must be from 0 to 1, not 2"),
        ("convit_micro --data digits --images 0", "--images must be from 1 to"),
        ("convit_micro --data digits --epoch 3", "is not a run's folder"),
        ("convit_micro --data digits --image-size 30", "convit_micro"),
        ("timm:vit_tiny_patch16_224 --list --image-size 8", "vit_tiny_patch16_224"),
        ("convit_micro --data digits --device moon", "no device 'moon'"),
        ("convit_micro --data digtis", "unknown data source 'digtis'"),
        ("convit_mirco --list", "unknown model 'convit_mirco'"),
        ("convit_micro --data digits --other x --measures gates", "--other is for CKA"),
        ("hf:no/such/model --list", "no Hugging Face image model"),
        ("my_nets:number --list", "returned int"),
        ("my_nets:nothing --list", "my_nets:nothing"),
        ("my_nets:needs --list", "cannot take images of 3 x 224 x 224"),
        ("my_nets:grey --pretrained --list", "has weights of its own"),
        ("my_nets:flat --data digits --measures cka --images 4", "the same for all images"),
        ("RUN --epoch 7", "kept no weights of epoch 7; there are: 1, 2"),
        ("RUN --pretrained", "has weights of its own"),
        ("RUN --grid 3", "--grid"),
        ("RUN --model-args depth=2", "is for a model given by name"),
        ("convit_micro --data digits --model-args depth", "--model-args takes NAME=VALUE"),
        ("convit_micro --list --model-args qkv_bias=maybe", "is true or false, not 'maybe'"),
        ("convit_micro --list --model-args colour=red", "argument 'colour'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, request, factory, capsys):
    if "RUN" in words:
        words = words.replace("RUN", str(request.getfixturevalue("trained")))
    capsys.readouterr()
    assert main(["inspect", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("vitascope: ")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_the_same_seed_looks_at_the_same_images(capsys):
    words = ["convit_micro", "--data", "digits", "--images", "8", "--measures", "variance"]
    assert look(capsys, *words) == look(capsys, *words)
    assert look(capsys, *words, "--seed", "1") != look(capsys, *words)


def test_the_benchmark_does_the_same_work_as_its_peer(tmp_path):
    from benchmarks.inspect import time_inspect

    small = {"num_images": 8, "batch_size": 4, "img_size": 16, "depth": 1, "rounds": 1}
    small["models"] = ("none",)
    result = time_inspect(**small)
    assert [row[0] for row in result.speed] == ["CKA of 4 units / pytorch-cka"]
    assert len(result.cost) == 3
    assert all(0 < low <= middle <= high for _, low, middle, high in result.cost)
    assert result.difference["pytorch-cka"] < 1e-3
    assert load(result.to_record().save(tmp_path / "b")).config["num_images"] == 8


def test_a_record_keeps_every_option_that_was_used(trained):
    options = InspectOptions(model=str(trained), images=4, batch_size=4, measures=("entropy",))
    config = inspect_subject(options).records["entropy"].config
    kept = {*config, *config["curvature"]}
    names = {each.name for each in fields(InspectOptions)} - {"list", "threads"}
    assert not {name for name in names if not {name, f"num_{name}"} & kept}
    assert (config["subject"], config["num_images"]) == (str(trained), 4)


def test_progress_counts_every_pass(trained):
    steps = []
    request = InspectOptions(model=str(trained), images=8, batch_size=4)
    inspect_subject(request, lambda *step: steps.append(step))
    done, total = zip(*[step[1:] for step in steps], strict=True)
    assert list(done) == list(range(1, len(steps) + 1))
    assert all(a <= b for a, b in zip(done, total, strict=True))
    assert steps[-1][1] == steps[-1][2]
    assert "position embeddings" in [what for what, *_ in steps]


def test_arguments_of_a_model_are_given_as_for_training(tmp_path, capsys):
    words = ["--data", "digits", "--images", "4", "--measures", "gates", "--model-args"]
    found = look(capsys, "convit_micro", *words, "num_gpsa_blocks=1", "gate_init=0")
    assert found["measures"]["gates"]["per_layer"] == pytest.approx([0.5])
    saved = tmp_path / "small"
    net = vitascope.create_model("vit_micro", depth=1, num_classes=10)
    save_file(net.state_dict(), f"{saved}.safetensors")
    words = ["evaluate", f"vit_micro@{saved}.safetensors", "--model-args", "depth=1", "--json"]
    words += ["--data", "digits", "--image-size", "32", "--images", "4", "--out", str(saved)]
    assert main(words) == 0
    assert load(saved).config["model_args"] == {"depth": 1}


def test_the_help_names_every_instrument_and_every_option_of_one():
    assert set(INSTRUMENTS) == {*MEASURES, *ON_REQUEST}
    for name in INSTRUMENTS:
        assert re.search(rf"\b{name}\b", Inspect.__doc__), name
    for name, each in family("robustness").items():
        assert re.search(rf"\b{name}\b", Evaluate.__doc__), name
        assert set(each.options) <= set(Evaluate.__dataclass_fields__), name
