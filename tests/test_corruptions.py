"""The 15 corruptions: against an independent package, their definitions and what is promised."""

import colorsys
import contextlib
import io
from functools import cache

import cv2
import imagecorruptions
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_image

from vitascope.errors import UserError
from vitascope.measure.robustness.corruptions import CORRUPTIONS, FAMILIES, corrupt
from vitascope.measure.robustness.corruptions.constants import CIFAR, IMAGENET, strength, table_for
from vitascope.measure.robustness.corruptions.filters import PHOTOGRAPHS, frost_textures, motion
from vitascope.measure.robustness.corruptions.operations import (
    Draws,
    disc,
    plasma,
    scattered,
    shot_table,
    to_levels,
)

FIXED = (  # nothing random about them
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
)


@cache
def photograph(side=96, left=180):
    """A piece of a real photograph. (3, side, side) uint8"""
    piece = load_sample_image("flower.jpg")[100:340, left : left + 240]
    image = Image.fromarray(piece).resize((side, side), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def theirs(image, name, severity, count=1):
    """What imagecorruptions-imaug makes of one image. (count, 3, h, w)"""
    array = image.permute(1, 2, 0).numpy()
    np.random.seed(severity)  # noqa: NPY002
    own = name in ("glass_blur", "impulse_noise")  # these take a seed of their own
    with contextlib.redirect_stdout(io.StringIO()):  # it prints
        made = [
            imagecorruptions.corrupt(array, severity, name, **({"seed": i} if own else {}))
            for i in range(count)
        ]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)


def ours(image, name, severity, count=1, seed=0):
    batch = image.expand(count, -1, -1, -1)
    return corrupt(batch, name, severity, seed=seed, constants="imagenet")


@pytest.mark.parametrize("name", FIXED)
def test_what_is_not_random_has_the_pixels_of_an_independent_package(name):
    image = photograph()
    for severity in range(1, 6):
        away = ours(image, name, severity).float() - theirs(image, name, severity).float()
        assert away.abs().mean() < 0.1  # levels of 255
        assert away.abs().max() <= 1


def spectrum(changes):
    """Power of a change in four rings of frequency. (4,)"""
    power = torch.fft.fft2(changes.double()).abs().square().mean((0, 1))
    down, across = (torch.fft.fftfreq(n).abs() for n in power.shape)
    radius = torch.maximum(down[:, None], across)
    return torch.stack(
        [power[(radius > r) & (radius <= r + 0.125)].sum() for r in (0, 0.125, 0.25, 0.375)]
    )


# Images, mean of the change in levels, its deviation relative, and its power in rings of frequency
# relative. Noise and blur agree closely; fog and frost are a few large random shapes on an image.
TOLERANCE = {
    "gaussian_noise": (8, 0.6, 0.01, 0.03),
    "shot_noise": (8, 0.6, 0.01, 0.03),
    "impulse_noise": (8, 0.6, 0.03, 0.06),
    "glass_blur": (2, 0.6, 0.03, 0.08),
    "motion_blur": (16, 1.5, 0.06, 0.25),
    "snow": (12, 4, 0.12, 0.35),
    "fog": (24, 15, 0.12, 0.35),
    "frost": (8, 30, 0.25, 1.5),  # made up, and it draws from a sixth, dark photograph
}


@pytest.mark.parametrize("name", TOLERANCE)
def test_what_is_random_changes_images_as_much_as_an_independent_package(name, monkeypatch):
    shuffle = "_shuffle_pixels_njit_glass_blur"  # as it is written: compiling it takes longer
    plain = getattr(imagecorruptions.corruptions, shuffle).py_func
    monkeypatch.setattr(imagecorruptions.corruptions, shuffle, plain)
    image = photograph()
    count, level, deviation, rings = TOLERANCE[name]
    for severity in (1, 3, 5):
        mine, peer = (
            make(image, name, severity, count).float() - image.float() for make in (ours, theirs)
        )
        assert abs(mine.mean() - peer.mean()) < level
        assert mine.std().item() == pytest.approx(peer.std().item(), rel=deviation)
        ratio = spectrum(mine) / spectrum(peer)
        assert ratio.log().abs().max() < np.log1p(rings)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_the_same_alone_and_in_any_batch(name, constants):
    images = torch.stack([photograph(32, left=left) for left in range(0, 120, 20)])
    for severity in (1, 5):
        whole = corrupt(images, name, severity, seed=3, constants=constants)
        parts = [
            corrupt(
                images[i : i + n],
                name,
                severity,
                seed=3,
                indices=range(i, i + n),
                constants=constants,
            )
            for i, n in ((0, 1), (1, 3), (4, 2))
        ]
        assert torch.equal(whole, torch.cat(parts))
        again = corrupt(images, name, severity, seed=3, constants=constants)
        assert torch.equal(whole, again)
        other = corrupt(images, name, severity, seed=4, constants=constants)
        assert torch.equal(whole, other) == (name in FIXED)


