"""``vitascope evaluate --on`` and its measures in ``vitascope inspect``, as a user meets them."""

import json
import sys

import numpy as np
import pytest

from data_making import photo, photos, write_folder
from report_making import check_drawn_again_without_torch
from vitascope.commands import main
from vitascope.inspection.evaluation import evaluate_on
from vitascope.inspection.options import EvaluateOptions
from vitascope.inspection.robustness import ROBUSTNESS
from vitascope.measure.registry import INSTRUMENTS
from vitascope.record import load

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, channels=3):
        super().__init__()
        torch.manual_seed(0)
        self.num_classes = num_classes
        self.stem = nn.Conv2d(channels, 6, 3, padding=1)
        self.head = nn.Linear(6 * 16, num_classes)

    def forward(self, x):
        return self.head(nn.functional.adaptive_avg_pool2d(self.stem(x).tanh(), 4).flatten(1))

def grey():
    return Net(10, 1)

def two():
    return Net(2)

def imagenet():
    return Net(1000)
"""
GREY = ["my_nets:grey", "--data", "digits", "--images", "24"]
QUICK = "occlusion,fgsm,pgd,frequency,calibration"


@pytest.fixture(autouse=True)
def factory(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_nets", None)


def told(capsys, *words):
    """What ``evaluate`` prints as JSON."""
    capsys.readouterr()
    assert main(["evaluate", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.bit_exact("drawn again by another process to the same bytes")
def test_every_measure_is_printed_with_its_settings_written_and_drawn(tmp_path, capsys):
    out = tmp_path / "robust"
    words = [*GREY, "--on", QUICK, "corruptions", "--severities", "3", "--out", str(out)]
    assert main(["evaluate", *words]) == 0
    printed = capsys.readouterr().out
    for says in (
        "centre 50 % of each side black",
        "ε 8/255 of the pixel range",
        "PGD of 10 steps from a random start against the label",
        "noise at 0.5 π ± 0.05 π",
        "noise: rms 0.1 of the pixel range",
        "left out of frequency: 0.1 pi",
        "ECE, 15 bins",
        "temperature, fitted on 12 images",
        "snow, severity 3",
        "(24 images, standard error of an accuracy up to 10.2 points).",
    ):
        assert says in printed, says
    for name in ROBUSTNESS:
        record = load(out / name)
        assert record.kind == name
        assert record.seed == 0
        assert record.seconds > 0
        assert record.config["data"] == "digits"
        assert record.values["num_images"] == 24
        assert f"\n{name}: {INSTRUMENTS[name].sentence(record)}" in printed
        assert (out / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"figures/{name}.svg").read_bytes()
        assert (out / f"figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    assert load(out / "corruption").arrays["accuracy"].shape == (15, 1)
    assert printed.endswith(f"\n{out / 'report.html'}\n")
    assert "Adversarial attack: FGSM" in (out / "report.html").read_text(encoding="utf-8")
    check_drawn_again_without_torch(out, ROBUSTNESS)


def test_a_seed_makes_every_number_come_back_whatever_the_batches(capsys):
    words = [*GREY, "--on", QUICK, "--rms", "0.3"]
    first = told(capsys, *words)
    assert told(capsys, *words) == first
    small = told(capsys, *words, "--batch-size", "7")
    assert small["measures"].pop("calibration")["nll"] == pytest.approx(
        first["measures"]["calibration"]["nll"], rel=1e-6
    )
    assert {**small["measures"], "calibration": ...} == {**first["measures"], "calibration": ...}
    other = told(capsys, *words, "--seed", "1")
    assert other["seed"] == 1
    assert other["measures"]["frequency"] != first["measures"]["frequency"]
    words = [*GREY[:3], "--on", "frequency", "--rms", "0.3"]  # all images: noise alone may differ
    one, two = (told(capsys, *words, "--seed", s)["measures"]["frequency"] for s in (0, 1))
    assert one["clean"] == two["clean"]
    assert one["accuracy"] != two["accuracy"]


def test_progress_counts_the_batches_of_all_measures():
    told = []
    on = ("occlusion", "fgsm", "calibration")
    options = EvaluateOptions(model="my_nets:grey", data="digits", on=on, images=20, batch_size=8)
    evaluate_on(options, on_step=lambda *step: told.append(step))
    names = [name for name in on for _ in range(3)]
    assert told == [(name, done, 9) for done, name in enumerate(names, start=1)]


def test_the_clean_numbers_are_those_of_plain_evaluation(capsys):
    plain = told(capsys, *GREY)
    found = told(capsys, *GREY, "--on", QUICK)["measures"]
    for name in ("occlusion", "fgsm", "pgd", "frequency"):
        assert found[name]["clean"] == pytest.approx(plain["top1"])
    for name in ("top1", "top5", "nll", "ece"):
        assert found["calibration"][name] == pytest.approx(plain[name], rel=1e-5)
    assert plain["num_images"] == 24


def test_options_reach_their_measures(capsys):
    words = ["--on", "fgsm", "pgd", "--epsilons", "1/255", "0.5", "--steps", "3"]
    found = told(capsys, *GREY, *words, "--against", "prediction")["measures"]
    assert found["fgsm"]["epsilons"] == found["pgd"]["epsilons"] == [1 / 255, 0.5]
    assert found["pgd"]["steps"] == 3
    assert found["fgsm"]["against"] == "prediction"
    words = ["--on", "occlusion,frequency,calibration", "--sizes", "0.3", "--fill", "mean"]
    words += [
        "--frequencies",
        "0.5",
        "1.1",
        "--window",
        "0.3",
        "--rms",
        "0.2",
        "--clamp",
        "--num-bins",
        "4",
    ]
    found = told(capsys, *GREY, *words)["measures"]
    assert found["occlusion"]["sizes"] == [0.3]
    assert found["occlusion"]["fill"] == "mean"
    assert found["frequency"]["frequencies"] == [0.5, 1.1]
    assert found["frequency"]["window"] == 0.3
    assert found["frequency"]["clamp"] is True
    assert len(found["calibration"]["bin_count"]) == 4


def test_some_classes_of_a_model_are_measured_as_plain_evaluation_does(tmp_path, capsys):
    root = write_folder(tmp_path / "a", ["n01498041", "n12267677"], count=4)
    words = ["my_nets:imagenet", "--data", f"imagenet-a:{root}", "--image-size", "12"]
    plain = told(capsys, *words)
    found = told(capsys, *words, "--on", "calibration,fgsm")["measures"]
    assert found["calibration"]["nll"] == pytest.approx(plain["nll"], rel=1e-5)
    assert plain["nll"] < np.log(1000) - 1  # of 200 classes
    assert found["fgsm"]["num_images"] == 8


def test_a_choice_of_images_keeps_its_sets_of_labels(tmp_path, capsys):
    for i in range(1, 7):
        photo(i).save(tmp_path / f"ILSVRC2012_val_{i:08d}.JPEG")
    labels = tmp_path / "real.json"
    every = list(range(1000))
    labels.write_text(json.dumps([every, [0], every, [0], every, [0]]))
    words = ["my_nets:imagenet", "--data", f"imagenet-real:{tmp_path}?labels={labels}"]
    words += ["--image-size", "12"]
    top1 = {told(capsys, *words, "--images", "3", "--seed", s)["top1"] for s in range(6)}
    assert len(top1) > 1  # some seeds draw more of the images on which everything is a hit
    assert told(capsys, *words)["top1"] == 0.5
    assert main(["evaluate", *words, "--on", "fgsm"]) == 2
    assert "several labels per image" in capsys.readouterr().err


def test_published_corruptions_are_read_instead_of_made(tmp_path, capsys):
    root = tmp_path / "c"
    root.mkdir()
    pixels = photos(10, side=32).permute(0, 2, 3, 1).numpy()
    np.save(root / "labels.npy", np.tile(np.arange(2), 5))
    for name in ("snow", "fog", "spatter"):  # spatter is not one of the 15
        np.save(root / f"{name}.npy", pixels)
    data = write_folder(tmp_path / "photos", ["a", "b"], count=6, size=(32, 32))
    words = ["my_nets:two", "--data", data, "--on", "corruption", "--corrupted", root]
    found = told(capsys, *words, "--severities", "1", "2")["measures"]["corruption"]
    assert found["constants"] == "given"
    assert sorted(found["corruptions"]) == ["fog", "snow"]
    assert found["num_images"] == 2
    assert main(["evaluate", *GREY, "--on", "corruption", "--corrupted", str(root)]) == 2
    assert "grey" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--on occulsion", "unknown measure 'occulsion'; did you mean 'occlusion'?"),
        ("--on everything", "there are: calibration, corruption, fgsm, frequency, occlusion, pgd"),
        ("--on fgsm --epsilons eight", "--epsilons takes numbers like 8/255 or 0.03"),
        ("--on fgsm --epsilons 8", "changes of pixels between 0 and 1, such as 8/255"),
        ("--on fgsm --sizes 0.5", "--sizes is for occlusion: add that to --on"),
        ("--on occlusion --steps 2", "--steps is for pgd: add that to --on"),
        ("--epsilons 1/255", "--epsilons is for fgsm or pgd: add that to --on"),
        ("--on fgsm --corrupted x", "--corrupted is for corruption: add that to --on"),
        ("--on corruption --corrupted nowhere/at/all", "nowhere/at/all"),
        ("--on corruption --severities 7", "severities from 1 to 5"),
        ("--on occlusion --sizes 2", "shares of the side"),
        ("--on frequency --frequencies 0.1", "no frequency within 0.1 pi around 0.1"),
        ("--on calibration --num-bins 0", "from 1 to"),
        ("--on fgsm --images 0", "at least 1 for --images"),
        ("--on fgsm --device moon", "no device 'moon'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(["evaluate", *GREY[:3], *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("vitascope: ")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_model_that_takes_other_images_is_refused_in_words(capsys):
    words = ["evaluate", "timm:vit_tiny_patch16_224", "--data", "digits", "--image-size", "8"]
    assert main([*words, "--on", "fgsm"]) == 2
    assert "cannot take images of 3 x 8 x 8" in capsys.readouterr().err


def test_inspect_takes_them_when_they_are_named(tmp_path, capsys):
    out = tmp_path / "inside"
    words = ["inspect", *GREY, "--measures", "variance", *QUICK.split(","), "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for name in ("variance", *QUICK.split(",")):
        assert f"\n{name} " in f"\n{printed}"
        assert load(out / name).kind == name
        assert (out / f"figures/{name}.png").exists()
    assert "fgsm: FGSM against the label" in printed
    assert "left out of frequency: 0.1 pi" in printed
    assert main(["inspect", *GREY, "--quiet"]) == 0
    assert "fgsm" not in capsys.readouterr().out


def test_inspect_refuses_them_where_the_classes_are_not_the_models(capsys):
    words = ["inspect", "my_nets:imagenet", "--data", "digits", "--images", "4"]
    assert main([*words, "--measures", "calibration"]) == 2
    says = "calibration needs labels of the model's own classes: the model has 1000 outputs"
    assert says in capsys.readouterr().err


def test_inspect_and_evaluate_find_the_same_numbers(capsys):
    found = told(capsys, *GREY, "--on", "fgsm,frequency")["measures"]
    words = ["inspect", *GREY, "--measures", "fgsm,frequency", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["measures"] == found
