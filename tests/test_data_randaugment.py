"""The batched operations give pillow's pixels."""

import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from timm.data import auto_augment

from data_making import photos
from vitascope.data.augment import operations
from vitascope.data.augment import policy as policies
from vitascope.data.augment.operations import affine, jitter
from vitascope.errors import UserError

GRAY = torch.tensor([128, 128, 128], dtype=torch.uint8)


def pillow(image):
    array = image.permute(1, 2, 0).numpy()
    return Image.fromarray(array if array.shape[2] == 3 else array[..., 0])


def tensor(image):
    array = np.array(image)
    return torch.from_numpy(array if array.ndim == 3 else array[..., None]).permute(2, 0, 1)


def apply_one(pixels, name, value, interpolation="bilinear"):
    """One operation with one argument to all images of a batch."""
    policy = policies.policy("rand-m9-inc1")
    policy = policies.Policy(**{**vars(policy), "operations": (name,)})
    chosen = np.zeros((1, len(pixels)), dtype=int)
    argument = np.full((1, len(pixels)), float(value))
    fill = GRAY[: pixels.shape[1]]
    return policies.augment(pixels.clone(), policy, chosen, argument, fill, interpolation)


POINTWISE = [
    ("AutoContrast", 0),
    ("Equalize", 0),
    ("Invert", 0),
    ("PosterizeIncreasing", 1),
    ("PosterizeOriginal", 8),
    ("Posterize", 4),
    ("SolarizeIncreasing", 26),
    ("Solarize", 256),
    ("SolarizeAdd", 99),
    ("ColorIncreasing", 1.81),
    ("ColorIncreasing", 0.19),
    ("ContrastIncreasing", 1.81),
    ("ContrastIncreasing", 0.19),
    ("BrightnessIncreasing", 1.81),
    ("BrightnessIncreasing", 0.19),
    ("SharpnessIncreasing", 1.81),
    ("SharpnessIncreasing", 0.19),
]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "value"), POINTWISE)
def test_an_operation_on_values_gives_pillows_pixels_exactly(name, value, channels):
    pixels = photos(8, channels, side=32)
    pixels[0] = 7  # one value only: nothing to stretch or to equalise
    pixels[1] //= 4
    pixels[2] = torch.randint(0, 256, pixels[2].shape, generator=torch.Generator().manual_seed(0))
    args = () if name in ("AutoContrast", "Equalize", "Invert") else (value,)
    if "osterize" in name or "olarize" in name:
        args = tuple(int(a) for a in args)
    wanted = [auto_augment.NAME_TO_OP[name](pillow(image), *args) for image in pixels]
    for got, want in zip(apply_one(pixels, name, value), wanted, strict=True):
        assert torch.equal(got, tensor(want))


MOVES = [("Rotate", 27.3), ("Rotate", -11), ("ShearX", 0.27), ("ShearY", -0.2)]
MOVES += [("TranslateXRel", 0.4), ("TranslateYRel", -0.31), ("TranslateX", 5), ("TranslateY", -3)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "value"), MOVES)
def test_a_move_gives_pillows_pixels_to_rounding(name, value, channels):
    pixels = photos(4, channels, side=32)
    fill = (128,) * 3 if channels == 3 else 128
    options = {"fillcolor": fill, "resample": Image.Resampling.BILINEAR}
    wanted = [auto_augment.NAME_TO_OP[name](pillow(i), value, **dict(options)) for i in pixels]
    for got, want in zip(apply_one(pixels, name, value), wanted, strict=True):
        assert (got.int() - tensor(want).int()).abs().max() <= 1


@pytest.mark.parametrize(("name", "value"), MOVES)
def test_a_bicubic_move_is_close_to_pillows(name, value):
    pixels = photos(4, side=32)
    options = {"fillcolor": (128,) * 3, "resample": Image.Resampling.BICUBIC}
    wanted = [auto_augment.NAME_TO_OP[name](pillow(i), value, **dict(options)) for i in pixels]
    for got, want in zip(apply_one(pixels, name, value, "bicubic"), wanted, strict=True):
        assert (got.int() - tensor(want).int()).abs().float().mean() < 0.75