def test_equal_images_are_corrupted_each_in_its_own_way():
    images = photograph(32).expand(2, -1, -1, -1)
    for name in CORRUPTIONS:
        first, second = corrupt(images, name, 5, constants="imagenet")
        assert torch.equal(first, second) == (name in FIXED), name


def test_severity_zero_is_the_clean_image():
    images = torch.rand(2, 3, 16, 16)  # not even quantised
    for name in CORRUPTIONS:
        assert corrupt(images, name, 0) is images


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_any_size_and_grey_images_are_corrupted(name):
    for shape in ((1, 8, 8), (3, 8, 8), (3, 5, 7), (1, 1, 9), (3, 2, 2), (3, 33, 20), (1, 32, 32)):
        images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
        for constants in ("cifar", "imagenet"):
            for severity in (1, 5):
                made = corrupt(images, name, severity, constants=constants)
                assert made.shape == images.shape
                assert made.dtype == torch.uint8
                if constants == "imagenet" and min(shape[1:]) >= 20:
                    assert not made.equal(images)


def test_a_grey_image_is_corrupted_like_its_colour_twin():
    grey = photograph(48).float().mean(0, keepdim=True)[None].byte()
    for name in ("defocus_blur", "motion_blur", "zoom_blur", "snow", "fog", "brightness"):
        for other in ("contrast", "elastic_transform", "pixelate", name):
            alone, twin = (corrupt(x, other, 4) for x in (grey, grey.expand(-1, 3, -1, -1)))
            assert (alone.float() - twin.float()).abs().max() <= 1


def test_floats_are_taken_at_the_nearest_level_and_stay_floats():
    levels = photograph(32)[None]
    for name in CORRUPTIONS:
        made = corrupt(levels.double() / 255 + 1e-4, name, 3)
        assert made.dtype == torch.float64
        assert torch.equal(made * 255, corrupt(levels, name, 3).double())


def test_the_input_is_not_changed():
    images = photograph(32)[None]
    before = images.clone()
    for name in CORRUPTIONS:
        corrupt(images, name, 5)
    assert torch.equal(images, before)


def test_the_strongest_changes_more_than_the_weakest():
    images = photograph(32).expand(8, -1, -1, -1)
    for constants in ("cifar", "imagenet"):
        for name in CORRUPTIONS:
            if name == "elastic_transform":
                continue  # its affine part is published to be strongest at severity 1 or 2
            weak, strong = (
                (corrupt(images, name, s, constants=constants).float() - images).abs().mean()
                for s in (1, 5)
            )
            assert strong > weak, name


def test_tables_are_complete_and_chosen_by_size():
    assert len(CORRUPTIONS) == 15 == sum(len(names) for names in FAMILIES.values())
    for table in (CIFAR, IMAGENET):
        assert set(table) == set(CORRUPTIONS)
        assert all(len(row) == 5 for row in table.values())
    assert IMAGENET["elastic_transform"][0][0] * 224 == pytest.approx(244 * 2)
    assert [table_for(n, n) for n in (8, 32, 64, 65, 224)] == ["cifar"] * 3 + ["imagenet"] * 2
    assert table_for(32, 100) == "imagenet"


def test_shot_noise_has_the_mean_and_variance_of_counted_photons():
    for photons in (60, 25, 12):  # fewer than levels, so that levels tell the count
        seen = shot_table(photons).reshape(256, -1)[51].astype(float)  # a fifth of white
        counted = np.ceil(seen * photons / 255)  # the level was cut off
        assert counted.mean() == pytest.approx(photons / 5, rel=1e-3)
        assert counted.var() == pytest.approx(photons / 5, rel=5e-3)
    many = shot_table(500).reshape(256, -1)[51]
    assert many.mean() == pytest.approx(51 - 0.5, abs=0.1)  # cut off
    assert many.var() == pytest.approx(51 * 255 / 500 + 1, abs=1)


