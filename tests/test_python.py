"""Vitascope from Python: the same words, the same records; a result prints, draws and saves."""

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import vitascope
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.record import load as load_record

SMALL = ["--epochs", "1", "--fraction", "0.1", "--set", "batch_size=32", "--no-tracking", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on the digits."""
    out = tmp_path_factory.mktemp("runs") / "a"
    words = ["train", "--model", "vit_micro", "--data", "digits", "--out", str(out)]
    assert main([*words, "--model-args", "depth=1", *SMALL]) == 0
    return out


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Test images of the digits, as files."""
    folder = tmp_path_factory.mktemp("files")
    images = vitascope.data.load("digits").test
    paths = []
    for index in range(5):
        pixels = images.pixels(np.array([index]))[0, 0].numpy()
        paths.append(folder / f"{index}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def same(one, other):
    """Whether two records hold the same, apart from when and how fast they were made."""
    assert one.kind == other.kind
    for part in ("values", "config"):
        plain = [json.loads(json.dumps(getattr(record, part))) for record in (one, other)]
        assert plain[0] == plain[1]
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])


def test_inspect_gives_the_record_of_the_command_line(run, tmp_path, capsys):
    words = [
        "--measures",
        "nonlocality,entropy",
        "--images",
        "8",
        "--batch-size",
        "4",
        "--seed",
        "3",
    ]
    assert main(["inspect", str(run), *words, "--quiet", "--out", str(tmp_path / "typed")]) == 0
    printed = capsys.readouterr().out
    found = vitascope.inspect(
        run,
        measures=["nonlocality", "entropy"],
        images=8,
        batch_size=4,
        seed=3,
        quiet=True,
        out=tmp_path / "called",
    )
    assert printed.startswith(str(found))
    assert set(found.records) == {"nonlocality", "entropy"}
    for name in found.records:
        typed, called = (load_record(tmp_path / part / name) for part in ("typed", "called"))
        for record in (typed, called):
            record.config["curvature"].pop("parts")  # the folder
        same(typed, called)
    assert "--images 8 --batch-size 4" in called.made["command"]


def test_evaluate_gives_the_record_of_the_command_line(run, tmp_path, capsys):
    assert main(["evaluate", str(run), "--images", "50", "--out", str(tmp_path / "typed")]) == 0
    printed = capsys.readouterr().out
    found = vitascope.evaluate(run, images=50, out=tmp_path / "called")
    same(load_record(tmp_path / "typed"), load_record(tmp_path / "called"))
    same(load_record(tmp_path / "typed"), found.record)
    assert printed.startswith(str(found))
    assert found.values["num_images"] == 50


def test_a_result_draws_saves_and_shows_its_page(run, tmp_path):
    found = vitascope.evaluate(run, on="fgsm", epsilons=["1/255"], images=20, quiet=True)
    assert "fgsm" in str(found)
    assert repr(found) == str(found)  # in an interpreter, not the arrays of its records
    (drawing,) = found.figures().values()
    assert drawing.axes
    page = found.save(tmp_path / "saved")
    assert page == tmp_path / "saved" / "report.html"
    same(load_record(tmp_path / "saved" / "fgsm"), found.record)
    assert (tmp_path / "saved" / "figures" / "fgsm.png").exists()
    html = found._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert html.count('"') == html.count('="') * 2  # the page's own quotes are escaped


def test_units_are_listed(run):
    found = vitascope.inspect(run, list=True)
    assert "blocks.0.attn" in str(found)
    assert found.figures() == {}
    assert found._repr_html_().startswith("<pre>")


def test_a_loaded_run_gives_the_logits_of_its_evaluation(run, files):
    loaded = vitascope.load(run)
    assert loaded.classes == tuple("0123456789")
    assert not loaded.model.training
    images = torch.stack([loaded.transform(path) for path in files])
    data = vitascope.data.load("digits")
    batches = vitascope.data.EvalBatches(data.test, batch_size=5, mean=data.mean, std=data.std)
    torch.testing.assert_close(images, next(iter(batches)).images)
    torch.testing.assert_close(loaded.transform(Image.open(files[0])), images[0])


def test_predictions_are_sorted_and_sum_to_one(run, files):
    found = vitascope.predict(run, files, top=10, batch_size=2)
    assert [row.file for row in found] == [path for path in files for _ in range(10)]
    shares = np.array([row.probability for row in found]).reshape(5, 10)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert (np.diff(shares, axis=1) <= 0).all()
    best = vitascope.predict(run, files)  # in another batch size, which rounds otherwise
    assert [row[:2] for row in best] == [row[:2] for row in found[::10]]
    np.testing.assert_allclose([row.probability for row in best], shares[:, 0], rtol=1e-5)
    loaded = vitascope.load(run)
    with torch.no_grad():
        answer = loaded.model(loaded.transform(files[3])[None]).argmax().item()
    assert best[3].label == loaded.classes[answer]


