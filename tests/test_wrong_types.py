"""What is not a model, not images or not an option is refused in one line, from Python too."""

import warnings

import numpy as np
import pytest
import torch

import vitascope
from vitascope import capture, measure
from vitascope.errors import UserError

IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
PAIRS = [(IMAGES, torch.arange(4))]
LABELLED = ("lesion", "masking", "calibration", "hessian", "landscape", "density", "blocks", "miou")
PIXELS = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
CHANGED = ("fgsm", "pgd", "occlusion", "frequency", "corruption")
STREAMED = ("nonlocality", "entropy", "maps", "fourier", "variance", "norms", "cka")


@pytest.fixture(scope="module")
def model():
    return vitascope.create_model("vit_micro").eval()


def instrument(name, model, images=IMAGES):
    pairs = [(images, torch.arange(4))]
    if name in CHANGED:
        return getattr(measure, name)(model, pairs, **PIXELS)
    return getattr(measure, name)(model, pairs if name in LABELLED else images)


@pytest.mark.parametrize("name", [*STREAMED, "relevance", "gates", *LABELLED, *CHANGED])
def test_an_instrument_refuses_the_name_of_a_model(name):
    with pytest.raises(UserError, match="'vit_micro'"):
        instrument(name, "vit_micro")


@pytest.mark.parametrize("name", [*STREAMED, "relevance", "lesion", "calibration", "fgsm"])
def test_an_instrument_refuses_images_that_are_not_finite(name, model):
    images = IMAGES.clone()
    images[1, 0, 3, 3] = float("nan")
    with pytest.raises(UserError, match=r"NaN|0 and 1"):
        instrument(name, model, images)


@pytest.mark.parametrize("images", [None, 3, "photos", torch.zeros(()), torch.zeros(3)])
def test_an_instrument_refuses_what_is_no_batch_of_images(images, model):
    with pytest.raises(UserError):
        measure.entropy(model, images)


@pytest.mark.parametrize(
    "call",
    [
        lambda: vitascope.compare(data="digits", models=3),
        lambda: vitascope.compare(data="digits", out=""),
        lambda: vitascope.compare(data="digits", seeds=[0, "1"]),
        lambda: vitascope.compare(data=None),
        lambda: vitascope.compare(3),
        lambda: vitascope.inspect("vit_micro", measures=3),
        lambda: vitascope.inspect("vit_micro", query=(0.5, 0.5, 0.5)),
        lambda: vitascope.inspect("vit_micro", images="8"),
        lambda: vitascope.inspect("vit_micro", pretrained=1),
        lambda: vitascope.inspect(3),
        lambda: vitascope.train("vit_micro", data="digits", out=3),
        lambda: vitascope.study(None),
        lambda: vitascope.load(3),
        lambda: vitascope.broadcast("vit_micro"),
        lambda: vitascope.create_model(3),
        lambda: vitascope.create_model("vit_micro", num_classes=-1),
        lambda: vitascope.create_model("vit_micro", in_chans=0),
        lambda: vitascope.list_models(3),
        lambda: capture.units("vit_micro", IMAGES),
        lambda: capture.prefix_tokens("vit_micro", IMAGES),
    ],
)
def test_a_wrong_type_is_refused(call):
    with pytest.raises(UserError):
        call()


def test_numbers_of_numpy_are_numbers():
    done = vitascope.inspect(
        "convit_micro", data="digits", measures="gates", images=np.int64(8), quiet=True
    )
    assert list(done.records) == ["gates"]


@pytest.mark.parametrize("image", ["", None, 3])
def test_predict_refuses_what_is_no_image(image, model):
    with pytest.raises(UserError, match="an image is a file"):
        vitascope.predict(model, image)


def test_a_model_without_weights_is_built_but_not_measured():
    with torch.device("meta"):
        empty = vitascope.create_model("vit_micro+cb")
    with pytest.raises(UserError, match="meta device"):
        measure.fourier(empty, IMAGES)


def test_a_traced_model_is_refused_where_its_inside_is_needed(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.no_grad():
            traced = torch.jit.trace(model, IMAGES)
    with pytest.raises(UserError, match="TorchScript"):
        measure.entropy(traced, IMAGES)