def test_noise_has_its_deviation_and_share():
    grey = torch.full((4, 3, 64, 64), 128, dtype=torch.uint8)
    noisy = corrupt(grey, "gaussian_noise", 2, constants="cifar").float()
    assert noisy.std().item() == pytest.approx(255 * 0.06, rel=0.02)
    assert noisy.mean().item() == pytest.approx(127.5, abs=0.3)  # levels are cut off
    hit = corrupt(grey, "impulse_noise", 5, constants="imagenet")
    assert (hit == 0).float().mean().item() == pytest.approx(0.135, abs=0.005)
    assert (hit == 255).float().mean().item() == pytest.approx(0.135, abs=0.005)


def test_brightness_adds_to_the_value_of_hsv():
    image = photograph(12)
    made = corrupt(image[None], "brightness", 4, constants="imagenet")[0]
    for pixel, bright in zip(image.flatten(1).T.tolist(), made.flatten(1).T.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(x / 255 for x in pixel))
        wanted = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.4, 1))
        assert bright == [int(255 * x + 1e-3) for x in wanted]


@pytest.mark.parametrize("table", [CIFAR, IMAGENET])
def test_the_disc_of_defocus_blur_is_softened_as_opencv_does(table):
    for radius, softness in table["defocus_blur"]:
        reach = max(8, int(radius))
        y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
        hard = (x**2 + y**2 <= radius**2).astype(float)
        size = (3, 3) if radius <= 8 else (5, 5)
        wanted = cv2.GaussianBlur(hard / hard.sum(), size, sigmaX=softness)
        assert disc(radius, softness) == pytest.approx(wanted, rel=1e-5, abs=2e-9)


def test_glass_blur_copies_pixel_after_pixel():
    height, width, reach, seed = 12, 15, 2, 7
    draws, again = (Draws(seed, "glass_blur", 1, [0, 5]) for _ in range(2))
    found = scattered(height, width, reach, draws)
    moves = again.whole(-reach, reach, 2, height - 2 * reach, width - 2 * reach)
    for image, move in enumerate(moves):
        pixels = torch.arange(height * width).view(height, width).clone()
        for y in range(height - reach, reach, -1):
            for x in range(width - reach, reach, -1):
                down, right = move[:, y - reach - 1, x - reach - 1].tolist()
                pixels[y, x] = pixels[y + down, x + right].item()
        assert torch.equal(found[image], pixels.flatten())


def test_motion_takes_the_pixels_along_the_angle():
    image = torch.rand(1, 2, 9, 11) * 255
    for angle in (0.0, 30.0, -45.0, -90.0, -135.0):
        weights = np.exp(-0.5 * (np.arange(7) / 2.0) ** 2)
        weights /= weights.sum()
        wanted = torch.zeros_like(image)
        for i, weight in enumerate(weights):
            y = np.arange(9) + int(np.ceil(i * np.sin(np.deg2rad(angle)) - 0.5))
            x = np.arange(11) + int(np.ceil(i * np.cos(np.deg2rad(angle)) - 0.5))
            wanted += weight * image[..., y.clip(0, 8), :][..., x.clip(0, 10)]
        found = motion(image, 3, 2.0, torch.tensor([angle]))
        assert (found - wanted).abs().max() < 1e-3


def test_plasma_is_the_diamond_square_landscape():
    side, decay = 8, 1.7
    land = plasma(side, decay, Draws(0, "fog", 1, [2]))[0].double()
    noise = Draws(0, "fog", 1, [2]).uniform(side * side, low=-1, high=1)[0].tolist()
    wanted, step, amplitude = np.zeros((side, side)), side, 1.0
    while step >= 2:
        half, spots = step // 2, range(0, side, step)
        ways = (
            (half, half, ((-half, -half), (-half, half), (half, -half), (half, half))),
            (0, half, ((0, -half), (0, half), (-half, 0), (half, 0))),
            (half, 0, ((0, -half), (0, half), (-half, 0), (half, 0))),
        )
        for down, right, neighbours in ways:
            for y in spots:
                for x in spots:
                    near = [
                        wanted[(y + down + i) % side, (x + right + j) % side] for i, j in neighbours
                    ]
                    wanted[y + down, x + right] = np.mean(near) + amplitude * noise.pop(0)
        step, amplitude = half, amplitude / decay**2
    wanted = (wanted - wanted.min()) / (wanted.max() - wanted.min())
    assert land.numpy() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("severity", "constants"), [(1, "cifar"), (4, "cifar"), (1, "imagenet")])
