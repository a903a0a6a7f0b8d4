"""Know the images: duplicates, labels that disagree, tables, groups and readable names."""

import csv
import json
import warnings

import numpy as np
import pytest
from PIL import Image

import vitascope
from vitascope.commands import main, plain_warnings
from vitascope.data import load
from vitascope.data.held_out import held_out, one_fold
from vitascope.data.sources.load import described
from vitascope.data.subsets import folds, split
from vitascope.data.survey import survey
from vitascope.errors import UserError


def photograph(rng, side=80):
    """Smooth random colours, as photographs have them."""
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Ten training and five test images of each of two classes, all different."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for part, count in (("train", 10), ("test", 5)):
        for name in ("n01", "n02"):
            (root / part / name).mkdir(parents=True)
            for index in range(count):
                photograph(rng).save(root / part / name / f"p{index // 2}_{index}.png")
    return root


@pytest.fixture
def spoilt(photos, tmp_path):
    """The same with one copy, one near copy and one label that disagrees."""
    import shutil

    root = tmp_path / "spoilt"
    shutil.copytree(photos, root)
    first = root / "train" / "n01" / "p0_0.png"
    shutil.copy(first, root / "test" / "n01" / "copy.png")
    near = Image.open(root / "train" / "n02" / "p0_0.png").resize((100, 100))
    near.save(root / "test" / "n02" / "near.jpg", quality=80)
    shutil.copy(root / "train" / "n01" / "p1_2.png", root / "train" / "n02" / "other.png")
    return root


def test_different_photographs_are_no_duplicates(photos):
    found = survey(load(str(photos), image_size=64))
    assert (found.train, found.test) == ((10, 10), (5, 5))
    assert (found.exact, found.near, found.across, found.two_labels) == (0, 0, 0, 0)
    assert "training set too" not in found.short


def test_copies_across_parts_and_labels_are_found_and_named(spoilt, capsys):
    assert main(["data", str(spoilt), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = told["duplicates"]
    assert (found["exact_across"], found["near_across"]) == (1, 1)
    assert (found["exact"], found["two_labels"]) == (1, 1)
    said = " ".join(" ".join(pair) for pair in found["pairs"])
    for name in ("copy.png", "near.jpg", "other.png"):
        assert name in said
    assert "1 test image (8 %) also in the training set" in told["short"]
    assert "1 test image (8 %) nearly the same as a training image" in told["short"]
    assert told["sizes"] == "images are from 80 x 80 to 100 x 100 pixels, 80 x 80 in the middle"


def test_a_set_whose_test_images_are_training_images_says_so(photos, tmp_path):
    import shutil

    shutil.copytree(photos / "train", tmp_path / "train")
    shutil.copytree(photos / "train", tmp_path / "test")
    found = survey(load(str(tmp_path), image_size=64))
    assert found.exact_across == 20
    assert "20 test images (100 %)" in found.short


def test_plain_images_are_told_apart_by_their_thumbnails():
    from vitascope.data.survey import _pairs, _signs

    shades = np.stack([np.full((64, 64), level, dtype=np.uint8) for level in (10, 90, 200)])
    assert len(_pairs(shades, _signs(shades))[0]) == 0  # though their hashes are the same


def test_unreadable_files_are_named(photos, tmp_path, capsys):
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    (root / "train" / "n01" / "broken.png").write_bytes(b"no image")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # it is told once
        assert main(["data", str(root)]) == 0
    assert "broken.png" in capsys.readouterr().out


def test_a_warning_of_ours_is_a_line_without_its_place():
    with plain_warnings():
        assert warnings.formatwarning("so", UserWarning, vitascope.__file__, 1) == "note: so\n"
        assert "UserWarning: so" in warnings.formatwarning("so", UserWarning, "else.py", 1)
    assert "UserWarning" in warnings.formatwarning("so", UserWarning, vitascope.__file__, 1)


def write_table(path, photos, **columns):
    files = sorted(photos.rglob("*.png"))
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", *columns])
        for file in files:
            row = [str(file.relative_to(path.parent)), file.parent.name]
            writer.writerow([*row, *(made(file) for made in columns.values())])


def test_a_table_gives_paths_labels_splits_and_groups(photos):
    table = photos / "labels.csv"
    write_table(
        table,
        photos,
        split=lambda f: f.parent.parent.name,
        group=lambda f: f"{f.parent.parent.name[:2]}-{f.name[:2]}",
    )
    found = load(f"csv:{table}", image_size=16)
    assert (len(found.train), len(found.test), found.classes) == (20, 10, ("n01", "n02"))
    assert set(found.train.groups) == {f"tr-p{n}" for n in range(5)}
    folder = load(str(photos), image_size=16)
    assert (found.test.pixels([3]) == folder.test.pixels([3])).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\na.png,x\n", "no column 'label'"),
        ("path,label\n", "lists no images"),
        ("path,label\n,x\n", "line 2"),
        ("path,label,split\na.png,x,exam\n", "split 'exam'"),
    ],
)
def test_a_table_that_is_none_is_one_line(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load(f"csv:{tmp_path / 'a.csv'}", image_size=16)


def test_a_group_is_on_one_side_of_the_split(photos):
    found = load(described(str(photos / "train"), "(p[0-9])_"), image_size=16)
    assert not set(found.train.groups) & set(found.test.groups)
    assert len(found.train) + len(found.test) == 20
    assert "groups kept together" in found.notes[-1]
    labels, groups = np.arange(60) % 2, np.repeat(np.arange(12), 5)
    for seed in range(5):
        kept, out = split(labels, 0.2, seed, groups)
        assert not set(groups[kept]) & set(groups[out])
        assert sorted([*kept, *out]) == list(range(60))


def test_a_group_is_on_one_side_of_validation_and_of_every_fold(photos):
    found = load(described(str(photos / "train"), "(p[0-9])_"), image_size=16, test_fraction=0)
    groups = found.train.groups
    apart = [held_out(found, 0.25), *(one_fold(found, (which, 4)) for which in range(4))]
    for images in apart:
        assert not set(images.train.groups) & set(images.test.groups)
        assert len(images.train) + len(images.test) == len(found.train)
    assert sorted(g for images in apart[1:] for g in images.test.groups) == sorted(groups)
    loose = folds(found.train.labels, 4)  # without groups they are torn apart
    assert any(len(set(loose[groups == name])) > 1 for name in set(groups))
    with pytest.raises(UserError, match="5 groups cannot be dealt out to 6 parts"):
        one_fold(found, (0, 6))


def test_a_given_split_that_parts_a_group_is_refused(photos):
    with pytest.raises(UserError, match="3 groups are in the training and in the test images"):
        load(described(str(photos), "(p[0-9])_"), image_size=16)


def test_an_image_without_a_group_stands_by_itself(photos):
    table = photos / "some.csv"
    write_table(table, photos, group=lambda f: "p0" if f.name.startswith("p0") else "")
    found = load(f"csv:{table}", image_size=16, test_fraction=0)
    assert len(set(found.train.groups)) == 1 + sum(found.train.groups != "p0")


def test_a_pattern_must_be_in_every_name(photos):
    with pytest.raises(UserError, match="is nowhere in"):
        load(described(str(photos), "patient"), image_size=16)
    with pytest.raises(UserError, match="is no pattern"):
        load(described(str(photos), "("), image_size=16)
    with pytest.raises(UserError, match="needs images that are files"):
        load(described("digits", "p"))


def test_classes_get_readable_names(photos, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("n01,white stork\nn02,black stork\n")
    found = load(described(str(photos), None, str(names)), image_size=16)
    assert found.classes == found.train.classes == ("white stork", "black stork")
    names.write_text("n01,stork\nn02,stork\n")
    with pytest.raises(UserError, match="two classes one name"):
        load(described(str(photos), None, str(names)), image_size=16)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([f"{number / 8 + 0.1:.3f}" for number in range(12)], "group the numbers into a few"),
        (["cat", "cat;dog", "dog"] * 4, "several labels per image"),
    ],
)
def test_labels_that_are_no_classes_are_refused_with_what_to_do(tmp_path, labels, says):
    text = "path,label\n" + "".join(f"{i}.png,{label}\n" for i, label in enumerate(labels))
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=says):
        load(f"csv:{tmp_path / 'a.csv'}", image_size=16)


