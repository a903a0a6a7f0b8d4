"""Every source, on files made here, and every mistake one can make with it."""

import gzip
import json
import pickle
import subprocess
import sys
import tarfile

import datasets
import numpy as np
import pytest
import torch
import webdataset
from PIL import Image
from sklearn.datasets import load_digits

from data_making import photo, photos, write_folder
from vitascope.data import FileImages, MemoryImages, Subset, load, memory, subset
from vitascope.data.dataset import pixel_statistics
from vitascope.data.sources import archives
from vitascope.data.sources.archives import digits
from vitascope.data.sources.folder import list_files
from vitascope.data.sources.imagenet import synsets
from vitascope.errors import UserError


def everything(images):
    return images.pixels(np.arange(len(images)))


def stack(paths):
    arrays = [np.array(Image.open(p).convert("RGB")) for p in paths]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)


def test_settings_cost_no_torch():
    code = "from vitascope.data import Augmentation, Subset, augment; augment.deit(); import sys; "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- digits


def test_digits_are_those_of_scikit_learn():
    found, theirs = digits(), load_digits()
    images = everything(found)[:, 0].double() * (16 / 255)
    torch.testing.assert_close(images, torch.from_numpy(theirs.images), atol=0.04, rtol=0)
    assert list(found.labels) == theirs.target.tolist()
    assert list(found.classes) == [str(name) for name in theirs.target_names]


def test_digits_are_stretched_to_the_whole_range():
    found = load("digits")
    assert found.train.size == (1, 8, 8)
    assert found.classes == tuple("0123456789")
    pixels = everything(found.train)
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert found.mean[0] == pytest.approx(pixels.double().mean().item() / 255)
    assert found.std[0] == pytest.approx((pixels.double() / 255).std(unbiased=False).item())


def test_digits_come_in_any_size_and_colour():
    digits = load("digits", image_size=16, in_chans=3)
    assert digits.train.size == digits.test.size == (3, 16, 16)
    assert len(digits.mean) == len(digits.std) == 3
    assert everything(digits.test).shape == (len(digits.test), 3, 16, 16)


# --- folders


def test_a_flat_folder_is_split_and_its_classes_sorted(tmp_path):
    write_folder(tmp_path, ["zebra", "ant"], count=10)
    found = load(str(tmp_path))
    assert found.classes == ("ant", "zebra")
    assert (len(found.train), len(found.test)) == (16, 4)
    assert np.bincount(found.test.labels).tolist() == [2, 2]
    assert isinstance(found.train, MemoryImages)
    assert found.flips
    paths = sorted((tmp_path / "ant").iterdir()) + sorted((tmp_path / "zebra").iterdir())
    have = {p.numpy().tobytes() for p in [*everything(found.train), *everything(found.test)]}
    assert have == {p.numpy().tobytes() for p in stack(paths)}


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_a_folder_with_its_own_test_set_keeps_it(tmp_path, test_name):
    write_folder(tmp_path / "train", ["a", "b"], count=4)
    write_folder(tmp_path / test_name, ["b"], count=3)
    found = load(str(tmp_path))
    assert (len(found.train), len(found.test)) == (8, 3)
    assert found.test.labels.tolist() == [1, 1, 1]
    assert found.notes == ()
    paths = sorted((tmp_path / test_name / "b").iterdir())
    assert torch.equal(everything(found.test), stack(paths))