def test_inspect_takes_a_model_itself(run):
    by_name = vitascope.inspect(run, measures="entropy", images=8, quiet=True)
    model, data = vitascope.load(run).model, vitascope.data.load("digits")
    model.pretrained_cfg = {"input_size": data.test.size, "mean": data.mean, "std": data.std}
    itself = vitascope.inspect(model, data="digits", measures="entropy", images=8, quiet=True)
    for name, array in by_name.record.arrays.items():
        np.testing.assert_allclose(itself.record.arrays[name], array, rtol=1e-6, err_msg=name)
    assert "blocks.0.attn" in str(vitascope.inspect(model, list=True))
    with pytest.raises(UserError):
        vitascope.inspect(model, data="digits", pretrained=True)
    with pytest.raises(UserError):
        vitascope.inspect(3)


def test_evaluate_and_predict_take_a_model_itself(run, files):
    by_name = vitascope.evaluate(run, quiet=True)
    loaded, data = vitascope.load(run), vitascope.data.load("digits")
    loaded.model.pretrained_cfg = {"input_size": data.test.size, "mean": data.mean, "std": data.std}
    itself = vitascope.evaluate(loaded.model, data="digits", quiet=True)
    assert itself.values["top1"] == by_name.values["top1"]
    expected = vitascope.predict(run, files)
    assert vitascope.predict(loaded, files) == expected
    labels = [row.label for row in vitascope.predict(loaded.model, files)]
    assert [loaded.classes[int(label)] for label in labels] == [row.label for row in expected]
    del loaded.model.pretrained_cfg
    with pytest.raises(UserError, match="pretrained_cfg"):
        vitascope.predict(loaded.model, files)


def test_what_cannot_be_loaded_is_one_line(run, tmp_path):
    with pytest.raises(UserError, match="there is no folder nowhere"):
        vitascope.load("nowhere")
    (tmp_path / "no.png").write_text("no image")
    with pytest.raises(UserError, match=r"no\.png: it is no image"):
        vitascope.predict(run, [tmp_path / "no.png"])
    with pytest.raises(UserError, match="unknown argument 'image'"):
        vitascope.inspect(run, image=3)


def test_compare_and_study_answer_from_python(tmp_path):
    found = vitascope.compare(
        data="digits",
        models=["vit_micro"],
        fractions=[0.02],
        seeds=[0],
        epochs=1,
        processes=1,
        set=["scale_epochs=false"],
        out=tmp_path / "c",
        quiet=True,
    )
    assert found.written == tmp_path / "c" / "report.html"
    assert "vit_micro" in str(found)
    assert load_record(tmp_path / "c" / "compare").values["seeds"] == [0]
    assert "explorer/vit_micro" in found.records
    with pytest.raises(UserError, match="no study 'sample-eficiency'"):
        vitascope.study("sample-eficiency")


