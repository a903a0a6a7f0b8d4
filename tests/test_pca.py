"""PCA of patch features: colours that agree with scikit-learn and with planted groups."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

import vitascope
from vitascope import measure
from vitascope.errors import UserError
from vitascope.figure import Style
from vitascope.measure.features.figures import pca as pca_figure
from vitascope.measure.features.pca import components
from vitascope.measure.instrument import ModelRecord
from vitascope.report.figures.maps import lit


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def small(**options):
    shape = {"img_size": 32, "patch_size": 4, "depth": 2, "num_classes": 3}
    return vitascope.create_model("vit_micro", **{**shape, **options}).eval()


def halves(count=4):
    """Images whose left half is red and whose right half is blue, with a little noise."""
    images = 0.05 * torch.randn(count, 3, 32, 32)
    images[:, 0, :, :16] += 2
    images[:, 2, :, 16:] += 2
    return images


def test_components_are_those_of_scikit_learn_up_to_the_sign():
    rows = torch.randn(200, 7) @ torch.randn(7, 7)
    ours, shares = components(rows)
    fitted = PCA(3).fit(rows.double().numpy())
    theirs = fitted.transform(rows.double().numpy())
    signs = np.sign((ours.numpy() * theirs).sum(0))
    np.testing.assert_allclose(ours.numpy(), signs * theirs, atol=1e-6)
    np.testing.assert_allclose(shares.numpy(), fitted.explained_variance_ratio_, atol=1e-6)


def test_patches_that_look_alike_have_one_colour_in_all_images():
    found = measure.pca(small(), [halves(2), halves(2)], units="patch_embed")
    left, right = found.colours[:, :, :4], found.colours[:, :, 4:]
    first = found.colours[..., 0]
    assert first.shape == (4, 8, 8)
    assert abs(left[..., 0].mean() - right[..., 0].mean()) > 0.8
    assert max(left[..., 0].std(), right[..., 0].std()) < 0.2
    assert found.num_images == 4
    assert found.explained[0] > 0.5


def test_the_last_layer_with_enough_places_is_taken_and_named():
    found = measure.pca(small(), [halves()])
    assert found.unit == "blocks.1.mlp"
    record = found.to_record()
    assert record.values["unit"] == found.unit
    assert record.arrays["pictures"].shape == (4, 32, 32, 3)


def test_a_model_without_feature_maps_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    with pytest.raises(UserError, match="pca needs feature maps"):
        measure.pca(model, [halves()])


def test_the_figure_shows_colours_as_they_are_below_the_photographs():
    record = measure.pca(small(), [halves()]).to_record()
    figure = pca_figure([ModelRecord(label="model", style=Style(), record=record)])
    (panel,) = figure.panels
    photographs, colours = lit(panel)
    np.testing.assert_allclose(photographs, record.arrays["pictures"], atol=1)
    expected = record.arrays["colours"].repeat(4, axis=1).repeat(4, axis=2)
    np.testing.assert_allclose(colours / 255, expected, atol=0.01)