def test_grey_images_have_one_channel(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(4):
        photo(i, mode="L").save(tmp_path / "a" / f"{i}.png")
    assert load(str(tmp_path)).train.size == (1, 12, 12)
    assert load(str(tmp_path), in_chans=3).train.size == (3, 12, 12)


def test_oblong_images_are_cut_to_the_centre(tmp_path):
    write_folder(tmp_path, ["a", "b"], count=4, size=(24, 12))
    found = load(str(tmp_path), image_size=12)
    assert found.train.size == (3, 12, 12)
    assert "resized the shorter side to 12 and kept the centre" in found.notes
    first = found.train.pixels([0])[0]
    centres = stack(sorted((tmp_path / "a").iterdir()))[..., 6:18]
    assert any(torch.equal(first, centre) for centre in centres)


def test_images_beyond_the_memory_limit_stay_on_disk(tmp_path, monkeypatch):
    write_folder(tmp_path, ["a", "b"], count=4)
    whole = load(str(tmp_path))
    monkeypatch.setattr(memory, "MEMORY_LIMIT", 1000)
    found = load(str(tmp_path))
    assert isinstance(found.train, FileImages)
    assert torch.equal(everything(found.train), everything(whole.train))
    assert found.mean == pytest.approx(whole.mean)


def test_many_images_are_decoded_by_processes_alike(tmp_path, monkeypatch):
    write_folder(tmp_path, ["a", "b"], count=4)
    alone = load(str(tmp_path))
    monkeypatch.setattr(memory, "WORTH_WORKERS", 1)
    assert torch.equal(everything(load(str(tmp_path)).train), everything(alone.train))


def test_a_file_cut_short_does_not_stop_a_set_that_stays_on_disk(tmp_path, monkeypatch):
    write_folder(tmp_path, ["a", "b"], count=5)
    whole = tmp_path / "a" / "01.png"
    whole.write_bytes(whole.read_bytes()[:150])
    monkeypatch.setattr(memory, "MEMORY_LIMIT", 1000)
    with pytest.warns(UserWarning, match="skipped broken image .*01.png"):
        found = load(str(tmp_path), test_fraction=0.2)
    assert len(found.train) + len(found.test) == 10


def test_the_statistics_of_many_files_are_an_estimate_with_a_note(tmp_path):
    write_folder(tmp_path, ["a", "b"], count=5)
    files = list_files(tmp_path).of_size(3, 12, 12)
    exact, estimate = pixel_statistics(files), pixel_statistics(files, most=8)
    pixels = everything(files).double() / 255
    assert exact[0] == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist())
    assert exact[1] == pytest.approx(pixels.std(dim=(0, 2, 3), unbiased=False).tolist())
    assert exact[2] is None
    assert estimate[0] == pytest.approx(exact[0], abs=0.1)
    assert estimate[2] == "mean and deviation estimated from 8 of 10 training images"


@pytest.mark.parametrize("cut", [0, 20, 150])
def test_a_broken_image_is_named_in_notes_and_warnings_and_skipped(tmp_path, cut):
    write_folder(tmp_path, ["a", "b"], count=5)
    broken = tmp_path / "b" / "03.png"
    broken.write_bytes(broken.read_bytes()[:cut])
    with pytest.warns(UserWarning, match="skipped broken image") as caught:
        found = load(str(tmp_path))
    assert len(caught) == 1
    assert found.notes[0].startswith(f"skipped broken image {broken}: it")
    assert len(found.train) + len(found.test) == 9


@pytest.mark.filterwarnings("ignore:skipped broken")
def test_a_class_of_broken_images_is_refused(tmp_path):
    write_folder(tmp_path, ["a", "b"], count=2)
    for path in (tmp_path / "b").iterdir():
        path.write_bytes(b"not an image")
    with pytest.raises(UserError, match="no image of class 'b' can be read"):
        load(str(tmp_path))


def test_an_empty_class_folder_is_named(tmp_path):
    write_folder(tmp_path, ["a", "b"])
    (tmp_path / "cats").mkdir()
    with pytest.raises(UserError, match="no images in class folder 'cats'"):
        load(str(tmp_path))


def test_a_folder_without_classes_says_how_to_lay_it_out(tmp_path):
    photo(0).save(tmp_path / "1.png")
    with pytest.raises(UserError, match="1 images but no folders.*cats/1.jpg"):
        load(str(tmp_path))


