"""compare --pretrained: frozen features and their cache, the probe, the race, the answer."""

import csv
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from make_five import five_and_five
from PIL import Image
from safetensors.torch import load_file, save_file

import vitascope
from data_making import write_folder
from vitascope import record
from vitascope.commands import main
from vitascope.comparison.evidence import Evidence, RunResult
from vitascope.comparison.finished_runs import FinishedRuns
from vitascope.comparison.options import PRETRAINED_MODELS
from vitascope.comparison.pretrained.answer import _added
from vitascope.comparison.pretrained.candidates import IMAGENET, foreign, opened, plain_name
from vitascope.comparison.pretrained.cost import cost_of
from vitascope.comparison.pretrained.probing import some
from vitascope.comparison.pretrained.race import Runner, planned
from vitascope.comparison.pretrained.usages import LINEAR, TUNED, Usage
from vitascope.data import load
from vitascope.data.batches import Normalize
from vitascope.errors import UserError
from vitascope.inspection.evaluation import LISTS
from vitascope.inspection.probe import (
    _kept,
    features_of,
    fitted,
    frozen_features,
    kept_features,
    probe,
)
from vitascope.loading.opening import open_pretrained
from vitascope.models import create_model
from vitascope.runs.fitted_head import as_linear, fit_head
from vitascope.stats import difference, recommend
from vitascope.training import load_run, recipe
from vitascope.training.trainer.optimizer import parameter_groups

SIDE = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Red and blue photographs, and the weights of two small networks of timm's."""
    root, rng = tmp_path_factory.mktemp("all"), np.random.default_rng(0)
    for part, count in (("train", 10), ("test", 6)):
        for number, name in enumerate(("blue", "red")):
            (root / "photos" / part / name).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 100, (24, 24, 3))
                pixels[..., 2 - 2 * number] += 150
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(root / "photos" / part / name / f"{index}.png")
    for name in ("test_vit", "test_resnet"):
        torch.manual_seed(0)
        state = create_model(f"timm:{name}", num_classes=5).state_dict()
        save_file(state, root / f"{name}.safetensors")
    return root


def candidate(folder, name="test_vit"):
    return f"timm:{name}@{folder / name}.safetensors"


@pytest.fixture(scope="module")
def answered(folder):
    """The whole answer: probe, race, page."""
    out = folder / "out"
    words = ["compare", "--data", str(folder / "photos"), "--pretrained", "--out", str(out)]
    models = ["--models", candidate(folder), candidate(folder, "test_resnet"), "no_such_model"]
    more = ["--image-size", str(SIDE), "--epochs", "1", "--seeds", "0", "1", "--processes", "1"]
    assert main([*words, *models, *more, "--quiet"]) == 0
    return out


def test_features_are_class_token_and_mean_where_a_model_has_both():
    model = create_model("timm:test_vit").eval()
    images = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        found, tokens = features_of(model, images), model.forward_features(images)
    width = tokens.shape[-1]
    for half, wanted in (
        (found[:, :width], tokens[:, 0]),
        (found[:, width:], tokens[:, 1:].mean(1)),
    ):
        torch.testing.assert_close(half, wanted / wanted.norm(dim=-1, keepdim=True))


def test_features_of_a_cnn_are_pooled_and_of_any_module_the_input_of_its_last_linear():
    images = torch.randn(2, 3, 32, 32)
    cnn = create_model("timm:test_resnet").eval()
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 7), torch.nn.Linear(7, 2))
    with torch.no_grad():
        wanted = cnn.forward_features(images).mean((2, 3))
        torch.testing.assert_close(features_of(cnn, images), wanted)
        torch.testing.assert_close(features_of(plain, images), plain[:2](images))