def test_elastic_transform_is_the_published_recipe_on_its_random_numbers(severity, constants):
    image, side = photograph(64), 64
    size, smooth, jolt = (
        side * share for share in strength("elastic_transform", severity, constants)
    )
    draws = Draws(0, "elastic_transform", severity, [0])
    reach = side // 3
    points = np.float32([[32 + reach, 32 + reach], [32 + reach, 32 - reach], [32 - reach] * 2])
    moved = points + draws.uniform(3, 2, low=-jolt, high=jolt)[0].numpy()
    warp = cv2.getAffineTransform(points, moved.astype(np.float32))
    array = image.permute(1, 2, 0).numpy().astype(np.float32)
    array = cv2.warpAffine(array, warp, (side, side), borderMode=cv2.BORDER_REFLECT_101)
    if size:
        right, down = (
            size * ndimage.gaussian_filter(noise, smooth, mode="reflect", truncate=3)
            for noise in draws.uniform(2, side, side, low=-1, high=1)[0].double().numpy()
        )
        y, x = np.mgrid[:side, :side]
        planes = [
            ndimage.map_coordinates(array[..., c], (y + down, x + right), order=1, mode="reflect")
            for c in range(3)
        ]
        array = np.stack(planes, axis=-1)
    made = corrupt(image[None], "elastic_transform", severity, constants=constants)[0]
    away = np.abs(made.permute(1, 2, 0).numpy() - np.floor(array + 1e-3))
    assert away.mean() < 0.5  # OpenCV rounds positions to 1/32 pixel
    assert np.quantile(away, 0.99) <= 4


def test_pixelate_is_pillows_box_filter_there_and_back():
    image = photograph(33)
    array = Image.fromarray(image.permute(1, 2, 0).numpy())
    for severity, share in enumerate(CIFAR["pixelate"], start=1):
        box, small = Image.Resampling.BOX, int(33 * share)
        wanted = np.array(array.resize((small, small), box).resize((33, 33), box))
        made = corrupt(image[None], "pixelate", severity)[0]
        assert np.array_equal(made.permute(1, 2, 0).numpy(), wanted)


def test_frost_has_the_colours_of_the_photographs_and_wraps_around():
    textures = frost_textures(False).float()
    for texture, (mean, deviation) in zip(textures, PHOTOGRAPHS, strict=True):
        assert texture.mean((1, 2)).tolist() == pytest.approx(mean, abs=2)
        assert texture.std((1, 2)).tolist() == pytest.approx(deviation, rel=0.1)
    seam = (textures[..., 0] - textures[..., -1]).abs().mean()
    inside = (textures[..., 1:] - textures[..., :-1]).abs().mean()
    assert seam < 1.5 * inside
    small = frost_textures(True)
    black = torch.zeros(1, 3, 128, 128, dtype=torch.uint8)
    made = corrupt(black, "frost", 1, constants="cifar")[0]
    assert any(torch.equal(made, (0.2 * ice + 1e-3).byte()) for ice in small)
    large = torch.zeros(1, 1, 700, 8, dtype=torch.uint8)
    assert (corrupt(large, "frost", 1) > 0).float().mean() > 0.9


def test_mistakes_are_told_in_one_line():
    images = torch.zeros(2, 3, 8, 8)
    with pytest.raises(UserError, match="did you mean 'snow'"):
        corrupt(images, "snwo", 1)
    with pytest.raises(UserError, match="severity 6"):
        corrupt(images, "snow", 6)
    with pytest.raises(UserError, match="constants 'mnist'"):
        corrupt(images, "snow", 1, constants="mnist")
    with pytest.raises(UserError, match="seed -1"):
        corrupt(images, "snow", 1, seed=-1)
    with pytest.raises(UserError, match="2 images came with 3 indices"):
        corrupt(images, "snow", 1, indices=[0, 1, 2])
    with pytest.raises(UserError, match=r"reach from -2 to 0"):
        corrupt(torch.tensor([-2.0, 0.0]).expand(1, 1, 2, 2), "snow", 1)
    with pytest.raises(UserError, match="nan"):
        corrupt(torch.full((1, 1, 2, 2), torch.nan), "snow", 1)
    for wrong in (torch.zeros(3, 8, 8), torch.zeros(1, 4, 8, 8), torch.zeros(1, 3, 8, 8).long()):
        with pytest.raises(UserError, match="images to corrupt must be"):
            to_levels(wrong)
    assert corrupt(images[:0], "snow", 1).shape == (0, 3, 8, 8)