def test_a_test_class_that_was_not_trained_is_named(tmp_path):
    write_folder(tmp_path / "train", ["a", "b"])
    write_folder(tmp_path / "test", ["a", "q"])
    with pytest.raises(UserError, match="not among the 2 classes: q"):
        load(str(tmp_path))


def test_images_of_many_sizes_need_a_size(tmp_path):
    write_folder(tmp_path, ["a"])
    photo(0, 9, 9).save(tmp_path / "a" / "other.png")
    with pytest.raises(UserError, match="2 different sizes .9 x 9, 12 x 12.*give image_size"):
        load(str(tmp_path))


def test_oblong_images_need_a_size(tmp_path):
    write_folder(tmp_path, ["a", "b"], size=(24, 12))
    with pytest.raises(UserError, match="24 x 12 pixels; give image_size"):
        load(str(tmp_path))


def test_a_path_that_is_not_there_says_up_to_where_it_is(tmp_path):
    with pytest.raises(UserError, match=f"no folder at .*; {tmp_path} exists"):
        load(str(tmp_path / "not" / "here"))


def test_a_file_is_not_a_folder(tmp_path):
    photo(0).save(tmp_path / "1.png")
    with pytest.raises(UserError, match="is a file"):
        load(str(tmp_path / "1.png"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("digit", "unknown data source 'digit'; did you mean 'digits'"),
        ("cifar1", "did you mean 'cifar10'"),
        ("idx:", "needs something after the colon"),
        ("cifar10", "needs something after the colon"),
        ("nonsense", "there are: cifar10, .*path of a folder"),
    ],
)
def test_an_unknown_source_is_told_what_there_is(source, message):
    with pytest.raises(UserError, match=message):
        load(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_chans": 2}, "in_chans 2"),
        ({"image_size": 0}, "image_size 0"),
        ({"test_fraction": 1.5}, "test_fraction 1.5"),
    ],
)
def test_an_impossible_form_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        load("digits", **options)


def test_a_label_out_of_range_is_named():
    with pytest.raises(UserError, match="label 2 of image 1 is out of range; with 2 classes"):
        MemoryImages(photos(2), [0, 2], ["a", "b"])


# --- CIFAR


def write_cifar(root, kind, labels_key, names_key, files, per_file=10):
    root.mkdir()
    rng = np.random.default_rng(0)
    for name in files:
        entry = {
            "data": rng.integers(0, 256, (per_file, 3072), dtype=np.uint8),
            labels_key: [i % (10 if kind == "cifar10" else 100) for i in range(per_file)],
        }
        (root / name).write_bytes(pickle.dumps(entry, protocol=2))
    meta = "batches.meta" if kind == "cifar10" else "meta"
    names = [f"name{i}" for i in range(10 if kind == "cifar10" else 100)]
    (root / meta).write_bytes(pickle.dumps({names_key: names}, protocol=2))
    return root


@pytest.fixture
def cifar10(tmp_path):
    files = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return write_cifar(tmp_path / "cifar-10-batches-py", "cifar10", "labels", "label_names", files)


def test_cifar10_is_read_from_its_folder_and_from_its_archive(cifar10):
    found = load(f"cifar10:{cifar10}")
    assert (len(found.train), len(found.test), len(found.classes)) == (50, 10, 10)
    first = pickle.loads((cifar10 / "data_batch_1").read_bytes())["data"]
    assert everything(found.train)[3].flatten().tolist() == first[3].tolist()
    archive = cifar10.parent / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(cifar10, arcname=cifar10.name)
    packed = load(f"cifar10:{archive}")
    assert torch.equal(everything(packed.train), everything(found.train))
    assert packed.flips


def test_cifar100_has_its_fine_labels(tmp_path):
    root = write_cifar(
        tmp_path / "c", "cifar100", "fine_labels", "fine_label_names", ["train", "test"], 100
    )
    found = load(f"cifar100:{root}", image_size=16, in_chans=1)
    assert found.train.size == (1, 16, 16)
    assert len(found.classes) == 100
    assert found.train.labels.tolist() == list(range(100))