def test_an_image_of_which_no_bit_is_kept_is_black():
    # pillow 12 refuses this, and timm's magnitude 10 asks for it
    assert (apply_one(photos(2), "PosterizeIncreasing", 0) == 0).all()


def test_a_move_by_nothing_changes_nothing():
    pixels = photos(4)
    identity = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]).double().expand(4, 2, 3)
    for interpolation in ("bilinear", "bicubic"):
        assert torch.equal(affine(pixels, identity, GRAY, interpolation), pixels)


def test_every_magnitude_means_what_timm_means_by_it(monkeypatch):
    names = [*auto_augment._RAND_TRANSFORMS, *auto_augment._RAND_INCREASING_TRANSFORMS]
    for name in names:
        function = auto_augment.LEVEL_TO_ARG[name]
        for level in (0.0, 2.5, 7.9, 9.0, 10.0):
            for sign, chance in ((1.0, 0.2), (-1.0, 0.8)):
                monkeypatch.setattr(random, "random", lambda chance=chance: chance)
                wanted = function(level, {"translate_const": int(32 * 0.45)}) if function else (0,)
                got = policies.arguments(name, np.array([level]), np.array([sign]), 32)
                assert got[0] == pytest.approx(wanted[0]), (name, level, sign)


def test_a_batch_of_mixed_operations_treats_each_image_as_it_would_be_alone():
    policy = policies.policy("rand-m9-mstd0.5-inc1")
    pixels = photos(64, side=16)
    chosen, argument = policies.draw(np.random.default_rng(0), policy, 64, 16)
    together = policies.augment(pixels.clone(), policy, chosen, argument, GRAY, "bicubic")
    for i in range(64):
        one, rows = pixels[i : i + 1].clone(), slice(i, i + 1)
        alone = policies.augment(one, policy, chosen[:, rows], argument[:, rows], GRAY, "bicubic")
        assert torch.equal(together[i], alone[0])


def test_operations_are_drawn_as_often_as_timm_draws_them():
    policy = policies.policy("rand-m9-mstd0.5-inc1")
    chosen, _ = policies.draw(np.random.default_rng(0), policy, 30_000, 32)
    shares = np.bincount((chosen + 1).ravel()) / chosen.size
    assert shares[0] == pytest.approx(0.5, abs=0.01)
    assert shares[1:] == pytest.approx(np.full(15, 0.5 / 15), abs=0.003)


def test_weighted_operations_are_drawn_without_replacement():
    policy = policies.policy("rand-m9-tweights-p1.0")
    chosen, _ = policies.draw(np.random.default_rng(0), policy, 5000, 32)
    assert (chosen[0] != chosen[1]).all()
    first = np.bincount(chosen[0], minlength=15) / 5000
    assert first == pytest.approx(np.array(policy.weights), abs=0.03)


@pytest.mark.parametrize("config", ["rand-x9", "auto", "rand-mbig5"])
def test_an_unknown_string_is_refused(config):
    with pytest.raises(UserError, match="unknown RandAugment string"):
        policies.policy(config)


def test_an_operation_without_a_batched_form_is_named():
    with pytest.raises(UserError, match="Desaturate, GaussianBlur"):
        policies.policy("rand-m9-t3a")


def test_colour_jitter_is_pillows_enhancements_in_turn():
    pixels = photos(3, side=16)
    factors = np.array([[1.3, 0.7, 1.0], [0.8, 1.4, 1.0], [0.6, 1.2, 1.0]])
    for got, image, (b, c, s) in zip(jitter(pixels, factors), pixels, factors.T, strict=True):
        want = ImageEnhance.Brightness(pillow(image)).enhance(b)
        want = ImageEnhance.Contrast(want).enhance(c)
        assert torch.equal(got, tensor(ImageEnhance.Color(want).enhance(s)))


def test_gray_is_pillows_gray():
    pixels = photos(4, side=16)
    for got, image in zip(operations.gray(pixels), pixels, strict=True):
        assert torch.equal(got.to(torch.uint8), tensor(ImageOps.grayscale(pillow(image))))