def test_a_script_that_asks_for_workers_runs_once(tmp_path):
    """One line at its top level, as in a tutorial: no ``if __name__ == "__main__"`` around it."""
    lines = [
        "from vitascope.processes import side_by_side",
        "print('begun')",
        "jobs = [{'out': 'a'}, {'out': 'b'}]",
        "print(side_by_side(dict, jobs, processes=2, epochs=[0, 0], quiet=True) == jobs)",
    ]
    (tmp_path / "script.py").write_text("\n".join(lines), encoding="utf-8")
    words = [sys.executable, "script.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["begun", "True"]


def test_a_public_function_stays_one_when_every_module_is_imported():
    for module in pkgutil.walk_packages(vitascope.__path__, "vitascope."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("compare", "evaluate", "export", "inspect", "load", "predict", "study", "train"):
        assert isinstance(getattr(vitascope, name), FunctionType), name
    assert not {path.stem for path in Path(vitascope.__path__[0]).iterdir()} & {
        name for name in vitascope.__all__ if isinstance(getattr(vitascope, name), FunctionType)
    }


def test_functions_say_what_they_take():
    for name in ("inspect", "evaluate", "train"):
        first, *others = inspect.signature(getattr(vitascope, name)).parameters.values()
        assert (first.name, first.kind) == ("model", first.POSITIONAL_OR_KEYWORD)
        assert {each.kind for each in others} == {first.KEYWORD_ONLY}
    assert "data" in inspect.signature(vitascope.compare).parameters
    first, *others = inspect.signature(vitascope.study).parameters
    assert (first, "seeds" in others) == ("name", True)
    for name in ("compare", "inspect", "evaluate", "train", "study"):
        function = getattr(vitascope, name)
        for each in inspect.signature(function).parameters:
            assert f"{each}:" in function.__doc__ or each == "name"
    assert re.search(r"folds: \S+ \w+", vitascope.compare.__doc__)  # its help


def test_train_is_the_command(tmp_path):
    small = {"epochs": 1, "fraction": 0.1, "no_tracking": True, "quiet": True}
    done = vitascope.train("vit_micro", data="digits", out=tmp_path / "a", **small)
    assert done.values["folder"] == str(tmp_path / "a")
    assert vitascope.load(tmp_path / "a").classes


def digits_as(kind):
    """The digits' test images in each form that Python users have them in."""
    images = vitascope.data.load("digits").test
    pixels = images.pixels(np.arange(len(images)))
    labels = torch.from_numpy(images.labels)
    scaled = pixels.float() / 255
    loader = torch.utils.data.TensorDataset(scaled, labels)
    return {
        "bytes": [(pixels, labels)],
        "numbers": [(scaled, labels)],
        "loader": torch.utils.data.DataLoader(loader, batch_size=50),
        "generator": ((scaled[i : i + 99], labels[i : i + 99]) for i in range(0, len(labels), 99)),
    }[kind]


@pytest.mark.parametrize("kind", ["bytes", "numbers", "loader", "generator"])
def test_images_in_memory_are_measured_as_those_of_a_source(run, kind):
    wanted = vitascope.evaluate(run, quiet=True).values
    found = vitascope.evaluate(run, data=digits_as(kind), quiet=True).values
    assert found["num_images"] == wanted["num_images"] == 359
    for name in ("top1", "top5", "nll", "ece"):
        assert found[name] == pytest.approx(wanted[name])


def test_inspect_takes_images_without_labels(run):
    pixels = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    result = vitascope.inspect(run, data=pixels, measures="entropy", quiet=True)
    assert result.table().shape[0] == 1  # one layer
    with pytest.raises(UserError, match="no labels"):
        vitascope.evaluate(run, data=pixels, quiet=True)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (3, "a source's name, a tensor"),
        ([], "no images"),
        (torch.rand(2, 8), r"not \(2, 8\)"),
        (torch.full((2, 1, 8, 8), 2.0), "Normalize out"),
        (torch.full((2, 1, 8, 8), float("nan")), "numbers from 0 to 1"),
        (["a", "b"], "not str"),
    ],
)
def test_what_are_no_images_is_refused(run, data, says):
    with pytest.raises(UserError, match=says):
        vitascope.inspect(run, data=data, measures="entropy", quiet=True)


def test_predict_takes_one_file_a_folder_pictures_and_tensors(run, files):
    wanted = vitascope.predict(run, files)
    (one,) = vitascope.predict(run, str(files[0]))
    assert (one.file, one.label) == (wanted[0].file, wanted[0].label)
    assert one.probability == pytest.approx(wanted[0].probability)  # a batch rounds otherwise
    assert vitascope.predict(run, files[0].parent) == wanted
    answers = [(each.label, each.probability) for each in wanted]
    pictures = [Image.open(path) for path in files]
    tensor = torch.stack([torch.from_numpy(np.array(each))[None] for each in pictures])
    loader = DataLoader(TensorDataset(tensor, torch.zeros(len(files))), batch_size=2)
    for images in (pictures, tensor, loader):
        found = vitascope.predict(run, images)
        assert [str(each.file) for each in found] == list("01234")
        assert [each.label for each in found] == [label for label, _ in answers]
        assert [each.probability for each in found] == pytest.approx([p for _, p in answers])


def test_a_model_built_for_another_size_gets_images_of_that_size():
    model = vitascope.create_model("vit_micro", num_classes=10, img_size=16, in_chans=1)
    found = vitascope.inspect(model, data="digits", measures="entropy", images=4, quiet=True)
    assert set(found.table()["measure"]) == {"entropy"}


def test_a_result_has_its_run_and_its_table(tmp_path, files):
    trained = vitascope.train(
        "vit_micro", data="digits", epochs=2, out=tmp_path / "run", no_tracking=True, quiet=True
    )
    assert trained.best == "vit_micro"
    assert trained.table()["epoch"].tolist() == [1, 2]
    assert trained.predict(files) == vitascope.predict(tmp_path / "run", files)
    inside = vitascope.inspect(tmp_path / "run", measures="gates,entropy", quiet=True)
    assert set(inside.table()["measure"]) == {"entropy"}  # a plain ViT has no gates
    with pytest.raises(UserError, match="no trained model"):
        inside.predict(files)
    random = vitascope.inspect("vit_micro", data="digits", images=8, measures="entropy", quiet=True)
    assert "random weights" in repr(random)


def test_the_names_of_the_package_are_those_for_users():
    names = dir(vitascope)
    assert {"compare", "inspect", "show", "predict", "capture", "measure", "stats"} <= set(names)
    assert not {"Any", "TYPE_CHECKING", "import_module"} & set(names)
    assert all(getattr(vitascope, name) is not None for name in names)