def test_an_archive_that_would_run_code_is_not_read(cifar10):
    class Trap:
        def __reduce__(self):
            return (print, ("ran",))

    (cifar10 / "test_batch").write_bytes(pickle.dumps({"data": Trap()}))
    with pytest.raises(UserError, match=r"asks for builtins.print"):
        load(f"cifar10:{cifar10}")


def test_a_missing_or_damaged_cifar_file_is_named(cifar10):
    whole = (cifar10 / "data_batch_3").read_bytes()
    (cifar10 / "data_batch_3").write_bytes(whole[:100])
    with pytest.raises(UserError, match="data_batch_3 in .* is damaged"):
        load(f"cifar10:{cifar10}")
    (cifar10 / "data_batch_3").unlink()
    with pytest.raises(UserError, match="has no file 'data_batch_3'"):
        load(f"cifar10:{cifar10}")
    with pytest.raises(UserError, match="no folder or archive at"):
        load(f"cifar10:{cifar10 / 'x'}")
    (cifar10.parent / "c.tar.gz").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a whole tar archive"):
        load(f"cifar10:{cifar10.parent / 'c.tar.gz'}")


# --- idx


def write_idx(root, packed):
    root.mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            raw = head + array.tobytes()
            path = root / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(raw) if packed else raw)
    return root


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_are_read_packed_or_not(tmp_path, packed):
    found = load(f"idx:{write_idx(tmp_path / 'mnist', packed)}", image_size=32)
    assert (len(found.train), len(found.test)) == (20, 10)
    assert found.train.size == (1, 32, 32)
    assert found.train.labels.tolist() == [i % 10 for i in range(20)]
    assert not found.flips
    plain = load(f"idx:{tmp_path / 'mnist'}")
    first = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    assert torch.equal(everything(plain.train)[:, 0], torch.from_numpy(first))


def test_fashion_mnist_is_found_where_debian_puts_it_and_may_be_mirrored(tmp_path, monkeypatch):
    home = write_idx(tmp_path / "fashion", packed=True)
    assert archives.fashion_mnist_folder((str(tmp_path / "no"), str(home))) == str(home)
    found = load(f"idx:{home}")
    assert found.classes[9] == "Ankle boot"
    assert found.flips
    with pytest.raises(UserError, match="apt install dataset-fashion-mnist"):
        archives.fashion_mnist_folder((str(tmp_path / "no"),))


def test_a_damaged_or_missing_idx_file_is_named(tmp_path):
    root = write_idx(tmp_path / "mnist", packed=False)
    path = root / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte is not a whole idx file"):
        load(f"idx:{root}")
    path.unlink()
    with pytest.raises(UserError, match="no t10k-images-idx3-ubyte nor"):
        load(f"idx:{root}")


# --- Hugging Face


