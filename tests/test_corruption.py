"""Accuracy under corruptions, made on the fly or read."""

import numpy as np
import pytest
import torch
from make_results import section
from torch import nn

from benchmarks.corruptions import time_corruptions
from data_making import photos
from vitascope.data import EvalBatches, MemoryImages
from vitascope.errors import UserError
from vitascope.measure import corruption
from vitascope.measure.robustness.corruption import corruption_of_sets, mean_corruption_error
from vitascope.measure.robustness.corruptions import CORRUPTIONS, corrupt
from vitascope.measure.robustness.corruptions.constants import ALEXNET
from vitascope.record import load

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def judge(num_classes=4, side=16):
    """A classifier that looks at pixels."""
    torch.manual_seed(1)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, num_classes))


def sure(model, count=24, side=16):
    """Images with the labels that the model gives them."""
    pixels = photos(count, side=side)
    draft = MemoryImages(pixels, np.zeros(count), [str(i) for i in range(4)])
    with torch.no_grad():
        batch = next(iter(EvalBatches(draft, batch_size=count, mean=MEAN, std=STD)))
        return MemoryImages(pixels, model(batch.images).argmax(1).numpy(), draft.classes)


def in_batches(images, size=24):
    return EvalBatches(images, batch_size=size, mean=MEAN, std=STD)


def test_accuracy_is_that_of_the_corrupted_pixels():
    model = judge()
    images = sure(model)
    steps = []
    found = corruption(
        model,
        in_batches(images),
        mean=MEAN,
        std=STD,
        corruptions=["contrast", "snow"],
        severities=(2, 5),
        seed=7,
        on_step=lambda what, ahead: steps.append((what, ahead)),
    )
    assert found.clean == 1.0
    assert (found.constants, found.num_images, found.mce) == ("cifar", 24, None)
    mean, std = (torch.tensor(x).view(1, 3, 1, 1) for x in (MEAN, STD))
    for row, name in zip(found.accuracy, ("contrast", "snow"), strict=True):
        for value, severity in zip(row, (2, 5), strict=True):
            pixels = corrupt(images.pixels(np.arange(24)), name, severity, seed=7)
            with torch.no_grad():
                answers = model((pixels / 255 - mean) / std).argmax(1).numpy()
            assert value == (answers == images.labels).mean()
    assert found.accuracy.min() < 1.0
    assert found.by_corruption["snow"] == found.accuracy[1].mean()
    assert found.mean == found.accuracy.mean()
    assert steps == [("contrast 2", 4), ("contrast 5", 3), ("snow 2", 2), ("snow 5", 1)]


def test_numbers_do_not_depend_on_the_batches_and_come_back_with_the_seed():
    model = judge()
    images = sure(model)

    few = ("gaussian_noise", "glass_blur", "snow", "elastic_transform")

    def run(size, seed):
        given = {"mean": MEAN, "std": STD, "severities": (3,), "seed": seed, "corruptions": few}
        return corruption(model, in_batches(images, size), **given).accuracy

    assert np.array_equal(run(24, 0), run(7, 0))
    assert not np.array_equal(run(24, 0), run(24, 5))


def test_a_record_keeps_the_table(tmp_path):
    model = judge()
    model.train()
    found = corruption(model, in_batches(sure(model, 4)), mean=MEAN, std=STD)
    assert model.training
    assert found.accuracy.shape == (15, 5)
    back = load(found.to_record().save(tmp_path / "c"))
    assert (back.kind, back.seed) == ("corruption", 0)
    assert np.array_equal(back.arrays["accuracy"], found.accuracy)
    assert back.values["corruptions"] == list(CORRUPTIONS)
    assert back.values["mean"] == found.mean


def test_alexnets_own_errors_are_an_mce_of_100_and_half_of_them_50():
    assert mean_corruption_error(ALEXNET) == pytest.approx(100)
    assert mean_corruption_error({k: v / 2 for k, v in ALEXNET.items()}) == pytest.approx(50)


def test_mce_is_given_only_where_alexnets_errors_apply():
    given = {"mean": MEAN, "std": STD}
    batches = [(torch.zeros(1, 3, 224, 224), torch.tensor([3]))]
    model = judge(1000)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.copy_(-torch.arange(1000.0))  # it always says 0: all wrong
    wrong = corruption(model, batches, **given)
    wanted = mean_corruption_error(dict.fromkeys(CORRUPTIONS, 1.0))
    assert wrong.mce == pytest.approx(wanted)
    assert wrong.mce > 100
    few = {"severities": (1,), "corruptions": ("contrast",)}
    assert corruption(model, batches, **given, **few).mce is None
    small = [(torch.zeros(1, 3, 32, 32), torch.tensor([3]))]
    assert corruption(model, small, **given).mce is None
    assert corruption(judge(10), batches, **given).mce is None


def test_sets_that_were_read_give_the_same_result_as_making_them():
    model = judge()
    images = sure(model)
    options = {"corruptions": ("fog", "pixelate"), "severities": (1, 4)}
    made = corruption(model, in_batches(images), mean=MEAN, std=STD, **options)

    def sets(name, severity):
        pixels = corrupt(images.pixels(np.arange(24)), name, severity)
        return in_batches(MemoryImages(pixels, images.labels, images.classes), 10)

    read = corruption_of_sets(model, sets, clean=in_batches(images), **options)
    assert np.array_equal(read.accuracy, made.accuracy)
    assert (read.clean, read.constants, read.seed) == (made.clean, "given", None)
    assert corruption_of_sets(model, sets, **options).clean is None


def test_mistakes_are_told_in_one_line():
    model = judge()
    batches = in_batches(sure(model, 4))
    for options, message in (
        ({"corruptions": ["fogg"]}, "did you mean 'fog'"),
        ({"severities": (0, 1)}, "severities from 1 to 5"),
        ({"severities": ()}, "severities from 1 to 5"),
        ({"constants": "x"}, "constants 'x'"),
    ):
        with pytest.raises(UserError, match=message):
            corruption(model, batches, mean=MEAN, std=STD, **options)
    with pytest.raises(UserError, match="give the mean and std"):
        corruption(model, batches, mean=(0.0,) * 3, std=(1.0,) * 3)
    with pytest.raises(UserError, match="no images"):
        corruption(model, [], mean=MEAN, std=STD)
    with pytest.raises(UserError, match="needs labels"):
        corruption(model, [torch.zeros(1, 3, 8, 8)], mean=MEAN, std=STD)
    uneven = {1: photos(2), 2: photos(3)}
    with pytest.raises(UserError, match="from 2 to 3 images"):
        corruption_of_sets(
            model,
            lambda name, severity: [(uneven[severity] / 255, torch.zeros(len(uneven[severity])))],
            corruptions="fog",
            severities=(1, 2),
        )


def test_the_benchmark_counts_images_a_second_beside_its_peer(tmp_path):
    found = time_corruptions(
        sides=(32,), batch_size=1, rounds=1, corruptions=("contrast", "brightness")
    )
    assert [row[0].split(" / ")[1] for row in found.speed] == ["imagecorruptions-imaug"] * 2
    names = [what for what, _, _ in found.rates]
    assert names[2:] == ["contrast, 32 px", "brightness, 32 px"]
    (_, mean, _), (_, slowest, _), *each = found.rates
    assert slowest == min(ours for _, ours, _ in each)
    assert mean == pytest.approx(2 / sum(1 / ours for _, ours, _ in each))
    text = section(load(found.to_record().save(tmp_path / "corruptions")))
    assert "whole set, 32 px / imagecorruptions-imaug" in text
    assert f"| contrast, 32 px | {each[0][1]:,.0f} |" in text
