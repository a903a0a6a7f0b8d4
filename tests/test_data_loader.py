"""Batches depend on the seed, the epoch and the step, and on nothing else."""

import random

import numpy as np
import pytest
import torch
from timm.data.transforms import RandomResizedCropAndInterpolation

from data_making import numbered, photos, write_folder
from vitascope.data import (
    Augmentation,
    EvalBatches,
    FileImages,
    MemoryImages,
    TrainBatches,
    augment,
)
from vitascope.data.file_batches import TrainView, generators_restored, seed_generators
from vitascope.data.images import to_image, to_tensor
from vitascope.data.loader import epoch_order
from vitascope.data.sources.folder import list_files
from vitascope.errors import UserError

EVERYTHING = Augmentation(
    crop="resized",
    hflip=0.5,
    rand_augment="rand-m9-mstd0.5-inc1",
    random_erasing=0.5,
    mixup=0.8,
    cutmix=1.0,
    label_smoothing=0.1,
    repeats=3,
)
SETTINGS = {
    "none": augment.none(),
    "laptop": augment.laptop(),
    "cifar": augment.cifar(),
    "deit": augment.deit(),
    "jitter": Augmentation(crop="pad", color_jitter=0.4, random_erasing=1.0),
    "everything": EVERYTHING,
}


