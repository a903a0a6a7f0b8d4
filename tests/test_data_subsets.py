"""What must hold of a part of a data set."""

from itertools import pairwise

import numpy as np
import pytest

from data_making import numbered
from vitascope.data import Subset, load, subset
from vitascope.data.subsets import split
from vitascope.errors import UserError


def numbers(images):
    return images.pixels(np.arange(len(images)))[:, 0, 0, 0].tolist()


def test_a_fraction_is_kept_of_each_class():
    half = subset(numbered(80), Subset(fraction=0.5))
    assert np.bincount(half.labels).tolist() == [10, 10, 10, 10]


def test_the_images_keep_their_labels():
    half = subset(numbered(80), Subset(fraction=0.5))
    assert [n % 4 for n in numbers(half)] == half.labels.tolist()


def test_the_same_seed_gives_the_same_images_and_another_seed_others():
    first, again, other = (
        numbers(subset(numbered(80), Subset(fraction=0.25, seed=s))) for s in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_a_smaller_fraction_is_contained_in_a_larger_one():
    sets = [
        set(numbers(subset(numbered(200), Subset(fraction=f)))) for f in (0.05, 0.1, 0.3, 0.5, 1)
    ]
    assert all(small < large for small, large in pairwise(sets))


def test_every_class_keeps_at_least_one_image():
    assert np.bincount(subset(numbered(80), Subset(fraction=0.001)).labels).tolist() == [1] * 4


def test_first_by_name_takes_the_first_of_each_class():
    chosen = subset(numbered(80), Subset(fraction=0.1, order="first"))
    assert numbers(chosen) == list(range(8))


def test_the_first_classes_are_the_first_by_sorted_name():
    images = numbered(40).of_classes(["pear", "fig", "apple", "plum"])
    chosen = subset(images, Subset(first_classes=2))
    assert chosen.classes == ("apple", "fig")
    assert {n % 4: label for n, label in zip(numbers(chosen), chosen.labels, strict=True)} == {
        2: 0,
        1: 1,
    }


def test_a_split_is_disjoint_and_whole_and_stratified():
    labels = np.repeat([0, 1, 2], [50, 20, 10])
    train, test = split(labels, 0.2, seed=0)
    assert sorted([*train, *test]) == list(range(80))
    assert np.bincount(labels[test]).tolist() == [10, 4, 2]


def test_a_split_depends_on_its_seed_alone():
    labels = np.repeat([0, 1], 50)
    np.random.seed(1)  # noqa: NPY002
    first = split(labels, 0.2, seed=5)[1].tolist()
    np.random.seed(2)  # noqa: NPY002
    assert split(labels, 0.2, seed=5)[1].tolist() == first
    assert split(labels, 0.2, seed=6)[1].tolist() != first


def test_a_class_with_one_image_keeps_it_for_training():
    train, test = split(np.array([0, 0, 0, 1]), 0.5, seed=0)
    assert 3 in train
    assert len(test) == 2


def test_the_digits_are_split_with_a_note():
    digits = load("digits", seed=2)
    assert digits.notes == ("split 20 % off for testing, stratified, seed 2",)
    assert len(digits.train) + len(digits.test) == 1797
    shares = np.bincount(digits.test.labels) / np.bincount(digits.train.labels)
    assert np.abs(shares - 0.25).max() < 0.01
    assert not digits.flips


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fraction": 0}, "fraction 0 is out of range"),
        ({"fraction": 1.5}, "fraction 1.5"),
        ({"first_classes": 0}, "first_classes 0"),
        ({"order": "last"}, "unknown order 'last'"),
        ({"seed": -1, "fraction": 0.5}, "seed -1 is out of range"),
        ({"first_classes": 9}, "with 4 classes; give at most 4"),
    ],
)
def test_an_impossible_subset_is_refused(fields, message):
    with pytest.raises(UserError, match=message):
        subset(numbered(40), Subset(**fields))
