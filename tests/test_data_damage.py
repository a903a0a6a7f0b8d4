"""Archives, shards and tables that are damaged, cut short, or far larger than they look."""

import gzip
import io
import pickle
import tarfile

import datasets
import numpy as np
import pytest
import webdataset

from data_making import little_memory, no_waiting, numbered, photo, write_folder
from vitascope.commands import main
from vitascope.data import FileImages, Subset, TrainBatches, augment, load, memory, subset
from vitascope.data.images import MOST_CLASSES, MemoryImages, class_numbers
from vitascope.data.sources import archives
from vitascope.data.sources.corrupted import corrupted_sets
from vitascope.errors import UserError


def refused(source, words):
    """The one line that a source is refused with."""
    with no_waiting(), pytest.raises(UserError, match=words) as caught:
        load(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def one_line_or_nothing(source):
    """Whether a damaged source is refused, in one line; or it was not noticed, and that is fine."""
    try:
        load(source)
    except UserError as error:
        return "\n" not in str(error)
    return True


def mutations(raw, count, seed=0):
    """The bytes with a few of them changed, and often cut."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        changed = bytearray(raw)
        for place in rng.integers(0, len(raw), rng.integers(1, 8)):
            changed[place] = rng.integers(256)
        yield bytes(changed[: rng.integers(1, len(raw))]) if number % 3 == 0 else bytes(changed)


# --- shards


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "t.tar"
    with webdataset.TarWriter(str(path)) as sink:
        for i in range(20):
            sink.write({"__key__": f"{i:04d}", "png": photo(i), "cls": i % 2})
    return path


def boundaries(path):
    with tarfile.open(path) as shard:
        return [member.offset for member in shard]


@pytest.mark.parametrize("beyond", [0, 100, 512, 700])
def test_a_shard_that_is_cut_short_is_refused_wherever_it_was_cut(shard, beyond):
    whole, cut = shard.read_bytes(), boundaries(shard)[24]
    shard.write_bytes(whole[: cut + beyond])
    assert str(shard) in refused(f"wds:{shard}", "is cut short or damaged|not a whole")


def test_a_shard_with_a_damaged_header_inside_is_refused(shard):
    raw = bytearray(shard.read_bytes())
    raw[boundaries(shard)[24] + 150] ^= 0xFF  # in the checksum
    shard.write_bytes(bytes(raw))
    refused(f"wds:{shard}", r"t.tar is cut short or damaged: only 12 images can be found")


def test_shards_joined_into_one_file_are_refused(shard):
    shard.write_bytes(shard.read_bytes() * 2)
    refused(f"wds:{shard}", "only 20 images can be found")


def test_a_whole_shard_may_be_padded_with_zeros(shard):
    shard.write_bytes(shard.read_bytes() + bytes(10_240))
    found = load(f"wds:{shard}")
    assert len(found.train) + len(found.test) == 20


@pytest.mark.filterwarnings("ignore")
def test_mutated_shards_are_refused_in_one_line(shard):
    for raw in mutations(shard.read_bytes(), 25):
        shard.write_bytes(raw)
        assert one_line_or_nothing(f"wds:{shard}")


def renumbered(header, size):
    """A header of a tar member with another length, and a checksum that fits."""
    header = bytearray(header)
    header[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_a_shard_whose_member_ends_before_it_begins_is_refused(shard):
    raw, place = shard.read_bytes(), boundaries(shard)[24]
    member = renumbered(raw[place : place + 512], -512)  # the next header would be this one again
    shard.write_bytes(raw[:place] + member + raw[place + 512 :])
    refused(f"wds:{shard}", "a member of -512 bytes that cannot be")


def test_so_is_one_whose_attributes_say_so(tmp_path):
    with tarfile.open(tmp_path / "t.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("readme"))
        member = tarfile.TarInfo("0.png")
        member.pax_headers = {"size": "-1536"}  # back over attributes and header, to this member
        archive.addfile(member)
    refused(f"wds:{tmp_path}/t.tar", "'0.png' ends before it begins")


def test_a_name_of_many_megabytes_is_not_read(tmp_path):
    path = tmp_path / "c.tar.gz"
    member = tarfile.TarInfo("long")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**30
    path.write_bytes(bomb(member.tobuf(), 1025))
    with little_memory(300):
        refused(f"cifar10:{path}", "a member of 1,073,741,824 bytes that cannot be")


def write_label(path, extension, label):
    with webdataset.TarWriter(str(path), encoder=False) as sink:
        stream = io.BytesIO()
        photo(0).save(stream, "PNG")
        sink.write({"__key__": "0", "png": stream.getvalue(), extension: label})


@pytest.mark.parametrize(
    ("extension", "label", "words"),
    [
        ("cls", b"3000000000", "label 3000000000 of wds:.* is too high.*at most 100,000"),
        ("cls", b"9" * 5000, "must be a whole number"),
        ("cls", b"9" * 30, "must be whole numbers"),
        ("json", b'{"label": 1e400}', "must be a whole number"),
        ("json", b'{"label": 1.5}', "must be a whole number"),
        ("json", b"[" * 100_000, "must be a whole number"),
        ("cls", b"-1", "label -1 of image 0 is out of range|no classes"),
    ],
)
def test_a_label_that_is_no_class_is_refused(tmp_path, extension, label, words):
    write_label(tmp_path / "t.tar", extension, label)
    with little_memory(300):
        refused(f"wds:{tmp_path}/t.tar", words)


def test_as_many_classes_as_are_taken_are_handled_at_once():
    with no_waiting(), little_memory(500):
        names = class_numbers([MOST_CLASSES - 1], "here")
        images = MemoryImages(numbered(3).pixels([0, 1, 2]), [0, 5, MOST_CLASSES - 1], names)
        assert len(subset(images, Subset(fraction=0.5))) == 3


# --- CIFAR


@pytest.fixture
def cifar10(tmp_path):
    root = tmp_path / "c"
    root.mkdir()
    entry = {"data": np.zeros((10, 3072), np.uint8), "labels": list(range(10))}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (root / name).write_bytes(pickle.dumps(entry, protocol=2))
    names = {"label_names": [str(i) for i in range(10)]}
    (root / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    return root


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("data_batch_2", [], "data_batch_2 in .* is damaged"),
        ("data_batch_2", {"data": 3, "labels": [1]}, "no table of bytes"),
        ("data_batch_2", {"data": np.zeros((2, 3072)), "labels": [1, 2]}, "no table of bytes"),
        ("data_batch_2", {"data": np.zeros((2, 9), np.uint8), "labels": [1, 2]}, "does not fit"),
        ("data_batch_2", {"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "does not fit"),
        ("data_batch_2", {"labels": [1]}, r"data_batch_2 in .* is damaged \('data'\)"),
        ("batches.meta", {"label_names": 7}, "no list of names"),
        (
            "test_batch",
            {"data": np.zeros((1, 3072), np.uint8), "labels": ["x"]},
            "must be whole numbers",
        ),
        ("test_batch", {"data": np.zeros((0, 3072), np.uint8), "labels": []}, "no images"),
    ],
)
def test_a_file_of_cifar_with_other_things_in_it_is_named(cifar10, name, entry, words):
    (cifar10 / name).write_bytes(pickle.dumps(entry, protocol=4))
    refused(f"cifar10:{cifar10}", words)


def test_a_pickle_that_numbers_what_it_does_not_hold_takes_no_memory(cifar10):
    (cifar10 / "test_batch").write_bytes(b"\x80\x02]r\xff\xff\xff\x07.")  # place 134,217,727
    with little_memory(300):
        refused(f"cifar10:{cifar10}", "test_batch in .* numbers more objects than it can hold")


def test_mutated_files_of_cifar_are_refused_in_one_line(cifar10):
    few = {"data": np.zeros((1, 3072), np.uint8), "labels": [0]}
    raw = pickle.dumps(few, protocol=2)
    with little_memory(2000):
        for changed in mutations(raw[:60] + raw[3000:], 60):
            (cifar10 / "test_batch").write_bytes(changed)
            assert one_line_or_nothing(f"cifar10:{cifar10}")


def test_an_archive_cut_short_or_with_a_giant_inside_is_refused(cifar10, monkeypatch):
    packed = cifar10.parent / "c.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(cifar10, arcname="c")
    raw = packed.read_bytes()
    packed.write_bytes(raw[: len(raw) // 2])
    refused(f"cifar10:{packed}", "not a whole tar archive")
    packed.write_bytes(raw)
    monkeypatch.setattr(archives, "MOST_FILE", 1000)
    refused(f"cifar10:{packed}", "more than 1,000 bytes")
    refused(f"cifar10:{cifar10}", "more than 1,000 bytes")


# --- idx


def idx_bytes(array, shape=None):
    shape = array.shape if shape is None else shape
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def mnist(tmp_path):
    for part in ("train", "t10k"):
        images = np.zeros((4, 5, 5), np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        labels = np.arange(4, dtype=np.uint8)
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(labels)))
    return tmp_path


def bomb(head, megabytes):
    """A gzip file that unpacks to zeros, and is never unpacked here."""
    return gzip.compress(head) + megabytes * gzip.compress(bytes(1 << 20))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((200_000, 200, 200), "200000 x 200 x 200 bytes; at most 1,073,741,824 are read"),
        ((4, 5, 5), "train-images-idx3-ubyte.gz is not a whole idx file"),
        ((2**32 - 1,) * 3, "at most 1,073,741,824"),
        ((0, 28, 28), "not a whole idx file"),
        ((1000, 1000, 1000), "not a whole idx file"),
    ],
)
def test_an_idx_file_is_unpacked_no_further_than_its_header_says(mnist, shape, words):
    head = idx_bytes(np.zeros(0, np.uint8), shape)
    megabytes = 10 if shape == (1000,) * 3 else 400
    (mnist / "train-images-idx3-ubyte.gz").write_bytes(bomb(head, megabytes))
    with little_memory(200):
        refused(f"idx:{mnist}", words)


def test_idx_files_of_another_shape_are_refused(mnist):
    path = mnist / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((4, 1), np.uint8))))
    refused(f"idx:{mnist}", "train-labels-idx1-ubyte.gz is not a whole idx file")
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(3, np.uint8))))
    refused(f"idx:{mnist}", "4 images came with 3 labels")


def test_mutated_idx_files_are_refused_in_one_line(mnist):
    for name in ("train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        whole = (mnist / name).read_bytes()
        for raw in mutations(whole, 60):
            (mnist / name).write_bytes(raw)
            assert one_line_or_nothing(f"idx:{mnist}")
        (mnist / name).write_bytes(whole)


# --- Hugging Face


@pytest.fixture
def table(tmp_path):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"img": [photo(i) for i in range(6)], "label": [i % 2 for i in range(6)]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "t"))
    return tmp_path / "t"


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "*.arrow"])
def test_a_damaged_table_is_refused(table, name):
    (path,) = table.glob(name)
    whole = path.read_bytes()
    for raw in (b"", b"[]", b"\xff\xfe", whole[: len(whole) // 2]):
        path.write_bytes(raw)
        refused(f"hf:{table}", "not written by save_to_disk, or is damaged")
    path.unlink()
    refused(f"hf:{table}", "not written by save_to_disk, or is damaged")


@pytest.mark.parametrize(
    ("labels", "kind", "words"),
    [
        ([0, 3_000_000_000], "int64", "label 3000000000 of hf:.* is too high"),
        ([0, None], "int64", "must be whole numbers"),
        (["a", "b"], "string", "must be whole numbers"),
        ([0, -1], "int64", "label -1 of image 1 is out of range"),
        ([], "int64", "or is damaged"),  # the library itself cannot read it back
    ],
)
def test_a_table_with_other_labels_is_refused(tmp_path, labels, kind, words):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value(kind)})
    rows = {"img": [photo(0)] * len(labels), "label": labels}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "t"))
    with little_memory(300):
        refused(f"hf:{tmp_path}/t", words)


def test_a_set_without_images_is_refused():
    with pytest.raises(UserError, match="has no images in it"):
        memory.gather(FileImages([], [], ["a"]), image_size=8, in_chans=3)


@pytest.mark.filterwarnings("ignore:skipped broken")
def test_a_row_without_an_image_is_skipped(tmp_path):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"img": [photo(0), None, photo(1)], "label": [0, 0, 0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "t"))
    found = load(f"hf:{tmp_path}/t")
    assert "skipped broken image row 1: there is no image in this row" in found.notes
    assert len(found.train) + len(found.test) == 2


# --- CIFAR-C


def test_an_array_with_a_label_that_is_no_class_is_refused(tmp_path):
    np.save(tmp_path / "snow.npy", np.zeros((5, 4, 4, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2, 3, 3_000_000_000]))
    with little_memory(300), pytest.raises(UserError, match="label 3000000000 of .*labels.npy"):
        corrupted_sets(tmp_path).images("snow", 1)
    (tmp_path / "labels.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    with pytest.raises(UserError, match="labels.npy is not a whole numpy array"):
        corrupted_sets(tmp_path).images("snow", 1)


# --- one class


def test_one_class_can_be_loaded_and_measured_on_but_not_learned(tmp_path, capsys):
    folder = write_folder(tmp_path / "data", ["cats"], count=8)
    found = load(str(folder))
    assert found.classes == ("cats",)
    options = {"batch_size": 2, "augmentation": augment.none(), "num_classes": 1, "seed": 0}
    options |= {"mean": found.mean, "std": found.std, "flips": True}
    assert len(TrainBatches(found.train, one_class=True, **options)) == 3
    with pytest.raises(UserError, match="all 6 training images are of one class, 'cats'"):
        TrainBatches(found.train, **options)
    images = MemoryImages(found.train.pixels([0, 1]), [1, 1], ["a", "b"])
    with pytest.raises(UserError, match="all 2 training images are of one class, 'b'"):
        TrainBatches(images, **{**options, "num_classes": 2})
    words = ["train", "--model", "vit_micro", "--recipe", "laptop", "--epochs", "1", "--quiet"]
    assert main([*words, "--data", str(folder), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "of one class, 'cats'" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_empty_source_is_refused_by_the_command(tmp_path, capsys):
    words = ["train", "--model", "vit_micro", "--data", "", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "the data source is empty" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