def test_the_cache_knows_weights_preprocessing_and_image_content(folder, tmp_path):
    found = open_pretrained(candidate(folder), image_size=SIDE)
    images = found.preprocessing.load(str(folder / "photos")).test
    calls = []
    found.model.register_forward_pre_hook(lambda *_: calls.append(1))

    def computed(model, which):
        seen = []
        hook = model.model.patch_embed.register_forward_hook(lambda *_: seen.append(1))
        values = frozen_features(model, which, tmp_path)
        hook.remove()
        return values, len(seen)

    first, times = computed(found, images)
    assert times > 0
    again, times = computed(found, images)
    assert times == 0
    np.testing.assert_array_equal(first, again)
    # other weights, in place: what was kept must not be taken for theirs
    other = open_pretrained(candidate(folder), image_size=SIDE)
    with torch.no_grad():
        other.model.blocks[0].mlp.fc1.weight.mul_(2)
    changed, times = computed(other, images)
    assert times > 0
    assert not np.allclose(first, changed)
    # another normalisation
    shifted = replace(found, preprocessing=replace(found.preprocessing, mean=(0.4, 0.4, 0.4)))
    assert shifted.weights_key != found.weights_key
    assert not np.allclose(first, computed(shifted, images)[0])
    # one other image
    images._pixels = images._pixels.clone()
    images._pixels[3] = 255 - images._pixels[3]
    mended, times = computed(found, images)
    assert times == 1
    different = np.abs(mended - first).max(1) > 1e-6
    assert different.tolist() == [index == 3 for index in range(len(images))]


def test_features_are_of_images_with_the_candidates_mean_and_std(folder, tmp_path):
    found = open_pretrained(candidate(folder), image_size=SIDE)
    how = replace(found.preprocessing, mean=(0.1, 0.2, 0.3), std=(0.9, 0.8, 0.7))
    found = replace(found, preprocessing=how)
    images = found.preprocessing.load(str(folder / "photos"))
    assert (images.mean, images.std) == (how.mean, how.std)
    pixels = images.test.pixels(np.arange(len(images.test))) / 255
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (how.mean, how.std))
    with torch.no_grad():
        wanted = features_of(found.model, (pixels - mean) / std).numpy()
    np.testing.assert_allclose(frozen_features(found, images.test, tmp_path), wanted, atol=1e-5)


def test_a_damaged_cache_is_made_anew(folder, tmp_path):
    found = open_pretrained(candidate(folder), image_size=SIDE)
    images = found.preprocessing.load(str(folder / "photos")).test
    first = frozen_features(found, images, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:50])
    np.testing.assert_array_equal(frozen_features(found, images, tmp_path), first)


def test_the_probe_is_by_chance_where_labels_are():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300)
    features = rng.normal(size=(300, 8))
    shares = probe(features[:150], labels[:150], features[150:], labels[150:]).shares
    assert 0.1 < shares["knn"] < 0.4
    assert 0.1 < shares["linear"] < 0.4


def test_the_penalty_is_chosen_without_the_test_images():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    features = rng.normal(size=(80, 5)) + 2 * labels[:, None]
    one = probe(features, labels, features[:10], labels[:10])
    other = probe(features, labels, features[:10], 1 - labels[:10])
    assert (one.k, one.c, one.inner) == (other.k, other.c, other.inner)
    np.testing.assert_array_equal(one.linear, ~other.linear)


def test_a_group_is_kept_together_when_the_penalty_is_chosen():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 5)
    labels = groups % 2
    centres = rng.normal(size=(12, 30))  # a group is told by its centre, a class by nothing
    features = centres[groups] + 0.01 * rng.normal(size=(60, 30))
    alone = probe(features, labels, features[:5], labels[:5])
    together = probe(features, labels, features[:5], labels[:5], groups=groups)
    assert max(alone.inner.values()) == pytest.approx(1)
    assert max(together.inner.values()) < 0.85


def test_a_seed_of_the_probe_leaves_whole_groups_out():
    groups = np.repeat(np.arange(5), 4)
    labels = np.arange(20) % 2
    for seed in range(3):
        kept = _kept(labels, seed, groups)
        assert len(set(groups[kept])) == 4  # one of five, all its images
        assert len(kept) == 16
    part = some(labels, 0.4, 0, groups)
    assert [(groups[part] == name).sum() for name in set(groups[part])] == [4, 4]


