"""The main job, end to end, on a handful of digits."""

import json
import os
import shlex
import shutil
import signal
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import vitascope
from commands import COMPARE, started
from data_making import photo
from page_reading import understand
from vitascope import data, measure
from vitascope.commands import main
from vitascope.comparison.compare import _describe, commands, compare, next_steps
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.question import comparison_of
from vitascope.errors import UserError
from vitascope.inspection.evaluation import LISTS
from vitascope.loading.opening import build, open_run
from vitascope.papers.scale import LAPTOP
from vitascope.record import Record, load
from vitascope.runs.cache import folder_of, images_of, is_finished, reading_of, recipe_of
from vitascope.runs.executor import Engine, run_all
from vitascope.runs.readings import gates_and_nonlocality
from vitascope.runs.spec import Reading, Training
from vitascope.stats import difference
from vitascope.training import load_run, lock_folder, recipe, train
from vitascope.training.run_folder.checkpoints import latest

DIGITS = comparison_of(CompareOptions(data="digits"))


@pytest.fixture(scope="module")
def folder(comparison, tmp_path_factory):
    return shutil.copytree(comparison, tmp_path_factory.mktemp("compare") / "c")


def test_the_answer_is_a_record_and_a_page(folder):
    record = load(folder / "compare")
    values = record.values
    assert len(values["cells"]) == 12
    assert [row["num_images"] for row in values["table"]] == [116, 229]
    assert values["recommendation"]["model"] in [m["name"] for m in values["models"]]
    assert {m["name"]: m["kind"] for m in values["models"]} == {
        "vit_micro": "vit",
        "convit_micro": "convit",
        "resnet_micro": "cnn",
    }
    page = (folder / "report.html").read_text()
    assert values["recommendation"]["headline"] in page.replace("&#39;", "'")
    assert record.made["versions"]["torch"]


def test_gates_and_nonlocality_are_followed_over_training(folder):
    record = load(folder / "compare")
    (few, more) = record.values["gates"]
    assert (few["model"], few["fraction"], more["fraction"]) == ("convit_micro", 0.1, 0.2)
    gates = record.arrays[few["array"]]
    assert gates.shape == (len(few["epochs"]), 3, 9)
    np.testing.assert_allclose(gates[0], 1 / (1 + np.exp(-1)), rtol=1e-6)
    assert np.abs(gates[-1] - gates[0]).max() > 0
    assert {entry["model"] for entry in record.values["nonlocality"]} == {
        "vit_micro",
        "convit_micro",
    }