def in_memory(count=48, side=12):
    labels = np.arange(count) % 4
    return MemoryImages(photos(count, side=side), labels, ["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    root = write_folder(tmp_path_factory.mktemp("files"), "abcd", count=6, size=(20, 14))
    return list_files(root).of_size(3, 12, 12)


def batches(images, augmentation, batch_size=16, **options):
    options = {"seed": 7, "flips": True, "one_class": True, **options}
    channels = images.size[0]
    return TrainBatches(
        images,
        batch_size=batch_size,
        augmentation=augmentation,
        num_classes=len(images.classes),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        **options,
    )


def same(left, right):
    left, right = list(left), list(right)
    return len(left) == len(right) and all(
        torch.equal(a.images, b.images)
        and torch.equal(a.targets, b.targets)
        and torch.equal(a.labels, b.labels)
        and torch.equal(a.indices, b.indices)
        for a, b in zip(left, right, strict=True)
    )


def disturb(number):
    """Leave every global generator in another state."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_epoch_is_the_same_bits_twice_whatever_the_global_generators_do(setting):
    loader = batches(in_memory(), SETTINGS[setting])
    disturb(1)
    first = list(loader.epoch(3))
    disturb(2)
    assert same(first, loader.epoch(3))
    assert same(first, batches(in_memory(), SETTINGS[setting]).epoch(3))


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_epoch_may_start_at_any_step(setting):
    loader = batches(in_memory(), SETTINGS[setting])
    whole = list(loader.epoch(2))
    assert len(whole) == len(loader) == 3
    for start in range(4):
        assert same(whole[start:], loader.epoch(2, start=start))


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_slices_of_the_processes_make_up_the_whole_batch(setting):
    whole = list(batches(in_memory(), SETTINGS[setting], batch_size=24).epoch(1))
    parts = [
        batches(in_memory(), SETTINGS[setting], batch_size=24, rank=r, world_size=3).epoch(1)
        for r in range(3)
    ]
    for batch, *slices in zip(whole, *parts, strict=True):
        for field in ("images", "targets", "labels", "indices"):
            together = torch.cat([getattr(part, field) for part in slices])
            assert torch.equal(getattr(batch, field), together), field


@pytest.mark.parametrize("setting", SETTINGS)
def test_another_epoch_or_seed_gives_other_batches(setting):
    loader = batches(in_memory(), SETTINGS[setting])
    first = list(loader.epoch(0))
    assert not same(first, loader.epoch(1))
    assert not same(first, batches(in_memory(), SETTINGS[setting], seed=8).epoch(0))


@pytest.mark.parametrize("setting", ["laptop", "everything", "jitter"])
def test_images_from_files_are_the_same_bits_for_any_number_of_workers(on_disk, setting):
    loader = batches(on_disk, SETTINGS[setting], batch_size=8)
    disturb(1)
    first = list(loader.epoch(1))
    disturb(2)
    before = (random.getstate()[1], torch.get_rng_state())
    assert same(first, loader.epoch(1))
    assert random.getstate()[1] == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert same(first[1:], batches(on_disk, SETTINGS[setting], 8, num_workers=2).epoch(1, start=1))


def test_slices_of_images_from_files_make_up_the_whole_batch(on_disk):
    whole = list(batches(on_disk, EVERYTHING, batch_size=8).epoch(0))
    parts = [
        batches(on_disk, EVERYTHING, batch_size=8, rank=r, world_size=2).epoch(0) for r in range(2)
    ]
    for batch, left, right in zip(whole, *parts, strict=True):
        assert torch.equal(batch.images, torch.cat([left.images, right.images]))
        assert torch.equal(batch.targets, torch.cat([left.targets, right.targets]))


@pytest.mark.parametrize("setting", ["cifar", "deit", "jitter", "everything"])
def test_images_in_memory_are_augmented_as_those_from_files(on_disk, setting):
    stored = [to_tensor(on_disk.decode(i)) for i in range(len(on_disk))]
    same_images = MemoryImages(torch.stack(stored), on_disk.labels, on_disk.classes)
    augmentation = SETTINGS[setting]
    options = {"batch_size": 8, "image_size": 12}
    assert same(
        batches(on_disk, augmentation, **options).epoch(2),
        batches(same_images, augmentation, **options).epoch(2),
    )


def test_images_from_files_are_varied(on_disk):
    still, moved = (
        next(batches(on_disk, SETTINGS[s], batch_size=8).epoch(0)) for s in ("none", "everything")
    )
    assert torch.equal(
        still.images, batches(on_disk, augment.none()).normalize(on_disk.pixels(still.indices))
    )
    assert not torch.equal(still.images, moved.images)


def test_without_augmentation_a_batch_is_the_normalised_pixels():
    images = in_memory()
    for batch in batches(images, augment.none()).epoch(0):
        want = (images.pixels(batch.indices).double() / 255 - 0.5) / 0.25
        assert torch.allclose(batch.images.double(), want, atol=1e-6)
        assert batch.images.dtype == torch.float32
        assert torch.equal(batch.targets, batch.labels)
        assert batch.labels.tolist() == images.labels[batch.indices].tolist()


@pytest.mark.parametrize("setting", ["laptop", "everything", "jitter"])
def test_every_step_varies_its_images_anew(setting):
    alike = MemoryImages(photos(1).repeat(64, 1, 1, 1), np.zeros(64), ["a"])
    steps = {b.images.numpy().tobytes() for b in batches(alike, SETTINGS[setting]).epoch(0)}
    assert len(steps) == 4


def test_every_image_comes_once_an_epoch():
    seen = torch.cat([b.indices for b in batches(in_memory(), augment.laptop()).epoch(4)])
    assert sorted(seen.tolist()) == list(range(48))


def test_what_does_not_fill_a_batch_waits_for_another_epoch():
    loader = batches(numbered(50), augment.none(), batch_size=16)
    seen = [set(torch.cat([b.indices for b in loader.epoch(e)]).tolist()) for e in range(8)]
    assert all(len(s) == 48 for s in seen)
    assert set.union(*seen) == set(range(50))


def test_repeated_augmentation_shows_each_image_three_times_and_covers_all_in_three_epochs():
    for cycle in (0, 1):
        seen = []
        for epoch in range(3 * cycle, 3 * cycle + 3):
            order = epoch_order(96, 24, seed=0, epoch=epoch, repeats=3)
            assert order.shape == (4, 24)
            for batch in order:
                assert (np.unique(batch, return_counts=True)[1] == 3).all()
                assert (batch[0::2] != batch[1::2]).all(), "a copy is mixed with itself"
            seen += np.unique(order).tolist()
        assert sorted(seen) == list(range(96))


def test_repeated_augmentation_covers_sets_that_do_not_divide():
    seen = {
        int(i) for e in range(12) for i in epoch_order(101, 16, seed=0, epoch=e, repeats=3).flat
    }
    assert seen == set(range(101))


def test_the_copies_of_an_image_differ():
    batch = next(batches(in_memory(), Augmentation(crop="resized", repeats=2)).epoch(0))
    first = batch.indices[0]
    one, two = batch.images[batch.indices == first]
    assert not torch.equal(one, two)


def test_mixed_targets_sum_to_one_and_tell_what_is_in_the_pixels():
    # image i is filled with its class, so the mean pixel is the expected class
    pixels = (torch.arange(32) % 4).to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 1, 8, 8)
    images = MemoryImages(pixels, np.arange(32) % 4, list("abcd"))
    setting = Augmentation(hflip=0.5, mixup=0.8, cutmix=1.0)
    for epoch in range(10):
        for batch in batches(images, setting).epoch(epoch):
            classes = ((batch.images * 0.25 + 0.5) * 255).mean(dim=(1, 2, 3))
            assert torch.allclose(batch.targets.sum(dim=1), torch.ones(16), atol=1e-6)
            assert torch.allclose(batch.targets @ torch.arange(4.0), classes, atol=1e-3)


def test_digits_are_not_mirrored_unless_asked():
    assert batches(in_memory(), augment.laptop(), flips=False).hflip == 0
    assert batches(in_memory(), augment.laptop()).hflip == 0.5
    assert batches(in_memory(), Augmentation(hflip=0.3), flips=False).hflip == 0.3


def test_images_may_be_given_out_at_another_size(on_disk):
    for setting in ("laptop", "deit", "none"):
        for images in (in_memory(), on_disk):
            batch = next(batches(images, SETTINGS[setting], image_size=20).epoch(0))
            assert batch.images.shape == (16, 3, 20, 20)


def test_lazily_resized_images_are_those_resized_at_once():
    small = MemoryImages(photos(4, side=8), [0, 0, 0, 0], ["a"], side=16)
    assert small.size == (3, 16, 16)
    assert small.take([2, 1]).pixels([0]).shape == (1, 3, 16, 16)
    assert torch.equal(small.take([2, 1]).pixels([0]), small.pixels([2]))


@pytest.mark.parametrize("world_size", [1, 3, 7])
def test_evaluation_sees_every_image_once_in_order(world_size):
    images = in_memory(22)
    parts = [
        EvalBatches(
            images, batch_size=4, mean=(0.0,) * 3, std=(1.0,) * 3, rank=r, world_size=world_size
        )
        for r in range(world_size)
    ]
    assert all(len(part) == len(list(part)) for part in parts)
    seen = [batch for part in parts for batch in part]
    assert torch.cat([b.indices for b in seen]).tolist() == list(range(22))
    got = torch.cat([b.images for b in seen])
    assert torch.allclose(got, images.pixels(np.arange(22)).float() / 255)
    assert torch.cat([b.targets for b in seen]).tolist() == images.labels.tolist()


def test_evaluation_of_files_matches_their_pixels(on_disk):
    options = {"batch_size": 7, "mean": (0.0,) * 3, "std": (1.0,) * 3}
    alone = list(EvalBatches(on_disk, **options))
    assert same(alone, EvalBatches(on_disk, num_workers=2, **options))
    assert torch.allclose(
        torch.cat([b.images for b in alone]) * 255, on_disk.pixels(np.arange(24)).float()
    )
    bigger = next(iter(EvalBatches(on_disk, image_size=16, **options)))
    assert bigger.images.shape == (7, 3, 16, 16)


def test_the_copies_of_an_image_in_a_batch_are_decoded_once(on_disk, monkeypatch):
    opened = []
    usual = FileImages.open_item
    monkeypatch.setattr(
        FileImages, "open_item", lambda self, item: (opened.append(item), usual(self, item))[1]
    )
    (batch,) = batches(on_disk, SETTINGS["deit"], batch_size=24).epoch(0)
    assert sorted(np.unique(batch.indices, return_counts=True)[1]) == [3] * 8
    assert len(opened) == 8


def test_a_resized_crop_is_timms_but_for_rounding():
    image = to_image(photos(1, side=60)[0])
    ours = TrainView(Augmentation(crop="resized"), side=24, hflip=0.0, fill=[0, 0, 0])
    theirs = RandomResizedCropAndInterpolation(24, interpolation="bicubic")
    for seed in range(20):
        with generators_restored():
            view = ours(image, seed).int()
            seed_generators(seed)
            assert (to_tensor(theirs(image)).int() - view).abs().max() <= 2


def test_a_large_jpeg_is_decoded_smaller_as_long_as_no_crop_has_to_grow(tmp_path):
    pixels = photos(1, side=25)[0].repeat_interleave(40, 1).repeat_interleave(40, 2)  # 1,000 px
    to_image(pixels).save(tmp_path / "large.jpg", quality=95)
    images = FileImages([tmp_path / "large.jpg"], [0], ["a"])
    light = TrainView(augment.light(), side=64, hflip=0.0, fill=[0, 0, 0])
    assert light.least_side == 96  # 64 / (0.6 * 3 / 4) ** 0.5, rounded up
    assert images.decode(0).size == (1000, 1000)
    assert images.decode(0, light.least_side).size == (125, 125)
    assert images.decode(0, 126).size == (250, 250)
    means = to_tensor(images.decode(0).reduce(8)).float()
    assert (to_tensor(images.decode(0, 125)) - means).abs().mean() < 3  # of 255


def test_a_file_that_breaks_later_is_named_once_and_replaced_or_left_out(tmp_path):
    root = write_folder(tmp_path, "ab", count=4)
    images = list_files(root).of_size(3, 12, 12)
    broken = root / "a" / "02.png"
    broken.write_bytes(broken.read_bytes()[:60])
    loader = batches(images, augment.none(), batch_size=8)
    with pytest.warns(UserWarning, match="skipped broken image .*02.png") as caught:
        seen = [b for e in range(3) for b in loader.epoch(e)]
    assert len(caught) == 1
    for batch in seen:
        assert sorted(batch.indices.tolist()) == [0, 1, 3, 3, 4, 5, 6, 7]
        assert batch.labels.tolist() == images.labels[batch.indices].tolist()
    fresh = FileImages(images.items, images.labels, images.classes, size=(3, 12, 12))
    with pytest.warns(UserWarning, match="02.png"):
        left = list(EvalBatches(fresh, batch_size=4, mean=(0.0,) * 3, std=(1.0,) * 3))
    assert torch.cat([b.indices for b in left]).tolist() == [0, 1, 3, 4, 5, 6, 7]
    with pytest.raises(UserError, match="broken image .*02.png"):
        images.pixels([2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 64}, "48 training images are fewer than one batch of 64"),
        ({"batch_size": 0}, "batch size 0"),
        ({"batch_size": 15, "world_size": 2}, "does not divide among 2 processes; give a multiple"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_an_impossible_batch_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        list(batches(in_memory(), augment.none(), **options).epoch(0))


def test_mixing_needs_whole_pairs_in_every_process():
    with pytest.raises(UserError, match="in pairs; give a multiple of 4, for instance 16"):
        batches(in_memory(), augment.cifar(), batch_size=18, world_size=2)


def test_a_label_beyond_the_model_is_refused():
    images = in_memory()
    with pytest.raises(UserError, match="label 3 is out of range for 3 classes"):
        TrainBatches(
            images,
            batch_size=4,
            augmentation=augment.none(),
            num_classes=3,
            mean=(0.5,) * 3,
            std=(1.0,) * 3,
            flips=True,
            seed=0,
        )


@pytest.mark.parametrize(("crop", "moved"), [("none", False), ("pad", True)])
def test_only_padded_crops_shift_images_in_memory(crop, moved):
    images = in_memory(side=16)
    (batch,) = batches(images, Augmentation(crop=crop), batch_size=48, flips=False).epoch(0)
    plain = (images.pixels(batch.indices.numpy()).float() / 255 - 0.5) / 0.25
    as_they_are = (batch.images - plain).abs().flatten(1).amax(1) < 1e-5
    assert bool(as_they_are.all()) is not moved
    assert int(as_they_are.sum()) < 12 or not moved  # a shift of 0 is one in 25