def test_default_candidates_are_timms_and_have_published_accuracies():
    import timm

    for name in PRETRAINED_MODELS:
        assert timm.is_model(plain_name(name))
        assert plain_name(name) in IMAGENET
        assert name.removeprefix("timm:") in timm.list_pretrained(f"{plain_name(name)}*")


def test_a_candidate_that_cannot_be_had_is_named(folder):
    found = list(opened([f"resnet18@{folder / 'none.pt'}", candidate(folder)], SIDE))
    assert "no weights at" in found[0].problem
    assert found[1].opened is not None
    assert found[1].kind == "none"


def test_costs_are_counted():
    found = cost_of(torch.nn.Linear(10, 5), (10,))
    assert (found.parameters, found.multiply_adds) == (55, 50)
    assert found.megabytes == pytest.approx((55 * 4 + 5 * 4) / 1e6)


def test_a_race_leaves_candidates_out_and_never_cuts_the_training_short():
    wanted = [Runner(model=m, kind="hard", linear=0.5, seconds=0.1) for m in "abc"]
    how = {"num_images": 100, "num_seeds": 2, "epochs": 20}  # 0.1 x 3 x 100 x 2 x 20 = 1200 s each
    assert planned(wanted, budget=None, **how).models == ("a", "b", "c")
    assert planned(wanted, budget=4900, **how).models == ("a", "b", "c")  # one from random weights
    short = planned(wanted, budget=3700, **how)
    assert (short.models, short.epochs, short.left_out) == (("a", "b"), 20, ("c",))
    assert short.notes == (
        "No time to fine-tune c: with c it takes about 80.0 minutes; give a longer --budget.",
    )
    none = planned(wanted, budget=100, **how)
    assert (none.models, none.left_out) == ((), ("a", "b", "c"))


def test_a_budget_for_one_fine_tuning_goes_to_the_cheapest_promising_candidate():
    wanted = [
        Runner(model=name, kind="hard", linear=0.5, seconds=seconds)
        for name, seconds in (("a", 0.4), ("b", 0.1), ("c", 0.2))
    ]
    how = {"num_images": 100, "num_seeds": 2, "epochs": 20}  # 4800, 1200 and 2400 s
    found = planned(wanted, budget=2500, **how)
    assert (found.models, found.left_out, found.scratch) == (("b",), ("a", "c"), True)
    found = planned(wanted, budget=1300, **how)  # not from random weights too
    assert (found.models, found.scratch) == (("b",), False)
    assert any("random weights" in note for note in found.notes)
    found = planned(wanted, budget=1100, **how)
    assert found.models == ()
    assert "the cheapest, b, takes about 20.0 minutes" in found.notes[0]