def table(count):
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["x", "y"])}
    )
    rows = {"img": [photo(i) for i in range(count)], "label": [i % 2 for i in range(count)]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_hugging_face_folder_is_read_with_its_splits(tmp_path):
    datasets.DatasetDict({"train": table(6), "validation": table(4)}).save_to_disk(str(tmp_path))
    found = load(f"hf:{tmp_path}")
    assert (len(found.train), len(found.test), found.classes) == (6, 4, ("x", "y"))
    assert torch.equal(everything(found.train), photos(6))


def test_a_hugging_face_table_without_a_test_set_is_split(tmp_path, monkeypatch):
    table(10).save_to_disk(str(tmp_path))
    monkeypatch.setattr(memory, "MEMORY_LIMIT", 100)
    found = load(f"hf:{tmp_path}", image_size=8)
    assert (len(found.train), len(found.test)) == (8, 2)
    assert isinstance(found.train, FileImages)
    assert everything(found.train).shape == (8, 3, 8, 8)


def test_a_hugging_face_folder_that_cannot_be_used_is_explained(tmp_path, monkeypatch):
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(str(tmp_path / "text"))
    with pytest.raises(UserError, match="columns text; one must be an Image"):
        load(f"hf:{tmp_path / 'text'}")
    with pytest.raises(UserError, match="not written by save_to_disk"):
        load(f"hf:{write_folder(tmp_path / 'folders', ['a'])}")
    datasets.DatasetDict({"test": table(2)}).save_to_disk(str(tmp_path / "only"))
    with pytest.raises(UserError, match="splits test; one must be called 'train'"):
        load(f"hf:{tmp_path / 'only'}")


def test_a_data_set_that_the_hub_cannot_give_is_named(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="no data set 'nobody/nothing' on disk, nor from the hub"):
        load("hf:nobody/nothing")


@pytest.mark.parametrize(
    ("module", "source", "extra"),
    [("datasets", "hf:x", "hub"), ("webdataset.shardlists", "wds:x.tar", "shards")],
)
def test_a_missing_library_names_the_extra(monkeypatch, module, source, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install 'vitascope\[{extra}\]"):
        load(source)


# --- shards


def write_shard(path, first, count, label=lambda i: i % 3):
    with webdataset.TarWriter(str(path)) as sink:
        for i in range(first, first + count):
            sample = {"__key__": f"{i:04d}", "png": photo(i)}
            sink.write(sample if label is None else {**sample, "cls": label(i)})


def test_shards_are_indexed_and_any_image_is_found(tmp_path):
    write_shard(tmp_path / "train-000.tar", 0, 9)
    write_shard(tmp_path / "train-001.tar", 9, 9)
    write_shard(tmp_path / "val-000.tar", 100, 3)
    source = f"wds:{tmp_path}/train-{{000..001}}.tar?test={tmp_path}/val-*.tar"
    found = load(source)
    assert (len(found.train), len(found.test), found.classes) == (18, 3, ("0", "1", "2"))
    assert torch.equal(everything(found.train), photos(18))
    assert found.train.labels.tolist() == [i % 3 for i in range(18)]
    assert len(subset(found.train, Subset(first_classes=2))) == 12


def test_shards_beyond_memory_are_read_in_place(tmp_path, monkeypatch):
    write_shard(tmp_path / "t.tar", 0, 9)
    monkeypatch.setattr(memory, "MEMORY_LIMIT", 100)
    found = load(f"wds:{tmp_path}/t.tar", test_fraction=0.34)
    assert isinstance(found.train, FileImages)
    assert (len(found.train), len(found.test)) == (6, 3)
    pixels = photos(9)
    order = [int(item[1][:4]) for item in found.train.items]
    assert torch.equal(everything(found.train), pixels[order])


def test_a_shard_that_cannot_be_used_is_explained(tmp_path):
    write_shard(tmp_path / "alone.tar", 0, 2, label=None)
    with pytest.raises(UserError, match="0000 has no .cls or .json"):
        load(f"wds:{tmp_path}/alone.tar")
    write_shard(tmp_path / "words.tar", 0, 2, label=lambda i: "cat")
    with pytest.raises(UserError, match="b'cat'; it must be a whole number"):
        load(f"wds:{tmp_path}/words.tar")
    (tmp_path / "broken.tar").write_bytes(b"x" * 2000)
    with pytest.raises(UserError, match="not a whole, unpacked tar"):
        load(f"wds:{tmp_path}/broken.tar")
    with pytest.raises(UserError, match="no shard at"):
        load(f"wds:{tmp_path}/none-{{0..3}}.tar")
    for elsewhere in ("s3://somewhere/train-000.tar", "pipe:touch here"):
        with pytest.raises(UserError, match="nor behind http.*commands are not run"):
            load(f"wds:{elsewhere}")


# --- ImageNet


def test_imagenet_folders_of_a_few_synsets_know_their_outputs(tmp_path):
    names = [synsets()[i] for i in (7, 3, 500)]
    write_folder(tmp_path / "train", names, count=2, size=(40, 30), suffix="JPEG")
    write_folder(tmp_path / "val", names, count=1, size=(40, 30), suffix="JPEG")
    found = load(f"imagenet:{tmp_path}", image_size=16)
    assert isinstance(found.train, FileImages)
    assert found.classes == tuple(sorted(names))
    assert found.class_map.tolist() == [3, 7, 500]
    assert found.mean == (0.485, 0.456, 0.406)
    assert found.train.crop_pct == 0.875
    assert everything(found.test).shape == (3, 3, 16, 16)
    alone = load(f"imagenet:{tmp_path / 'val'}")
    assert (len(alone.train), len(alone.test)) == (0, 3)
    assert alone.test.size == (3, 224, 224)
    with pytest.raises(UserError, match="cats: not among ImageNet's 1000 synsets"):
        load(f"imagenet:{write_folder(tmp_path / 'other', ['cats'])}")


def test_imagenet_100_is_the_first_hundred_synsets_by_name():
    images = MemoryImages(photos(8), [0, 5, 99, 100, 500, 999, 99, 0], synsets())
    hundred = subset(images, Subset(first_classes=100))
    assert hundred.labels.tolist() == [0, 5, 99, 99, 0]
    assert hundred.classes == synsets()[:100]


def test_the_folders_of_imagenet_v2_are_numbers_not_names(tmp_path):
    write_folder(tmp_path, ["0", "2", "10", "999"], count=1)
    found = load(f"imagenet-v2:{tmp_path}", image_size=8)
    assert sorted(found.test.labels.tolist()) == [0, 2, 10, 999]
    assert [int(p.parent.name) for p in found.test.items] == found.test.labels.tolist()
    assert found.classes == synsets()
    assert found.class_map is None
    with pytest.raises(UserError, match="folder 'cats'; ImageNet-V2 has folders 0 to 999"):
        load(f"imagenet-v2:{write_folder(tmp_path / 'x', ['cats']).parent / 'x'}")


def test_imagenet_a_keeps_two_hundred_of_the_outputs(tmp_path):
    write_folder(tmp_path, ["n01498041", "n12267677"], count=2)
    found = load(f"imagenet-a:{tmp_path}", image_size=8)
    assert len(found.classes) == len(found.class_map) == 200
    assert (np.diff(found.class_map) > 0).all()
    assert [synsets()[i] for i in found.class_map] == list(found.classes)
    assert {found.classes[i] for i in found.test.labels} == {"n01498041", "n12267677"}


def test_imagenet_real_leaves_out_images_without_a_label(tmp_path):
    for i in range(1, 5):
        photo(i).save(tmp_path / f"ILSVRC2012_val_{i:08d}.JPEG")
    labels = tmp_path / "real.json"
    labels.write_text(json.dumps([[5], [], [7, 2], [0]]))
    found = load(f"imagenet-real:{tmp_path}?labels={labels}", image_size=8)
    assert [p.stem[-1] for p in found.test.items] == ["1", "3", "4"]
    assert found.label_sets == (frozenset({5}), frozenset({2, 7}), frozenset({0}))
    assert found.notes[0] == "left out 1 of 4 images that have no label"
    shipped = load(f"imagenet-real:{tmp_path}", image_size=8)
    assert len(shipped.label_sets) == len(shipped.test)
    photo(9).save(tmp_path / "ILSVRC2012_val_00000009.JPEG")
    with pytest.raises(UserError, match="00000009.JPEG has no entry among the 4"):
        load(f"imagenet-real:{tmp_path}?labels={labels}")
    with pytest.raises(UserError, match="unknown option 'x=1'"):
        load(f"imagenet-real:{tmp_path}?x=1")
    with pytest.raises(UserError, match="no image called ILSVRC2012"):
        load(f"imagenet-real:{write_folder(tmp_path / 'other', ['a'])}")
