"""Maps are drawn over images, whatever their shape."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitascope
from vitascope.errors import UserError

IMAGE = np.random.default_rng(0).random((16, 24, 3))


def drawn(*args, **options):
    """The map that the figure shows."""
    figure = vitascope.show(*args, **options)
    return np.asarray(figure.axes[1].images[1].get_array())


def test_a_map_of_the_grid_is_drawn_as_it_is():
    grid = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(drawn(IMAGE, grid), grid)
    np.testing.assert_array_equal(drawn(IMAGE, torch.tensor(grid)), grid)


def test_attention_is_averaged_over_heads_and_its_query_is_a_row():
    maps = torch.rand(1, 3, 5, 5)  # a class token and 2 x 2 patches
    expected = maps[0].mean(0).numpy()
    np.testing.assert_allclose(drawn(IMAGE, maps), expected[0, 1:].reshape(2, 2), rtol=1e-6)
    found = drawn(IMAGE, maps, query=2)
    np.testing.assert_allclose(found, expected[2, 1:].reshape(2, 2), rtol=1e-6)
    oblong = drawn(IMAGE, torch.rand(3, 7, 7), query=0, grid=(2, 3))
    assert oblong.shape == (2, 3)


def test_attention_without_a_class_token_is_no_map_of_the_grid():
    assert drawn(IMAGE, torch.rand(3, 16, 16)).shape == (4, 4)
    assert drawn(IMAGE, np.random.rand(16, 16)).shape == (16, 16)  # noqa: NPY002
    assert drawn(IMAGE, torch.rand(16, 16), query=5).shape == (4, 4)


@pytest.mark.parametrize(
    "kind", ["array", "channels first", "normalised", "pillow", "file", "grey"]
)
def test_an_image_may_be_anything(kind, tmp_path):
    pillow = Image.fromarray((255 * IMAGE).astype(np.uint8))
    pillow.save(tmp_path / "a.png")
    image = {
        "array": IMAGE,
        "channels first": torch.tensor(IMAGE).permute(2, 0, 1),
        "normalised": 4 * torch.tensor(IMAGE).permute(2, 0, 1)[None] - 2,
        "pillow": pillow,
        "file": tmp_path / "a.png",
        "grey": IMAGE[..., 0],
    }[kind]
    figure = vitascope.show(image, np.eye(2), title=kind)
    shown = np.asarray(figure.axes[0].images[0].get_array())
    assert shown.shape == (16, 24, 3)
    assert 0 <= shown.min() < shown.max() <= 1


@pytest.mark.parametrize(
    ("image", "heat", "options", "says"),
    [
        (IMAGE, np.eye(5), {"query": 9}, "there is no token 9; the map has 5"),
        (IMAGE, np.zeros(5), {"grid": (3, 3)}, "a grid of 3 x 3 patches does not fit 5 tokens"),
        (IMAGE, np.zeros((2, 2, 2, 2)), {}, "not (2, 2, 2, 2)"),
        (np.zeros((2, 3, 4, 5)), np.eye(2), {}, "an image has the shape"),
        ("nowhere.png", np.eye(2), {}, "nowhere.png"),
        (IMAGE, "a map", {}, "a map is a tensor"),
    ],
)
def test_what_does_not_fit_is_refused(image, heat, options, says):
    with pytest.raises(UserError) as error:
        vitascope.show(image, heat, **options)
    assert says in str(error.value)