def test_a_head_is_fitted_on_the_features_that_the_probe_kept(folder, tmp_path):
    found = open_pretrained(candidate(folder, "test_resnet"), image_size=SIDE)
    images = found.preprocessing.load(str(folder / "photos"))
    features = frozen_features(found, images.train, tmp_path)
    np.testing.assert_array_equal(kept_features(found, images.train, tmp_path), features)
    assert kept_features(found, images.train, tmp_path / "none") is None
    assert kept_features(found, images.test, tmp_path) is None
    heads, passes = [], []
    for known in (None, features, features + 1):  # the last are those of other weights
        new = found.for_classes(images.classes, keep_head=False, seed=0)
        seen = []
        new.model.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        heads.append(fit_head(new, images.train, known).model.get_classifier().weight.detach())
        passes.append(sum(map(len, seen)))
    torch.testing.assert_close(heads[0], heads[1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(heads[0], heads[2])
    assert passes[1] < passes[0] == passes[2] == len(images.train)


def test_before_the_probe_a_budget_says_what_it_buys(folder, tmp_path, capsys):
    words = ["compare", "--data", str(folder / "photos"), "--pretrained", "--image-size", str(SIDE)]
    words += ["--models", candidate(folder), "--seeds", "0", "1", "2", "--budget", "1s"]
    assert main([*words, "--processes", "1", "--out", str(tmp_path / "c")]) == 0
    lines = capsys.readouterr().err.splitlines()
    said = next(number for number, line in enumerate(lines) if "the probe takes about" in line)
    probed = next(number for number, line in enumerate(lines) if "k-NN" in line)
    assert said < probed
    assert "cheapest candidate" in lines[said]
    assert "the budget buys the probe alone" in lines[said]


def test_later_layers_learn_faster_and_every_parameter_once():
    model = create_model("timm:test_vit")
    groups = parameter_groups(model, recipe("finetune"))
    scale = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    assert len(scale) == len(list(model.parameters()))
    names = ("patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "head.weight")
    first, middle, last = (scale[id(model.get_parameter(name))] for name in names)
    assert first < middle < last == 1


def test_the_answer_has_every_part(answered, folder):
    values = record.load(answered / "pretrained").values
    assert [line["model"] for line in values["probe"]] == [
        candidate(folder),
        candidate(folder, "test_resnet"),
    ]
    for line in values["probe"]:
        assert line["knn"] >= 0.9  # red and blue
        assert (line["size"], line["std"]) == ([3, SIDE, SIDE], [0.5, 0.5, 0.5])
        assert line["milliseconds"] > 0
    assert {line["kind"] for line in values["probe"]} == {"none", "hard"}
    assert list(values["skipped"]) == ["no_such_model"]
    assert len(values["race"]) == 2
    assert values["recommendation"]["stage"] == "race"
    assert values["scratch"]["model"] == values["recommendation"]["best"]
    assert values["fine_tuning"]["model"] in [line["model"] for line in values["race"]]
    found = values["mistakes"]
    assert found["model"] == values["recommendation"]["model"]
    pictured = [line for name in LISTS for line in found[name]]
    page = (answered / "report.html").read_text()
    assert page.count("<img") == len(pictured) > 0
    assert "Accuracy against cost" in page
    assert "<code>vitascope predict" in page
    assert "How good" not in page  # its runs are parts of the answer
    assert "validation images" in page
    assert "test images, which were not used for selection" in page


def test_validation_images_choose_and_test_images_report(answered, folder):
    kept = record.load(answered / "pretrained")
    values, names = kept.values, (candidate(folder), candidate(folder, "test_resnet"))
    assert values["chosen_by"] == {"images": "validation", "count": 4, "share": 0.2, "folds": None}
    assert values["reported_on"] == {"images": "test", "count": 12}
    for name in names:
        assert kept.arrays[f"chosen/race/{name}"].shape == (2, 4)
        assert kept.arrays[f"correct/race/{name}"].shape == (2, 12)
        run = next((answered / "runs").glob(f"*{name[-20:].replace('/', '_')}*/seed-0"))
        assert load_run(run).config["data"]["train_images"] == 16
    kinds = {"linear": LINEAR, "race": TUNED}
    ways = {f"{Usage(name, kinds[kind])}": (kind, name) for kind in kinds for name in names}
    chosen = {w: kept.arrays[f"chosen/{k}/{n}"].astype(bool) for w, (k, n) in ways.items()}
    costs = {line["model"]: line["multiply_adds"] for line in values["table"]}
    wanted = recommend(chosen, {w: costs[n] + (k == "race") for w, (k, n) in ways.items()})
    advice = values["recommendation"]
    assert (advice["best"], advice["reason"]) == (ways[wanted.best][1], wanted.reason)
    assert f"{Usage(advice['model'], advice['way'])}" == wanted.model
    assert any(each.startswith("Chosen by 4 validation images") for each in advice["sentences"])
    shares = {line["model"]: line["top1"] for line in values["race"]}
    assert shares == {n: kept.arrays[f"correct/race/{n}"].mean() for n in names}


def test_the_recommended_way_is_there_as_a_run(answered, folder, tmp_path, capsys):
    advice = record.load(answered / "pretrained").values["recommendation"]
    run = load_run(advice["run"])
    assert run.recipe.name == {LINEAR: "linear", TUNED: "finetune_small"}[advice["way"]]
    tests = folder / "photos" / "test"
    assert main(["predict", advice["run"], str(tests), "--out", str(tmp_path / "a.csv")]) == 0
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    right = [row["label"] == Path(row["file"]).parent.name for row in rows]
    assert np.mean(right) == pytest.approx(advice["run_top1"])
    words = shlex.split(advice["command"])
    assert words[:2] == ["vitascope", "train"]
    assert main([*words[1:], "--quiet", "--no-tracking"]) == 0
    whole = load_run(answered / "model")
    assert whole.config["data"]["train_images"] == 20
    capsys.readouterr()


def test_a_fitted_head_says_what_the_regression_says(folder):
    found = open_pretrained(candidate(folder, "test_resnet"), image_size=SIDE)
    images = found.preprocessing.load(str(folder / "photos"))
    found = found.for_classes(images.classes)
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    fit_head(found, images.train)
    after = found.model.state_dict()
    assert {name for name in after if not torch.equal(after[name], before[name])} == set(found.new)
    how = found.preprocessing
    pixels = Normalize(how.mean, how.std)(images.train.pixels(np.arange(20)))
    with torch.no_grad():
        said = found.model.eval()(pixels).softmax(-1)
        features = features_of(found.model, pixels).numpy()
    wanted = fitted(features, images.train.labels).predict_proba(features)
    np.testing.assert_allclose(said.numpy(), wanted, atol=1e-4)


def test_a_head_without_a_bias_cannot_be_fitted_and_says_so(folder):
    found = open_pretrained(candidate(folder, "test_resnet"), image_size=SIDE)
    images = found.preprocessing.load(str(folder / "photos"))
    found = found.for_classes(images.classes)
    found.model.get_classifier().register_parameter("bias", None)
    with pytest.raises(UserError, match="cannot hold a logistic regression.*head=random"):
        fit_head(found, images.train)


def test_of_classes_without_images_a_fitted_head_says_nothing():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 2, 3], 10)
    features = rng.normal(size=(30, 5)) + labels[:, None]
    weight, bias = as_linear(fitted(features, labels), 5)
    assert set((features @ weight.T + bias).argmax(1)) <= {0, 2, 3}


def test_the_recipe_linear_leaves_all_but_the_head_as_it_was(folder, tmp_path, capsys):
    words = ["train", "--data", str(folder / "photos"), "--recipe", "linear", "--quiet"]
    words += ["--out", str(tmp_path / "a"), "--image-size", str(SIDE), "--no-tracking"]
    words += ["--set", "batch_size=8"]
    assert main([*words, "--model", candidate(folder, "test_resnet")]) == 0
    first = open_pretrained(candidate(folder, "test_resnet"), image_size=SIDE).model.state_dict()
    last = load_file(tmp_path / "a" / "model.safetensors")
    changed = [name for name in last if not torch.equal(last[name], first[name])]
    assert changed == ["fc.bias", "fc.weight"]
    assert load_run(tmp_path / "a").final["top1"] == 1  # red and blue
    words[words.index(str(tmp_path / "a"))] = str(tmp_path / "b")
    assert main([*words, "--model", "timm:test_resnet"]) == 2
    assert "start from pretrained weights" in capsys.readouterr().err


def test_fine_tuning_moves_weights_and_no_statistics_of_batch_norms(folder, tmp_path):
    words = ["train", "--data", str(folder / "photos"), "--recipe", "finetune", "--epochs", "2"]
    words += ["--out", str(tmp_path / "a"), "--image-size", str(SIDE), "--no-tracking", "--quiet"]
    assert main([*words, "--set", "batch_size=8", "--model", candidate(folder, "test_resnet")]) == 0
    first = open_pretrained(candidate(folder, "test_resnet"), image_size=SIDE).model.state_dict()
    last = load_file(tmp_path / "a" / "model.safetensors")
    changed = {name for name in last if not torch.equal(last[name], first[name])}
    assert "conv1.weight" in changed or "conv1.0.weight" in changed
    assert not [name for name in changed if "running" in name]


def test_folds_are_honoured_and_every_training_image_chooses(folder, tmp_path, capsys, monkeypatch):
    made = "from timm import create_model\ndef net():\n    return create_model('test_resnet')\n"
    made += (
        "def plain():\n    from torch.nn import AdaptiveAvgPool2d, Flatten, Linear, Sequential\n"
    )
    made += "    return Sequential(AdaptiveAvgPool2d(2), Flatten(), Linear(12, 7))\n"
    (tmp_path / "my_networks.py").write_text(made)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["compare", "--data", str(folder / "photos" / "train"), "--pretrained", "--folds", "2"]
    words += ["--models", candidate(folder), "my_networks:net", "my_networks:plain"]
    words += ["--image-size", str(SIDE), "--epochs", "1", "--processes", "1", "--quiet"]
    assert main([*words, "--seeds", "0", "--out", str(tmp_path / "c")]) == 0
    out = capsys.readouterr().out
    assert "20 held-out images" in out
    for name in ("net", "plain"):
        assert f"my_networks:{name} is probed, not fine-tuned: a run could not build it" in out
    kept = record.load(tmp_path / "c" / "pretrained")
    assert kept.values["chosen_by"]["folds"] == 2
    assert kept.arrays[f"chosen/linear/{candidate(folder)}"].shape == (1, 20)
    assert kept.arrays[f"correct/race/{candidate(folder)}"].shape == (1, 20)


def test_a_hugging_face_classifier_is_fine_tuned_and_its_run_needs_no_hub(folder, tmp_path, capsys):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    small |= {"intermediate_size": 48, "image_size": SIDE, "patch_size": 8, "num_labels": 5}
    torch.manual_seed(0)
    ViTForImageClassification(ViTConfig(**small)).save_pretrained(tmp_path / "hf")
    how = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.9, 0.8, 0.7], "resample": 2}
    ViTImageProcessor(size={"height": SIDE, "width": SIDE}, **how).save_pretrained(tmp_path / "hf")
    words = ["compare", "--data", str(folder / "photos"), "--pretrained", "--json"]
    words += ["--models", f"hf:{tmp_path / 'hf'}", "--seeds", "0", "--epochs", "1"]
    assert main([*words, "--processes", "1", "--out", str(tmp_path / "c")]) == 0
    told = json.loads(capsys.readouterr().out)
    (line,) = told["probe"]
    assert (line["mean"], line["std"]) == (how["image_mean"], how["image_std"])
    assert (line["size"], line["interpolation"]) == ([3, SIDE, SIDE], "bilinear")
    assert line["crop_pct"] == 1
    assert len(told["race"]) == 1
    shutil.rmtree(tmp_path / "hf")
    loaded = vitascope.load(told["recommendation"]["run"], device="cpu")
    assert loaded.classes == ("blue", "red")
    how = loaded.preprocessing
    assert (how.mean, how.interpolation) == ((0.1, 0.2, 0.3), "bilinear")
    with torch.no_grad():
        logits = loaded.model(loaded.transform(folder / "photos/test/red/0.png")[None]).logits
    assert logits.shape == (1, 2)


