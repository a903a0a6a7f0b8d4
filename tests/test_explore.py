"""The maps behind the explorer: what is stored, what it costs, what is read back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from explorer_making import row_distance, token_shares
from vitascope import capture, measure
from vitascope.commands import main
from vitascope.data import load
from vitascope.errors import UserError
from vitascope.explorer.compression import (
    FLOOR,
    TOLERANCE,
    choose_images,
    compress,
    counts_that_fit,
)
from vitascope.explorer.explore import explore
from vitascope.explorer.maps import grid_layout, separable
from vitascope.loading.opening import build
from vitascope.loading.session import Session, open_session
from vitascope.measure.attention.entropy import row_entropy
from vitascope.measure.attribution.relevance import Explainer
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.record import load as load_record
from vitascope.report.explorer import attention_maps as stored_maps


def attention(count, size, width, strength=1.0):
    """Softmax maps of random queries and keys."""
    query, key = torch.randn(2, count, size, width)
    return (strength * query @ key.mT).softmax(-1)


def variation(found, maps):
    return ((found - maps).abs().sum(-1) / 2).max().item()


@pytest.mark.parametrize("strength", [0.1, 1.0, 2.0])
def test_maps_of_a_narrow_head_are_stored_as_few_components_within_the_tolerance(strength):
    maps = attention(5, 36, 6, strength)
    small = compress(maps)
    assert set(small.arrays) == {"query", "key", "scale"}
    assert {small.arrays[part].dtype for part in ("query", "key")} == {np.dtype("int8")}
    assert small.num_bytes < maps.numel()
    assert variation(small.expanded(), maps) == pytest.approx(small.max_error, abs=1e-5)
    assert small.max_error <= TOLERANCE


def test_maps_with_zeros_are_stored_as_levels_and_keep_them():
    maps = torch.eye(9).expand(2, 9, 9) * 0.75 + torch.eye(9).roll(1, 0) * 0.25
    small = compress(maps)
    assert set(small.arrays) == {"levels"}
    read = small.expanded()
    assert torch.equal(read == 0, maps == 0)
    torch.testing.assert_close(read.sum(-1), torch.ones(2, 9))
    assert small.max_error <= TOLERANCE / 2


def test_a_level_is_off_by_at_most_half_a_step():
    weights = torch.logspace(-4.9, -0.01, 200)
    maps = torch.stack([weights, 1 - weights], dim=-1)[None]
    read = compress(maps, tolerance=-1.0).expanded()  # what no component can reach
    step = -np.log(FLOOR) / 254
    odds = (read[..., 0] / read[..., 1]).log() - (maps[..., 0] / maps[..., 1]).log()
    assert odds.abs().max() <= step + 1e-4  # half a step each


def test_images_of_different_classes_come_first():
    labels = np.repeat(np.arange(4), [50, 30, 1, 9])
    picked = choose_images(labels, 6)
    assert set(labels[picked[:]]) == {0, 1, 2, 3}
    assert len(set(picked)) == 6
    assert sorted(labels[picked]) == list(labels[picked])
    assert list(choose_images(labels, 6)) == list(picked)


def test_fewer_epochs_and_images_are_kept_where_all_do_not_fit():
    assert counts_that_fit(6, 6, 100) == (6, 6)
    images, epochs = counts_that_fit(6, 4, 10)
    assert images * epochs <= 10
    assert abs(images - epochs) <= 1
    assert counts_that_fit(6, 6, 0) == (1, 1)


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module", params=["convit_micro", "vit_micro"])
def pair(request, digits):
    torch.manual_seed(0)
    session = Session(opened=build(request.param, digits), given=digits)
    with torch.no_grad():
        for name, value in session.model.named_parameters():
            if name.endswith(("gating_param", "pos_proj.weight", "qk.weight", "qkv.weight")):
                value.add_(torch.randn_like(value) * 0.3)
    return session, explore(session, num_images=4)


def batch_of(record, digits):
    where = [image["index"] for image in record.values["images"]]
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (digits.mean, digits.std))
    return (digits.test.pixels(where) / 255 - mean) / std


def test_what_is_read_back_is_what_the_model_uses(pair, digits):
    session, record = pair
    with capture.attention(session.model) as used, capture.evaluating(session.model):
        session.model(batch_of(record, digits))
    assert [layer["name"] for layer in record.values["layers"]] == list(used)
    for layer in record.values["layers"]:
        name = layer["name"]
        assert layer["gated"] == (name in capture.gated_layers(session.model))
        found = np.stack([stored_maps.mixed(record, name, image=i) for i in range(4)])
        truth = used[name][..., -found.shape[-2] :, -found.shape[-1] :]  # without class tokens
        truth = truth / truth.sum(-1, keepdim=True)
        assert variation(torch.from_numpy(found), truth) <= TOLERANCE
        assert layer["max_error"] <= TOLERANCE


def test_distances_read_off_the_maps_are_the_instruments(pair, digits):
    session, record = pair
    truth = measure.nonlocality(session.model, [batch_of(record, digits)])
    for layer in record.values["layers"]:
        name = layer["name"]
        maps = np.stack([stored_maps.mixed(record, name, image=i) for i in range(4)])
        found = row_distance(maps, layer).mean((0, 2))
        np.testing.assert_allclose(found, truth.distance[name], atol=0.01)


def test_entropies_read_off_the_maps_are_those_of_patches_among_patches(pair, digits):
    session, record = pair
    with capture.attention(session.model) as used, capture.evaluating(session.model):
        session.model(batch_of(record, digits))
    for layer in record.values["layers"]:
        found = stored_maps.mixed(record, layer["name"], image=1)
        truth = used[layer["name"]][1, :, -found.shape[-1] :, -found.shape[-1] :]
        truth = truth / truth.sum(-1, keepdim=True)
        read = row_entropy(torch.from_numpy(found))
        np.testing.assert_allclose(read, row_entropy(truth), atol=0.01)


def test_forced_gates_give_position_alone_or_content_alone(pair):
    _, record = pair
    for layer in (layer["name"] for layer in record.values["layers"] if layer["gated"]):
        for gate, part in ((1.0, stored_maps.position), (0.0, stored_maps.content)):
            forced = stored_maps.mixed(record, layer, gate=gate)
            np.testing.assert_array_equal(forced, part(record, layer))


def test_the_model_is_left_as_it_came_and_answers_are_kept(pair, digits):
    session, record = pair
    with torch.no_grad():
        said = session.model(batch_of(record, digits)).softmax(-1)
    (answers,) = record.values["answers"]
    assert [name for name, _ in answers] == [digits.classes[i] for i in said.argmax(-1)]
    np.testing.assert_allclose([p for _, p in answers], said.max(-1).values, atol=1e-4)
    assert record.arrays["image/0"].tobytes().startswith(b"\x89PNG")
    assert len({image["label"] for image in record.values["images"]}) == 4


def test_a_layers_positions_come_apart_into_down_and_across():
    down, across = (torch.rand(2, n, n).softmax(-1) for n in (3, 4))
    whole = torch.einsum("hac,hbd->habcd", down, across).reshape(2, 12, 12)
    found = separable(whole, (3, 4), (3, 4))
    torch.testing.assert_close(found[0], down)
    torch.testing.assert_close(found[1], across)
    assert separable(torch.rand(2, 12, 12).softmax(-1).roll(1, 1) ** 2, (3, 4), (3, 4)) is None


def test_windows_become_whole_maps_that_are_zero_outside():
    """Two windows of 2 x 2 pixels side by side, a class token in each."""
    window = torch.tensor([[np.nan, np.nan], [0, 0], [0, 4], [4, 0], [4, 4.0]])
    places = torch.stack([window, window + torch.tensor([0, 8.0])])
    layout = grid_layout(capture.TokenCoordinates(places, places))
    assert layout.grid == layout.keys == (2, 4)
    assert layout.key_axes == ([0.0, 1.0], [0.0, 1.0, 2.0, 3.0])
    weights = torch.rand(3 * 2, 5, 5, 5).softmax(-1)  # three images
    whole, shares = layout(weights)
    assert shares.shape == (3, 5, 8, 0)
    torch.testing.assert_close(whole.sum(-1), torch.ones(3, 5, 8))
    right = torch.tensor([2, 3, 6, 7])  # cells of the second window
    expected = weights[1::2, :, 1:, 1:]
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(whole[:, :, right[:, None], right], expected)
    assert whole[:, :, right[:, None], torch.tensor([0, 1, 4, 5])].abs().max() == 0


def test_patches_with_a_hole_among_them_are_no_grid():
    places = torch.tensor([[[0, 0], [0, 4], [4, 0.0]]])
    with pytest.raises(UserError, match="do not fill a grid"):
        grid_layout(capture.TokenCoordinates(places, places))


def test_a_record_stays_within_its_bytes_and_says_what_it_leaves_out(digits):
    torch.manual_seed(0)
    session = Session(opened=build("vit_micro", digits), given=digits)
    record = explore(session, num_images=6, most_bytes=6_000)
    stored = sum(v.nbytes for k, v in record.arrays.items() if not k.startswith("image/"))
    assert stored <= 6_000
    values = record.values
    assert values["notes"] or values["left_out"]
    assert len(values["images"]) < 6 or len(values["layers"]) < 4
    with pytest.raises(UserError, match="alone take"):
        explore(session, most_bytes=10)


def fullest_run(comparison, model):
    """The first seed's, on the largest share of the images: the one whose maps are kept."""
    cells = load_record(comparison / "compare").values["cells"]
    mine = [cell for cell in cells if (cell["model"], cell["seed"]) == (model, 0)]
    return comparison / max(mine, key=lambda cell: cell["fraction"])["folder"]


