"""The published CIFAR-C arrays and ImageNet-C folders."""

import numpy as np
import pytest
import torch
from torch import nn

from data_making import photo, write_folder
from vitascope.data.sources.corrupted import corrupted_sets
from vitascope.data.sources.imagenet import synsets
from vitascope.errors import UserError
from vitascope.measure.robustness.corruption import corruption_of_sets


def write_arrays(root, names=("fog", "snow"), count=6, repeat=True):
    """Like CIFAR-10-C: every pixel of image i at severity s is 10 s + i."""
    root.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        value = 10 * np.arange(1, 6)[:, None] + np.arange(count) + 100 * number
        pixels = value.reshape(-1, 1, 1, 1) * np.ones((1, 32, 32, 3))
        np.save(root / f"{name}.npy", pixels.astype(np.uint8))
    labels = np.arange(count) % 3
    np.save(root / "labels.npy", np.tile(labels, 5 if repeat else 1).astype(np.uint8))
    return root


@pytest.mark.parametrize("repeat", [True, False])
def test_an_array_holds_five_severities_one_after_the_other(tmp_path, repeat):
    sets = corrupted_sets(write_arrays(tmp_path, repeat=repeat))
    assert sets.names == ("fog", "snow")
    images = sets.images("snow", 3)
    assert images.size == (3, 32, 32)
    assert images.pixels(range(6))[:, 0, 5, 5].tolist() == [130, 131, 132, 133, 134, 135]
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert len(images.classes) == 3
    assert corrupted_sets(tmp_path, image_size=16).images("fog", 1).size == (3, 16, 16)


@pytest.mark.parametrize("parents", [True, False])
def test_folders_are_found_with_and_without_their_families(tmp_path, parents):
    for family, name in (("weather", "snow"), ("noise", "shot_noise")):
        above = tmp_path / family / name if parents else tmp_path / name
        for severity in (1, 2):
            write_folder(above / str(severity), ["b", "a"], count=2, size=(224, 224), suffix="JPEG")
    sets = corrupted_sets(tmp_path)
    assert set(sets.names) == {"snow", "shot_noise"}
    images = sets.images("snow", 2)
    assert (len(images), images.size, images.classes) == (4, (3, 224, 224), ("a", "b"))
    with pytest.raises(UserError, match="no severity 4; there are: 1, 2"):
        sets.images("snow", 4)


def test_synset_folders_have_the_labels_of_imagenets_outputs(tmp_path):
    chosen = [synsets()[7], synsets()[900]]
    write_folder(tmp_path / "blur" / "zoom_blur" / "5", chosen, count=1)
    images = corrupted_sets(tmp_path).images("zoom_blur", 5)
    assert images.labels.tolist() == [7, 900]
    assert len(images.classes) == 1000


def test_accuracy_comes_in_the_same_result(tmp_path):
    class Reader(nn.Module):
        """Knows each image by its pixels, up to severity 3."""

        def forward(self, images):
            value = (255 * images[:, 0, 0, 0]).round().long()
            label = (value % 10 + (value % 100 >= 40)) % 3
            return torch.eye(3)[label]

    sets = corrupted_sets(write_arrays(tmp_path))
    found = corruption_of_sets(
        Reader(),
        lambda name, severity: sets.batches(
            name, severity, batch_size=4, mean=(0.0,) * 3, std=(1.0,) * 3
        ),
        corruptions=sets.names,
    )
    assert found.accuracy.tolist() == [[1, 1, 1, 0, 0]] * 2
    assert (found.num_images, found.constants, found.mce) == (6, "given", None)


def test_mistakes_are_told_in_one_line(tmp_path):
    with pytest.raises(UserError, match="no folder at"):
        corrupted_sets(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no corruption in it"):
        corrupted_sets(tmp_path)
    root = write_arrays(tmp_path / "c")
    sets = corrupted_sets(root)
    with pytest.raises(UserError, match="did you mean 'snow'"):
        sets.images("snwo", 1)
    with pytest.raises(UserError, match="unknown corruption 'frost'; there are: fog, snow"):
        sets.images("frost", 1)
    with pytest.raises(UserError, match="severity 0"):
        sets.images("snow", 0)
    np.save(root / "labels.npy", np.zeros(7))
    with pytest.raises(UserError, match=r"labels.npy has shape \(7,\); fog.npy needs 30 labels"):
        sets.images("fog", 1)
    np.save(root / "fog.npy", np.zeros((30, 3, 32, 32)))
    with pytest.raises(UserError, match=r"float64 of shape \(30, 3, 32, 32\)"):
        sets.images("fog", 1)
    (root / "fog.npy").write_bytes(b"not an array")
    with pytest.raises(UserError, match="download it again"):
        sets.images("fog", 1)
    (root / "labels.npy").unlink()
    with pytest.raises(UserError, match=r"no labels.npy"):
        corrupted_sets(root)


def test_a_broken_image_of_a_folder_is_named(tmp_path):
    folder = tmp_path / "snow" / "1"
    write_folder(folder, ["a"], count=1)
    (folder / "a" / "00.png").write_bytes(b"broken")
    photo(3).save(folder / "a" / "01.png")
    with pytest.raises(UserError, match="broken image"):
        corrupted_sets(tmp_path).images("snow", 1).pixels([0])