def test_none_that_can_be_had_is_told_before_the_images_are_looked_at(tmp_path, capsys):
    words = ["compare", "--data", "digits", "--pretrained", "--out", str(tmp_path / "c")]
    assert main([*words, "--models", "resnet18@none.pt", "resnet34@none.pt"]) == 2
    told = capsys.readouterr()
    assert "none of resnet18@none.pt, resnet34@none.pt is available" in told.err
    assert "training" not in told.err + told.out


def test_json_states_shares_and_preprocessing(answered, folder, capsys):
    words = ["compare", "--data", str(folder / "photos"), "--pretrained", "--probe-only", "--json"]
    more = ["--models", candidate(folder), "--image-size", str(SIDE), "--out", str(answered)]
    assert main([*words, *more]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["race"] == []
    (line,) = told["probe"]
    assert 0 <= line["knn"] <= 1
    assert line["mean"] == [0.5, 0.5, 0.5]
    assert line["interpolation"] == "bicubic"
    assert told["recommendation"]["stage"] == "probe"
    found = record.load(answered / "pretrained").values["mistakes"]  # of the linear head
    wrong = sum(each["images"] - each["right"] for each in found["per_class"])
    assert len(found["surest_mistakes"]) == wrong
    assert len(found["least_sure_hits"]) == 12 - wrong
    assert {"probe", "race", "table", "recommendation"} <= set(told)


def test_words_that_need_pretrained_are_refused_without_it(capsys):
    assert main(["compare", "--data", "digits", "--probe-only"]) == 2
    assert "--pretrained" in capsys.readouterr().err
    for option in (["--tune"], ["--fractions", "0.5"], ["--match", "compute"]):
        assert main(["compare", "--data", "digits", "--pretrained", *option]) == 2
        assert f"{option[0]} is for trainings from scratch" in capsys.readouterr().err
    words = ["compare", "--data", "digits", "--pretrained", "--models", "no_such_model"]
    assert main([*words, "--out", "/nonexistent/x"]) in (1, 2)


def test_five_and_five_classes_share_nothing(tmp_path):
    for part in ("train", "test"):
        write_folder(tmp_path / "cifar" / part, [f"c{n}" for n in range(10)], count=3)
    found = [load(source, image_size=8) for source in five_and_five(tmp_path / "cifar", tmp_path)]
    assert [images.classes for images in found] == [
        tuple(f"c{n}" for n in range(5)),
        tuple(f"c{n}" for n in range(5, 10)),
    ]
    assert [(len(images.train), len(images.test)) for images in found] == [(15, 15)] * 2


def test_what_fine_tuning_added_is_paired_on_the_images_that_report():
    rng = np.random.default_rng(0)
    frozen, tuned = rng.random((3, 200)) < 0.7, rng.random((3, 200)) < 0.9
    runs = tuple(RunResult("a", 1.0, seed, 50, right) for seed, right in enumerate(tuned))
    probed = {"a": SimpleNamespace(reported={"linear": frozen})}
    seen = Evidence(name="test", runs=runs)
    found = _added(probed, SimpleNamespace(chosen=seen, reported=seen))
    wanted = difference(tuned, frozen)
    assert found["linear"] == pytest.approx(100 * frozen.mean())
    assert found["gain"] == {"value": wanted.value, "low": wanted.low, "high": wanted.high}


def test_a_class_that_a_test_image_was_given_is_not_one_that_is_never_predicted():
    key = ("a", 1.0, 0, 0)
    runs = SimpleNamespace(
        question=SimpleNamespace(fractions=(1.0,)),
        dataset=SimpleNamespace(classes=("dog", "frog", "horse")),
        held_out={key: SimpleNamespace(predicted=np.zeros(3, int), label=np.arange(3))},
        tests={key: SimpleNamespace(arrays={"predicted": np.array([0, 2])})},
    )
    assert FinishedRuns.never(runs) == {"a": ["frog"]}


def stripes(root, count, rng):
    """Fine stripes, upright or lying: random features hardly see them."""
    for part, number in (("train", count), ("test", count)):
        for label, name in enumerate(("lying", "upright")):
            (root / part / name).mkdir(parents=True)
            for index in range(number):
                wave = 40 * np.sin(np.arange(24) * 2.5 + rng.uniform(0, 6))
                lines = wave[:, None] if label == 0 else wave[None]
                noise = rng.normal(0, 60, (24, 24, 3))
                pixels = np.clip(128 + lines[..., None] + noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{index}.png")


def test_weights_that_did_not_load_and_foreign_preprocessing_are_cautions(folder, tmp_path):
    stripes(tmp_path / "photos", 40, np.random.default_rng(0))
    words = ["compare", "--data", str(tmp_path / "photos"), "--pretrained", "--probe-only"]
    words += ["--models", candidate(folder), "--image-size", str(SIDE)]  # its weights are random
    assert main([*words, "--out", str(tmp_path / "c"), "--quiet"]) == 0
    advice = record.load(tmp_path / "c/pretrained").values["recommendation"]
    assert any("did the weights load?" in each for each in advice["cautions"])
    assert any("32 pixels on a side instead of 160" in each for each in advice["cautions"])


def test_easy_images_say_nothing_about_weights(answered):
    advice = record.load(answered / "pretrained").values["recommendation"]
    assert not any("did the weights load?" in each for each in advice["cautions"])


def test_a_foreign_mean_is_named(folder):
    (found,) = opened([candidate(folder)])
    assert foreign(found) == []
    how = replace(found.opened.preprocessing, mean=(0.1, 0.2, 0.3))
    changed = replace(found, opened=replace(found.opened, preprocessing=how))
    (said,) = foreign(changed)
    assert said.startswith("mean (0.1, 0.2, 0.3) instead of (0.5, 0.5, 0.5)")


ROUNDS = ["--image-size", str(SIDE), "--epochs", "1", "--processes", "1", "--folds", "2", "--quiet"]


def test_rounds_are_repeated_folds(folder, tmp_path, capsys):
    """Two networks on photographs that both tell apart: nothing is decided, and seeds are added."""
    out = tmp_path / "c"
    words = ["compare", "--data", str(folder / "photos"), "--pretrained", "--until", "decided"]
    models = ["--models", candidate(folder), candidate(folder, "test_resnet")]
    line = [*words, *models, *ROUNDS, "--out", str(out), "--json"]
    assert main(line) == 0
    printed = json.loads(capsys.readouterr().out)
    looks = printed["rounds"]["looks"]
    assert looks[0]["seeds"] == 1
    assert [look["seeds"] for look in looks] == list(range(1, len(looks) + 1))
    answer = record.load(out / "pretrained")
    assert answer.config["until"] == "decided"
    assert answer.values["chosen_by"]["folds"] == 2
    chosen = {name: each for name, each in answer.arrays.items() if name.startswith("chosen/")}
    assert {each.shape[1] for each in chosen.values()} == {20}  # every training image
    assert max(len(each) for each in chosen.values()) == looks[-1]["seeds"]
    assert f"{len(looks)} look" in (out / "report.html").read_text()
    times = [path.stat().st_mtime_ns for path in sorted(out.glob("runs/*/*/record.json"))]
    assert main(line) == 0  # nothing is trained again
    assert json.loads(capsys.readouterr().out)["rounds"] == printed["rounds"]
    assert times == [p.stat().st_mtime_ns for p in sorted(out.glob("runs/*/*/record.json"))]


def test_rounds_of_probes_add_seeds_to_the_linear_heads_in_question(folder, tmp_path, capsys):
    words = ["compare", "--data", "digits", "--pretrained", "--until", "decided", "--probe-only"]
    models = ["--models", candidate(folder), candidate(folder, "test_resnet")]
    out = tmp_path / "c"
    assert main([*words, *models, *ROUNDS, "--out", str(out)]) == 0
    answer = record.load(out / "pretrained")
    looks = answer.values["rounds"]["looks"]
    rows = {name: len(each) for name, each in answer.arrays.items() if name.startswith("chosen/li")}
    assert max(rows.values()) == looks[-1]["seeds"]
    assert answer.values["recommendation"]["verdict"] == looks[-1]["verdict"]