def test_a_comparison_keeps_the_maps_of_its_models_with_attention_over_training(comparison):
    kept = sorted(path.stem for path in comparison.glob("explorer/*.json"))
    assert kept == ["convit_micro", "resnet_micro", "vit_micro"]  # a CNN's relevance alone
    record = load_record(comparison / "explorer" / "convit_micro")
    assert record.kind == "explorer"
    assert record.values["epochs"] == [0, 1]
    assert "seed 0" in record.values["about"]
    first, last = (stored_maps.content(record, "blocks.0.attn", epoch) for epoch in (0, 1))
    assert np.abs(first - last).max() > 0.01
    np.testing.assert_allclose(record.arrays["gate/blocks.0.attn"][0], 0.7311, atol=1e-4)


def test_inspect_keeps_the_maps_of_a_run_or_says_that_there_are_none(comparison, tmp_path, capsys):
    run = fullest_run(comparison, "convit_micro")
    words = ["--images", "3", "--measures", "explorer", "--out", str(tmp_path)]
    assert main(["inspect", str(run), *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "report.html")
    assert 'id="ex-data"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    record = load_record(tmp_path / "explorer")
    kept = load_record(comparison / "explorer" / "convit_micro")
    assert record.values["epochs"] == [0, 1]
    assert len(record.values["images"]) == 3
    assert record.config["run"] == str(run)
    np.testing.assert_array_equal(
        record.arrays["down/blocks.1.attn"], kept.arrays["down/blocks.1.attn"]
    )
    assert main(["inspect", str(run), *words, "--epoch", "0"]) == 0
    assert load_record(tmp_path / "explorer").values["epochs"] == [0]
    capsys.readouterr()
    other = fullest_run(comparison, "resnet_micro")
    assert main(["inspect", str(other), *words]) == 0
    assert "Grad-CAM" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_network_without_attention_has_maps_of_relevance_alone(digits):
    session = Session(opened=build("resnet_micro", digits), given=digits)
    record = explore(session, num_images=3)
    assert record.values["layers"] == []
    assert [one["method"] for one in record.values["relevance"]] == ["grad-cam", "similarity"]
    explain = Explainer(ModelStructure(session.model, batch_of(record, digits)))
    truth = explain(batch_of(record, digits))[0]["grad-cam"]
    truth = truth / truth.amax((1, 2), keepdim=True)
    found = torch.from_numpy(record.arrays["relevance/grad-cam"]) / 255
    torch.testing.assert_close(found, truth, atol=0.003, rtol=0)


def test_places_with_the_same_features_are_the_most_similar(digits):
    session = Session(opened=build("resnet_micro", digits), given=digits)
    record = explore(session, num_images=3)
    (h, w), similar = record.values["relevance"][1]["grid"], record.arrays["relevance/similarity"]
    assert similar.shape == (3, h * w, h, w)
    places = similar.reshape(3, h * w, h * w)
    assert (places.diagonal(axis1=1, axis2=2) == 255).all()  # each place and itself
    np.testing.assert_array_equal(places, places.transpose(0, 2, 1))
    assert (places.min(2) == 0).all()  # less the mean, each place has an opposite


def test_a_network_without_features_on_a_grid_is_refused_in_a_line(digits):
    session = Session(opened=build("vit_micro", digits), given=digits)
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    session = replace(session, opened=replace(session.opened, model=plain))
    with pytest.raises(UserError, match="the explorer needs attention"):
        explore(session, weights={None: None})


def test_the_class_token_is_kept_as_a_query_and_its_share_of_every_row_as_a_key(pair, digits):
    session, record = pair
    with capture.attention(session.model) as used, capture.evaluating(session.model):
        session.model(batch_of(record, digits))
    layer = record.values["layers"][-1]
    assert layer["query_tokens"] == layer["key_tokens"] == ("class token",)
    truth = used[layer["name"]].roll(-1, -2)  # the class token's row last
    for image in range(4):
        shares = token_shares(record, layer["name"], image=image)
        np.testing.assert_allclose(shares[..., 0], truth[image, :, :, 0], atol=1e-4)
        rows = stored_maps.with_tokens(record, layer["name"], image=image)
        among = truth[image, :, :, 1:] / truth[image, :, :, 1:].sum(-1, keepdim=True)
        assert variation(torch.from_numpy(rows), among) <= TOLERANCE


HUGGING_FACE = """
def vit():
    from transformers import ViTConfig, ViTForImageClassification
    return ViTForImageClassification(ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
        image_size=8, patch_size=2, num_channels=1, num_labels=10, initializer_range=0.5))
"""


def test_a_model_of_hugging_face_is_explored_as_well(tmp_path, monkeypatch, digits):
    (tmp_path / "hugging.py").write_text(HUGGING_FACE)
    monkeypatch.syspath_prepend(tmp_path)
    words = "hugging:vit --data digits --measures explorer --images 4 --quiet --out"
    assert main(["inspect", *words.split(), str(tmp_path)]) == 0
    record = load_record(tmp_path / "explorer")
    session = open_session("hugging:vit")
    with capture.attention(session.model) as used, capture.evaluating(session.model):
        session.model(batch_of(record, digits))
    assert [layer["name"] for layer in record.values["layers"]] == list(used)
    for name, truth in used.items():
        found = np.stack([stored_maps.mixed(record, name, image=i) for i in range(4)])
        patches = truth[..., 1:, 1:] / truth[..., 1:, 1:].sum(-1, keepdim=True)
        assert variation(torch.from_numpy(found), patches) <= TOLERANCE
