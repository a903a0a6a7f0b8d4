"""A trained run in use: predictions as a file, other formats that give the same logits, the hub."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

import vitascope
from commands import short_run
from vitascope.commands import main
from vitascope.deploy import export as exporting
from vitascope.deploy.export import KEY, export
from vitascope.deploy.hub import HubModel
from vitascope.deploy.prediction import temperature_of
from vitascope.errors import UserError
from vitascope.record import Record, load_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on the digits."""
    return short_run(tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with images of three sizes in two folders."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name, side in (("a/1.png", 8), ("a/2.jpg", 20), ("b/3.png", 13)):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(folder / name)
    return folder


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_predict_writes_the_likeliest_class_of_every_file(run, photos, tmp_path):
    out = tmp_path / "answers.csv"
    words = ["predict", str(run), str(photos), "--out", str(out), "--top", "3", "--quiet"]
    assert main(words) == 0
    rows = rows_of(out)
    assert list(rows[0])[:5] == ["file", "label", "probability", "label_2", "probability_2"]
    assert [Path(row["file"]).name for row in rows] == ["1.png", "2.jpg", "3.png"]
    loaded = vitascope.load(run)
    for row in rows:
        logits = loaded.model(loaded.transform(row["file"])[None])[0].detach()
        shares = logits.softmax(-1)
        assert row["label"] == loaded.classes[int(logits.argmax())]
        assert float(row["probability"]) == pytest.approx(float(shares.max()), abs=1e-5)
        assert float(row["probability_2"]) == pytest.approx(float(shares.sort()[0][-2]), abs=1e-5)


def test_a_temperature_changes_how_sure_but_not_what(run, photos, tmp_path, capsys):
    scaling = {"temperature": 4.0}
    kept = Record(kind="calibration", values={"scaling": scaling}).save(tmp_path / "calibration")
    found = {}
    for given in ("1", "4", str(kept)):
        assert main(["predict", str(run), str(photos), "--temperature", given, "--json"]) == 0
        found[given] = json.loads(capsys.readouterr().out)["answers"]
    one, four, recorded = found.values()
    assert [each["label"] for each in one] == [each["label"] for each in four]
    assert all(a["probability"] > b["probability"] for a, b in zip(one, four, strict=True))
    assert recorded == four


def test_a_temperature_is_a_number_above_0_or_a_record_of_calibration(tmp_path):
    Record(kind="gates").save(tmp_path / "gates")
    for wrong in ("0", "-1", "nan", str(tmp_path / "gates.json"), str(tmp_path / "none.json")):
        with pytest.raises(UserError):
            temperature_of(wrong)


def test_a_file_that_cannot_be_read_is_named_and_left_out(run, photos, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"no image")
    words = ["predict", str(run), str(tmp_path / "broken.png")]
    assert main([*words, str(photos), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["answers"]) == 3
    assert [Path(name).name for name in told["left_out"]] == ["broken.png"]
    out = tmp_path / "no.csv"
    assert main([*words, "--out", str(out)]) == 2  # nothing is left
    assert "none of 1 files can be read" in capsys.readouterr().err
    assert not out.exists()


def test_predict_refuses_what_is_not_there(run, tmp_path, capsys):
    assert main(["predict", str(run), str(tmp_path / "none")]) == 2
    assert main(["predict", str(run), str(tmp_path)]) == 2
    assert "no images in" in capsys.readouterr().err


def test_safetensors_hold_the_weights_and_say_how_images_are_prepared(run, tmp_path):
    done = export(run, "safetensors", tmp_path / "a.safetensors")
    loaded = vitascope.load(run)
    with safe_open(done.path, framework="pt") as file:
        about = json.loads(file.metadata()[KEY])
        for name, value in loaded.model.state_dict().items():
            torch.testing.assert_close(file.get_tensor(name), value, rtol=0, atol=0)
    assert about["classes"] == list(loaded.classes)
    assert about["size"] == [1, 8, 8]
    assert about["mean"] == list(loaded.preprocessing.mean)
    assert about["std"] == list(loaded.preprocessing.std)
    assert (about["interpolation"], about["crop_pct"]) == ("bicubic", 1.0)


def test_onnx_gives_the_logits_of_the_run_for_any_number_of_images(run, tmp_path, capsys):
    import onnxruntime  # slow to import

    out = tmp_path / "a.onnx"
    assert main(["export", str(run), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["difference"] < 1e-5
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
    loaded = vitascope.load(run)
    assert about == {**told["preprocessing"], "classes": list(loaded.classes)}
    images = torch.randn(5, 1, 8, 8)
    (found,) = session.run(None, {"images": images.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, loaded.model(images).numpy(), atol=1e-5)


def test_a_file_whose_logits_differ_is_not_written(run, tmp_path, monkeypatch):
    def wrong(loaded, about, path):
        path.write_bytes(b"x")
        return lambda images: loaded.model(images).detach().numpy() + 1

    monkeypatch.setitem(exporting._FORMS, "safetensors", wrong)
    with pytest.raises(UserError, match="logits differ"):
        export(run, "safetensors", tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_model_on_the_hub_is_the_run_with_its_classes_and_card(run, photos, tmp_path):
    assert main(["export", str(run), "--to", "hub", "--out", str(tmp_path / "hub")]) == 0
    again = HubModel.from_pretrained(tmp_path / "hub")
    loaded = vitascope.load(run)
    assert again.classes == loaded.classes
    image = again.transform(photos / "a" / "2.jpg")
    torch.testing.assert_close(image, loaded.transform(photos / "a" / "2.jpg"))
    with torch.no_grad():
        torch.testing.assert_close(again(image[None]), loaded.model(image[None]))
    card = (tmp_path / "hub" / "README.md").read_text()
    top1 = json.loads((run / "record.json").read_text())["values"]["final"]["top1"]
    tested = load_config(run)["data"]["test_images"]
    assert f"| top-1 | {100 * top1:.2f} % of {tested} test images |" in card
    assert "library_name: vitascope" in card


def test_a_model_is_pushed_with_weights_config_and_card(run, tmp_path, monkeypatch):
    class Hub:
        """Keeps what is uploaded in a local folder."""

        def __init__(self, token=None):
            pass

        def create_repo(self, repo_id, **how):
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, repo_id, folder_path, **how):
            shutil.copytree(folder_path, tmp_path / repo_id)

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    model = HubModel.of_run(run)
    model.push_to_hub("me/model")
    pushed = tmp_path / "me" / "model"
    names = ["README.md", "config.json", "model.safetensors"]
    assert sorted(file.name for file in pushed.iterdir()) == names
    assert "top-1" in (pushed / "README.md").read_text()
    images = torch.zeros(1, *vitascope.load(run).input_size())
    with torch.no_grad():
        torch.testing.assert_close(HubModel.from_pretrained(pushed)(images), model(images))


def test_a_hub_folder_that_lacks_a_tensor_is_refused(run, tmp_path):
    model = HubModel.of_run(run)
    del model.network.head
    model.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="head"):
        HubModel.from_pretrained(tmp_path)


def test_a_file_with_other_names_in_the_same_order_is_exported_by_order(tmp_path):
    import timm

    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=5).eval()
    theirs = {f"layer_{i}": v for i, v in enumerate(model.state_dict().values()) if v.ndim}
    torch.save(theirs, tmp_path / "theirs.pth")
    source = f"test_resnet@{tmp_path / 'theirs.pth'}"
    with pytest.raises(UserError, match="does not fit"):
        export(source, "safetensors", tmp_path / "a.safetensors")
    done = export(source, "safetensors", tmp_path / "a.safetensors", by_order=True)
    loaded = vitascope.load(f"test_resnet@{done.path}")
    images = torch.randn(2, *loaded.input_size(), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(images), model(images))
    theirs["layer_0"] = theirs["layer_0"][:, :1]
    torch.save(theirs, tmp_path / "theirs.pth")
    with pytest.raises(UserError, match="layer_0 is"):
        export(source, "safetensors", tmp_path / "b.safetensors", by_order=True)
    assert not (tmp_path / "b.safetensors").exists()