def test_files_that_are_passed_over_are_counted_by_their_ending(photos, tmp_path, capsys):
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    for name in ("a.heic", "b.HEIC", "c.jp2", "notes.txt", "README", ".hidden"):
        (root / "train" / "n01" / name).write_bytes(b"something")
    (root / "test" / "n02" / "d.heic").write_bytes(b"something")
    assert main(["data", str(root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["passed_over"] == {".heic": 3, ".jp2": 1, ".txt": 1, "no ending": 1}
    assert "6 files passed over" in told["short"]
    assert told["num_train"] == 20


def test_mirrored_copies_are_found_across_parts_and_no_others(photos, tmp_path):
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    assert survey(load(str(root), image_size=64)).mirrored == 0
    for index, target in ((0, root / "test" / "n01"), (1, root / "train" / "n01")):
        image = Image.open(root / "train" / "n01" / f"p0_{index}.png")
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(target / "mirrored.png")
    found = survey(load(str(root), image_size=64))
    assert (found.mirrored, found.mirrored_across) == (1, 1)
    assert (found.exact, found.near, found.near_across) == (0, 0, 0)
    assert any(kind == "mirrored across" for kind, _, _ in found.pairs)
    assert "the mirror image of a training image" in found.leak


def test_an_empty_class_is_a_line_of_the_diagnosis_and_refused_in_training(
    photos, tmp_path, capsys
):
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    (root / "train" / "n03").mkdir()
    assert main(["data", str(root)]) == 0
    assert "no training images of n03" in capsys.readouterr().out
    with pytest.raises(UserError, match="no images in class folder 'n03'"):
        load(str(root), image_size=16)


def test_what_pillow_says_of_odd_images_is_not_shown(photos, tmp_path, capfd):
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    broken = b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x05\x00\x12\x01"  # it ends too soon
    Image.open(root / "train" / "n01" / "p0_0.png").save(
        root / "train" / "n02" / "exif.jpg", exif=broken
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert main(["data", str(root)]) == 0
    assert [str(each.message) for each in seen if "PIL" in each.filename] == []
    assert "Warning" not in capfd.readouterr().err
