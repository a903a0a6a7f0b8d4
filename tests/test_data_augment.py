"""Crops, mirrors, erasing and mixing do what they say."""

import numpy as np
import pytest
import torch
from PIL import ImageOps

from data_making import photos
from vitascope.data import Augmentation, augment
from vitascope.data.batches import (
    Mix,
    draw_mix,
    erase,
    erasing_boxes,
    mirror,
    mix_images,
    mix_targets,
    shifted_crop,
    smooth_targets,
)
from vitascope.data.file_batches import TrainView, posterize
from vitascope.data.images import gray, resize, to_image, to_tensor
from vitascope.errors import UserError


def test_a_shifted_crop_moves_the_image_and_lets_in_black():
    pixels = photos(3, side=8)
    top, left = torch.tensor([2, 0, 3]), torch.tensor([2, 2, 4])
    got = shifted_crop(pixels, top, left, pad=2)
    assert torch.equal(got[0], pixels[0])
    assert torch.equal(got[1][:, 2:], pixels[1][:, :-2])
    assert (got[1][:, :2] == 0).all()
    assert torch.equal(got[2][:, :-1, :-2], pixels[2][:, 1:, 2:])
    assert (got[2][:, -1:] == 0).all()


def test_a_mirror_flips_only_the_chosen():
    pixels = photos(2)
    got = mirror(pixels.clone(), torch.tensor([True, False]))
    assert torch.equal(got[0], pixels[0].flip(-1))
    assert torch.equal(got[1], pixels[1])


def test_resizing_one_channel_and_upwards_works():
    assert resize(photos(2, 1, 8), 20, 20).shape == (2, 1, 20, 20)


def test_erasing_fills_one_box_with_noise_and_nothing_else():
    images = torch.full((200, 3, 16, 16), 5.0)
    boxes = erasing_boxes(np.random.default_rng(0), 200, 16, 16, 0.25, (0.02, 1 / 3))
    out = erase(images.clone(), boxes, np.random.default_rng(1).random(200), seed=0)
    changed = (out != 5).all(dim=1)
    assert 0.15 < changed.flatten(1).any(dim=1).float().mean() < 0.35
    noise = []
    for mask, image, (top, left, h, w) in zip(changed, out, boxes.tolist(), strict=True):
        box = torch.zeros(16, 16, dtype=torch.bool)
        box[top : top + h, left : left + w] = True
        assert torch.equal(mask, box)
        noise.append(image[:, box].flatten())
    assert torch.cat(noise).mean() == pytest.approx(0, abs=0.05)
    assert torch.cat(noise).std() == pytest.approx(1, abs=0.05)


def test_no_two_boxes_get_the_same_noise():
    boxes = np.tile([1, 2, 5, 6], (8, 1))
    out = erase(torch.zeros(8, 3, 16, 16), boxes, np.arange(8) / 8, seed=0)
    assert len({image.numpy().tobytes() for image in out}) == 8


def test_erased_areas_are_those_asked_for():
    _, _, h, w = erasing_boxes(np.random.default_rng(0), 3000, 64, 64, 1.0, (0.1, 0.2)).T
    area = (h * w)[h > 0] / 64**2
    assert area.min() > 0.09
    assert area.max() < 0.21
    assert area.mean() == pytest.approx(0.15, abs=0.005)


def test_mixup_blends_neighbours_and_their_targets_alike():
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 2, 2).contiguous()
    targets = torch.eye(4)
    mix = Mix(share=0.7)
    got, soft = mix_images(images.clone(), mix), mix_targets(targets, mix)
    assert got[:, 0, 0, 0].tolist() == pytest.approx([0.3, 0.7, 2.3, 2.7])
    assert soft[2].tolist() == pytest.approx([0, 0, 0.7, 0.3])
    # the expected number under the target is the number in the pixels
    assert (soft @ torch.arange(4.0)).tolist() == pytest.approx(got[:, 0, 0, 0].tolist())


def test_cutmix_pastes_the_partners_box_and_the_target_is_its_area():
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 8, 8).contiguous()
    setting = Augmentation(cutmix=1.0)
    for seed in range(20):
        mix = draw_mix(np.random.default_rng(seed), setting, 8, 8)
        got, soft = mix_images(images.clone(), mix), mix_targets(torch.eye(4), mix)
        pixel_mean = got.mean(dim=(1, 2, 3))
        assert (soft @ torch.arange(4.0)).tolist() == pytest.approx(pixel_mean.tolist(), abs=1e-6)
        assert soft.sum(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_the_mix_switches_as_often_as_asked():
    setting = Augmentation(mixup=0.8, cutmix=1.0, mixup_prob=0.8, mixup_switch=0.25)
    rng = np.random.default_rng(0)
    mixes = [draw_mix(rng, setting, 32, 32) for _ in range(4000)]
    boxes = sum(mix.box is not None for mix in mixes) / 4000
    untouched = sum(mix == Mix() for mix in mixes) / 4000
    assert boxes == pytest.approx(0.8 * 0.25, abs=0.03)
    assert untouched == pytest.approx(0.2, abs=0.03)


def test_smoothing_spreads_over_all_classes():
    soft = smooth_targets(torch.tensor([1]), 4, 0.1)
    assert soft[0].tolist() == pytest.approx([0.025, 0.925, 0.025, 0.025])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop": "centre"}, "unknown crop 'centre'; there are: none, pad, resized"),
        ({"interpolation": "nearest"}, "unknown interpolation"),
        ({"hflip": 2}, "hflip 2 is out of range"),
        ({"mixup": -1}, "mixup -1 is negative"),
        ({"scale": (1, 0.1)}, "scale .* low first"),
        ({"repeats": 0}, "repeats 0"),
    ],
)
def test_an_impossible_setting_is_refused(fields, message):
    with pytest.raises(UserError, match=message):
        Augmentation(**fields)


def test_the_recipes_mix_and_smooth_as_the_papers_say():
    assert augment.deit().repeats == 3
    assert augment.deit().soft
    assert augment.cifar().mixes
    assert not augment.laptop().soft
    assert augment.none() == Augmentation(hflip=0.0)


@pytest.mark.parametrize("config", ["rand-x9", "auto", "rand-mbig5"])
def test_an_unknown_randaugment_string_is_refused(config):
    with pytest.raises(UserError, match="unknown RandAugment string"):
        TrainView(Augmentation(rand_augment=config), side=8, hflip=0.0, fill=[0])


def test_an_image_of_which_no_bit_is_kept_is_black():
    # pillow 12 refuses this, and timm's magnitude 10 asks for it
    assert not np.asarray(posterize(to_image(photos(1)[0]), 0)).any()


def test_gray_is_pillows_gray():
    pixels = photos(4, side=16)
    for got, image in zip(gray(pixels), pixels, strict=True):
        assert torch.equal(got.to(torch.uint8), to_tensor(ImageOps.grayscale(to_image(image))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_survive_the_way_through_pillow(channels):
    for image in photos(2, channels):
        assert torch.equal(to_tensor(to_image(image)), image)


def test_images_of_two_channels_are_not_augmented_one_by_one():
    with pytest.raises(UserError, match="one or three channels"):
        to_image(torch.zeros(2, 4, 4, dtype=torch.uint8))