@pytest.mark.parametrize("moved", [False, True])
def test_its_folder_stands_for_the_recommended_run(folder, moved, tmp_path, capsys):
    if moved:
        folder = shutil.copytree(folder, tmp_path / "moved")
    advice = load(folder / "compare").values["recommendation"]
    run = load_run(folder)
    config = run.config
    assert config["model"]["name"] == advice["model"]
    assert run.folder.is_relative_to(folder)
    assert config["data"]["train_images"] == 229  # the run on most images
    ours, its = vitascope.load(folder), vitascope.load(run.folder)
    for name, value in its.model.state_dict().items():
        assert torch.equal(ours.model.state_dict()[name], value)
    file = tmp_path / "digit.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(file)
    assert vitascope.predict(folder, [file]) == vitascope.predict(run.folder, [file])
    assert main(["evaluate", str(folder), "--images", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_images"] == 20
    vitascope.export(folder, "safetensors", tmp_path / "model.safetensors")
    assert vitascope.inspect(folder, list=True).values["size"] == (1, 8, 8)


def test_a_comparison_without_the_run_it_recommends_says_so(folder, tmp_path):
    for file in folder.glob("compare.*"):
        shutil.copy(file, tmp_path)
    with pytest.raises(UserError, match="without a run"):
        vitascope.load(tmp_path)


def test_finished_parts_are_not_run_again(folder):
    weights = list(folder.glob("runs/*/*/model.safetensors"))
    assert len(weights) == 12
    before = {path: path.stat().st_mtime_ns for path in weights}
    (folder / "report.html").unlink()
    assert main([*COMPARE, "--out", str(folder), "--processes", "1", "--quiet"]) == 0
    assert {path: path.stat().st_mtime_ns for path in weights} == before
    assert (folder / "report.html").exists()


def test_other_settings_in_the_same_folder_are_refused(folder, capsys):
    words = [*COMPARE, "lr=0.1", "--out", str(folder), "--processes", "1", "--quiet"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"{folder} holds another comparison: recipe.lr was 0.002, now 0.1" in said


def test_the_page_is_made_for_machines_too(folder, capsys):
    assert main([*COMPARE, "--out", str(folder), "--processes", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["report"].endswith("report.html")
    assert len(answer["table"]) == 2


def test_validation_images_choose_and_are_neither_trained_on_nor_reported(folder):
    values = load(folder / "compare").values
    assert values["chosen_by"] == {
        "images": "validation",
        "count": 287,
        "share": 0.2,
        "folds": None,
    }
    assert values["reported_on"] == {"images": "test", "count": 359}
    chosen = {row["fraction"]: row["entries"] for row in values["table_chosen"]}
    best = max(chosen[0.2], key=lambda entry: entry["mean"])
    assert best["model"] in (
        values["recommendation"]["model"],
        *values["recommendation"]["headline"].split(),
    )
    page = (folder / "report.html").read_text()
    assert "validation images" in page
    assert "of 359 test images; " in page


def test_every_image_is_held_out_once_in_folds(tmp_path, capsys):
    words = ["compare", "--data", "digits", "--epochs", "1", "--fractions", "0.1", "--seeds", "0"]
    words += ["--models", "vit_micro", "resnet_micro", "--set", "scale_epochs=false"]
    words += ["--folds", "3", "--metric", "balanced", "--processes", "1", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "c")]) == 0
    said = capsys.readouterr().out
    assert "1,797 held-out images" in said
    assert "balanced accuracy" in said
    record = load(tmp_path / "c/compare")
    assert record.values["chosen_by"]["count"] == 1797
    assert record.values["data"]["num_test"] == 0  # digits have no test part: all are dealt out
    assert record.arrays["correct/vit_micro/0.1"].shape == (1, 1797)
    folders = [tmp_path / "c" / cell["folder"] for cell in record.values["cells"]]
    assert len(folders) == 6
    held = [len(load_run(folder).predictions.label) for folder in folders[:3]]
    assert sum(held) == 1797
    found = record.values["mistakes"]
    assert found["images"] == "held-out"
    assert sum(line["images"] for line in found["per_class"]) == held[0]  # the first fold's
    assert f"mistakes/picture/{found['surest_mistakes'][0]['index']}" in record.arrays
    assert main(["evaluate", str(folders[0]), "--json"]) == 0  # on its own fold
    again = json.loads(capsys.readouterr().out)
    assert again["num_images"] == held[0]
    assert again["top1"] == pytest.approx(load_run(folders[0]).final["top1"])


def patients(root):
    """Three photographs of each of ten patients, whose class is told by nothing."""
    for patient in range(10):
        for index in range(3):
            name = root / "ab"[patient % 2] / f"p{patient}_{index}.png"
            name.parent.mkdir(parents=True, exist_ok=True)
            photo(10 * patient + index).save(name)
    return str(root)


@pytest.mark.parametrize(
    "how",
    [
        {"validation": 0.4, "seeds": (0, 1)},
        pytest.param({"folds": 2, "seeds": (0,)}, marks=pytest.mark.slow),
    ],
)
def test_patients_are_on_one_side_and_count_together(how, tmp_path):
    options = CompareOptions(
        data=patients(tmp_path / "photos"),
        groups="(p[0-9])_",
        models=("vit_micro", "resnet_micro"),
        fractions=(1.0,),
        set=("epochs=1", "warmup_epochs=0", "batch_size=8"),
        image_size=12,
        **how,
    )
    record = compare(options, tmp_path / "c", Engine(quiet=True))
    question = comparison_of(options)
    parts = [images_of(part) for part in question.on_every_fold(question.training("vit_micro", 1))]
    for images in parts:
        assert not set(images.train.groups) & set(images.test.groups)
    groups = np.concatenate([images.test.groups for images in parts])
    folds = np.repeat(range(len(parts)), [len(images.test) for images in parts])
    known = {"groups": groups, "folds": folds if "folds" in how else None}
    kept = "correct" if "folds" in how else "chosen"
    pair = [record.arrays[f"{kept}/{name}/1"] for name in ("resnet_micro", "vit_micro")]
    wanted = difference(*pair, **known)
    (row,) = record.values["table_chosen"]
    entry = row["entries"][1]
    assert (entry["points_low"], entry["points_high"]) == (wanted.low, wanted.high)
    assert wanted.high - wanted.low > difference(*pair).high - difference(*pair).low
    why = " ".join(record.values["recommendation"]["sentences"])
    assert f"{len(groups)} {'held-out' if 'folds' in how else 'validation'} images of " in why
    assert f"of {len(set(groups))} groups" in why


def test_a_part_of_one_group_is_refused_before_anything_is_trained(tmp_path, capsys):
    words = ["compare", "--data", patients(tmp_path / "photos"), "--groups", "(p[0-9])_"]
    words += ["--image-size", "12", "--validation", "0.125", "--out", str(tmp_path / "c")]
    assert main([*words, "--quiet"]) == 2
    assert "nothing can be said about other groups" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def folder_in(folder, model, fraction, seed):
    """The folder of one run, as the record says it."""
    (found,) = (
        cell["folder"]
        for cell in load(folder / "compare").values["cells"]
        if (cell["model"], cell["fraction"], cell["seed"]) == (model, fraction, seed)
    )
    return folder / found


def test_a_scheduler_may_make_the_same_runs(folder, tmp_path, capsys):
    """The printed commands make the very runs that `compare` makes."""
    assert main([*COMPARE, "--out", str(tmp_path), "--print-commands"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    ours = folder_in(folder, "resnet_micro", 0.1, 1)
    theirs = tmp_path / ours.relative_to(folder)
    (line,) = (line for line in lines if str(theirs) in line)
    words = shlex.split(line)
    assert words[0] == "vitascope"
    assert main([*words[1:], "--quiet"]) == 0
    name = "model.safetensors"
    assert (theirs / name).read_bytes() == (ours / name).read_bytes()


def test_the_record_says_which_images_every_run_got_right(folder):
    record = load(folder / "compare")
    assert len(record.values["correct"]) == 6
    for entry in record.values["correct"]:
        correct = record.arrays[entry["array"]]
        assert correct.shape == (2, 359)
        for seed, row in enumerate(correct):
            run = load_run(folder_in(folder, entry["model"], entry["fraction"], seed))
            test = load(run.folder / "readings/test")
            assert row.mean() == pytest.approx(test.values["top1"])
            assert set(test.arrays) >= {"predicted", "probability", "label"}
            chosen = record.arrays[entry["array"].replace("correct", "chosen")]
            assert chosen.shape == (2, 287)
            assert chosen[seed].mean() == pytest.approx(run.final["top1"])


def test_the_mistakes_of_the_recommended_model_are_shown_with_who_else_is_right(folder):
    record = load(folder / "compare")
    found, digits = record.values["mistakes"], data.load("digits").test
    model = record.values["recommendation"]["model"]
    assert (found["model"], found["seed"], found["images"]) == (model, 0, "test")
    names = {cell["model"] for cell in record.values["cells"]}
    right = {name: record.arrays[f"correct/{name}/0.2"][0] for name in names}
    lines = [(line, name) for name in LISTS for line in found[name]]
    assert len(lines) > 12
    for line, name in lines:
        index = line["index"]
        assert line["label"] == digits.classes[digits.labels[index]]
        assert bool(right[model][index]) == (name == "least_sure_hits")
        assert set(line["right"]) == {m for m, row in right.items() if row[index] and m != model}
        raw = BytesIO(record.arrays[f"mistakes/picture/{index}"].tobytes())
        np.testing.assert_array_equal(np.asarray(Image.open(raw)), digits.pixels([index])[0, 0])
    assert sum(line["images"] for line in found["per_class"]) == 359
    page = (folder / "report.html").read_text()
    galleries = page[page.index("<h1>") :]
    assert galleries.count("<img") == len(lines)
    assert f"Most confident mistakes of {model}" in galleries


def test_a_fraction_is_drawn_anew_with_each_seed(folder):
    record = load(folder / "compare")
    assert record.values["subset_per_seed"]
    drawn = [load_run(folder_in(folder, "vit_micro", 0.1, seed)).recipe.subset for seed in (0, 1)]
    assert [spec.seed for spec in drawn] == [0, 1]
    first, second = (data.subset(data.load("digits").train, spec) for spec in drawn)
    assert len(first) == len(second)
    assert not np.array_equal(first.labels, second.labels) or not np.array_equal(
        first.pixels(range(10)).numpy(), second.pixels(range(10)).numpy()
    )
    fixed = replace(DIGITS, subset_per_seed=False)
    training = fixed.trainings()["vit_micro", 0.1]
    assert recipe_of(training, 1, None) == recipe_of(training, 0, None)


def test_a_study_in_the_same_folder_shares_the_runs():
    options = CompareOptions(data="digits", epochs=LAPTOP.epochs, validation=0.0)
    question = comparison_of(options)
    ours = {training.key for training in question.trainings().values()}
    theirs = {LAPTOP.training("DeiT-S", fraction=f).key for f in (0.1, 1.0)}
    assert theirs < ours


def test_a_run_on_other_images_than_now_is_refused(folder, tmp_path):
    """The key names the source; what is in it may have changed."""
    training = DIGITS.trainings()["vit_micro", 0.1]
    there = folder_of(training, 0, tmp_path)
    shutil.copytree(folder_in(folder, "vit_micro", 0.2, 0), there)
    with pytest.raises(UserError, match="data.train_images was 229, now 116"):
        is_finished(training, (), 0, tmp_path)


def small_runs(out):
    """At a tenth of the images every tenth epoch makes a checkpoint."""
    words = ["compare", "--data", "digits", "--models", "convit_micro", "vit_micro"]
    words += ["--fractions", "0.1", "--seeds", "0", "--epochs", "40", "--out", str(out)]
    return [*words, "--processes", "2", "--quiet"]


def under_way(out):
    """The comparison, when both of its runs have ended some epochs."""
    return started(small_runs(out), lambda: sum(epochs(folder) >= 2 for folder in runs(out)) == 2)


def runs(out):
    return sorted(out.glob("runs/*/seed-0"))


def epochs(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def saved_step(folder):
    return latest(folder / "checkpoint")[0]


def trained_step(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["step"]


@pytest.mark.slow
def test_interrupted_it_saves_every_run_where_it_stands(tmp_path):
    with under_way(tmp_path / "c") as process:
        os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C: to the workers as well
        err = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert err.startswith("vitascope: stopped; of 2 runs 2 saved where they stood; ")
    for folder in runs(tmp_path / "c"):
        assert saved_step(folder) >= trained_step(folder) > 0
        assert epochs(folder) < 400
        assert not (folder / ".lock").exists()


@pytest.mark.slow
def test_killed_it_takes_its_workers_along_and_blocks_nobody(tmp_path):
    out = tmp_path / "c"
    with under_way(out) as process:
        assert main(small_runs(out)) == 2  # one at a time
        held = (out / ".lock").read_text()
        workers = [int((folder / ".lock").read_text().split()[0]) for folder in runs(out)]
        assert held.split()[0] == str(process.pid)
        assert process.pid not in workers
        process.kill()
        process.wait(60)
        while any(alive(worker) for worker in workers):  # they save first
            time.sleep(0.1)
    for folder in runs(out):
        assert saved_step(folder) >= trained_step(folder) > 0
    with lock_folder(out):
        assert (out / ".lock").read_text().split()[0] == str(os.getpid())


def alive(pid):
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--data", "digits", "--fractions", "0"], "fractions lie in (0, 1]"),
        (["--data", "digits", "--seeds", "1", "1"], "seeds must be one or more different ones"),
        (["--data", "digts"], "digits"),
        (["--data", "digits", "--models", "vit_mirco"], "did you mean 'vit_micro'"),
        (["--data", "digits", "--recipe", "labtop"], "did you mean 'laptop'"),
        (["--data", "digits", "--set", "lrr=1"], "unknown recipe field 'lrr'"),
        (["--data", "digits", "--processes", "0"], "--processes must be from 1 to 1024, not 0"),
        (["--data", "digits", "--set", "optimizer=adamv"], "unknown optimizer 'adamv'"),
        (["--data", "digits", "--set", "drop_path=2"], "drop_path must be in [0, 1), not 2"),
        (["--data", "digits", "--seeds", "-1"], "--seeds must be from 0 to 4294967295, not -1"),
        (["--data", "digits", "--fractions", "0.1", "0.10000001"], "share the names 0.1, 0.1"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_trained(words, says, tmp_path, capsys):
    assert main(["compare", *words, "--out", str(tmp_path / "c")]) == 2
    err = capsys.readouterr().err.strip()
    assert says in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_small_fractions_get_small_batches(tmp_path):
    options = CompareOptions(data="digits", fractions=(0.02, 1.0))
    question = comparison_of(options)
    digits = data.load("digits")
    trainings = question.trainings()
    few, whole = (recipe_of(trainings["vit_micro", f], 0, digits) for f in (0.02, 1.0))
    assert few.batch_size <= len(data.subset(digits.train, few.subset)) / 4
    assert few.batch_size % 2 == 0
    assert whole.batch_size == 64
    assert few.total_epochs == 50 * whole.total_epochs
    assert (few.eval_every, whole.eval_every) == (50, 1)  # as often per image
    assert len(commands(options, tmp_path)) == 18
    with pytest.raises(UserError, match="not among the models"):
        replace(question, reference="resnet18")


def test_layers_with_different_numbers_of_heads_are_looked_at(tmp_path):
    dataset = data.load("digits")
    changes = {"keep_epochs": (0, 1), "scale_epochs": False, "subset.fraction": 0.1}
    plan = recipe("laptop", epochs=1, batch_size=64, **changes)
    subject = build("alternet_micro", dataset, heads=(1, 2, 4), head_dim=4)
    how = {"quiet": True, "trackers": (), "model_config": subject.config}
    train(subject.model, dataset, plan, tmp_path / "a", **how)
    found = gates_and_nonlocality(tmp_path / "a", dataset, (0, 1))
    heads = np.isfinite(found.arrays["nonlocality"][0]).sum(axis=1)
    assert heads.max() == found.arrays["nonlocality"].shape[2]
    assert len(set(heads.tolist())) > 1


def test_gates_and_nonlocality_of_drawn_images_are_those_of_these_images(tmp_path):
    made = Training(
        model="convit_micro",
        model_args={"depth": 2, "num_gpsa_blocks": 1},
        data="digits",
        recipe="laptop",
        epochs=1,
        changes={"subset.fraction": 0.1, "scale_epochs": False, "keep_epochs": (1,)},
    )
    reading = Reading(name="looks", options={"num_images": 40})
    run_all([(made, (reading, Reading(name="looks")), 3)], tmp_path, Engine())
    found, usual = (reading_of(made, r, 3, tmp_path) for r in (reading, Reading(name="looks")))
    assert (found.values["num_images"], usual.values["num_images"]) == (40, 128)
    digits = data.load("digits")
    chosen = np.sort(np.random.default_rng(3).permutation(len(digits.test))[:40])
    model = open_run(folder_of(made, 3, tmp_path)).model
    batches = data.EvalBatches(
        digits.test.take(chosen), batch_size=40, mean=digits.mean, std=digits.std
    )
    expected = list(measure.nonlocality(model, batches).distance.values())
    np.testing.assert_allclose(found.arrays["nonlocality"][-1], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vit_micro", "vit"),
        ("convit_micro", "convit"),
        ("resnet_micro", "cnn"),
        ("alternet_micro", "other"),
        ("vit_micro+cb", "vit"),
    ],
)
def test_a_model_is_called_what_it_is_made_of(name, kind):
    found = _describe(name, data.load("digits"))
    assert found["kind"] == kind
    assert ("mixed" in found["locality"]) == (name == "alternet_micro")


def test_train_from_a_comparison_uses_all_training_images_and_its_settings(
    folder, tmp_path, capsys
):
    out = tmp_path / "final"
    assert main(["train", "--from", str(folder), "--out", str(out), "--quiet"]) == 0
    advice = load(folder / "compare").values["recommendation"]
    final, chosen = load_run(out).config, load_run(folder).config
    assert final["model"] == chosen["model"]
    assert final["recipe"]["lr"] == chosen["recipe"]["lr"]
    assert final["recipe"]["epochs"] == chosen["recipe"]["epochs"]
    assert final["data"]["train_images"] > chosen["data"]["train_images"]
    assert advice["train"]["model"] == advice["model"]


def test_options_replace_what_a_comparison_recommends(folder, tmp_path):
    words = ["train", "--from", str(folder), "--epochs", "1", "--set", "lr=0.001", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "short")]) == 0
    assert load_run(tmp_path / "short").config["recipe"]["epochs"] == 1
    assert load_run(tmp_path / "short").config["recipe"]["lr"] == 0.001


def test_train_from_something_else_is_refused(tmp_path, capsys):
    out = ["--out", str(tmp_path / "a")]
    assert main(["train", "--from", str(tmp_path), *out]) == 2
    assert "--from takes the folder of a comparison" in capsys.readouterr().err
    values = {"recommendation": {"train": {"model": "os:system", "pretrained": True}}}
    Record(kind="compare", values=values).save(tmp_path / "compare")
    assert main(["train", "--from", str(tmp_path), *out]) == 2
    assert "Python function" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_the_answer_ends_with_commands_that_are_understood(folder):
    advice = load(folder / "compare").values["recommendation"]
    for _, command in advice["next"]:
        understand(command)
    assert [command.split()[1] for _, command in advice["next"]] == ["predict", "train"]


@pytest.mark.parametrize(
    ("size", "count", "wanted"),
    [((3, 64, 64), 500, True), ((3, 32, 32), 500, False), ((1, 64, 64), 500, False)],
)
def test_pretrained_networks_are_named_where_photographs_are_few(size, count, wanted, tmp_path):
    pixels = np.zeros((count, *size), np.uint8)
    train = data.MemoryImages(torch.from_numpy(pixels), np.arange(count) % 2, ("a", "b"))
    steps = next_steps(replace(DIGITS, data="photos"), SimpleNamespace(train=train), tmp_path)
    assert any("--pretrained" in command for _, command in steps) is wanted
