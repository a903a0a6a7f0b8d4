"""The dial of locality: what each suffix puts into a ViT, and what does not go together."""

import pytest
import torch
from sklearn.datasets import load_sample_image
from timm.layers import Attention, AttentionRope
from torch.nn import functional as F

from benchmarks.training import random_images
from vitascope import capture, create_model, list_models
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.question import comparison_of
from vitascope.errors import UserError
from vitascope.layers.locality_self_attention import LocalitySelfAttention
from vitascope.loading.opening import build
from vitascope.models.vit.dial import DIAL, REFUSED
from vitascope.models.vit.impulse import OFFSETS
from vitascope.models.vit.shifted_patches import shifted

SMALL = {"img_size": 16, "patch_size": 4, "num_classes": 5}


def small(suffixes, **kwargs):
    torch.manual_seed(0)
    return create_model(f"vit_micro{suffixes}", **{**SMALL, **kwargs})


def photographs(count, side):
    """Crops of a photograph, normalised."""
    image = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float()
    image = F.interpolate(image[None], size=(200, 300), mode="area")[0]
    places = torch.linspace(0, 1, count)
    crops = torch.stack(
        [
            image[:, int(p * (200 - side)) :, int((1 - p) * (300 - side)) :][:, :side, :side]
            for p in places
        ]
    )
    return (crops - crops.mean((0, 2, 3), keepdim=True)) / crops.std((0, 2, 3), keepdim=True)


def weights(layer):
    """Query, key and value weights by head, in float64. 3 x (H, d, D)"""
    return layer.qkv.weight.detach().double().unflatten(0, (3, layer.num_heads, -1)).unbind(0)


# every suffix


@pytest.fixture(
    params=[*(f"+{change}" for change in DIAL), "+impulse+lsa+spt", "+rope+lsa+stem+cb"]
)
def suffixes(request):
    return request.param


def test_every_parameter_gets_a_gradient_and_attention_is_seen(suffixes):
    model = small(suffixes)
    images = torch.randn(3, 3, 16, 16)
    with capture.attention(model, grad=True) as maps:
        model(images).square().sum().backward()
    assert len(maps) == len(model.blocks)
    tokens = model.num_prefix_tokens + 16
    for each in maps.values():
        assert each.shape == (3, 9, tokens, tokens)
        torch.testing.assert_close(each.sum(-1), torch.ones(3, 9, tokens))
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_a_state_dict_goes_there_and_back(suffixes):
    model, other = small(suffixes).eval(), small(suffixes).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.01 * torch.randn_like(parameter))
    other.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(other(images), model(images))


def test_a_session_builds_and_names_it(suffixes):
    session = build(f"vit_micro{suffixes}", random_images(16, 16))
    assert session.config["name"] == f"vit_micro{suffixes}"
    with torch.device("meta"):  # as the table of models does
        create_model(f"vit_micro{suffixes}")


# names


@pytest.mark.parametrize("pair", [tuple(sorted(pair)) for pair in REFUSED])
def test_contradictions_are_refused_in_words(pair):
    for first, second in (pair, pair[::-1]):
        with pytest.raises(UserError, match="do not go together"):
            create_model(f"vit_micro+{first}+{second}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vit_micro+lsa+lsa", "given twice"),
        ("vit_micro+cb+cb", "context broadcasting twice"),
        ("convit_micro+lsa", "changes a ViT of ours, not convit_micro"),
        ("vit_micro+las", "did you mean 'lsa'"),
        ("vit_micro+lsa:mid", "unknown suffix"),
    ],
)
def test_names_that_cannot_be_are_refused(name, said):
    for asked in (create_model, list_models):
        with pytest.raises(UserError, match=said):
            asked(name)


def test_patterns_with_a_change_list_the_models_that_take_it():
    found = list_models("*_micro+lsa+cb")
    assert found == ["vit_micro+lsa+cb"]


# the starts


def test_mimetic_products_are_those_of_the_paper():
    layer = small("+mimetic").blocks[1].attn
    query, key, value = weights(layer)
    identity = torch.eye(72, dtype=torch.float64)
    for product in query.mT @ key:  # (D, D), of rank 8
        size = product.norm() * identity.norm()
        assert (product * identity).sum() / size > 0.2  # an independent one: 0 +- 0.014
        assert torch.linalg.matrix_rank(product) == 8
    product = layer.proj.weight.detach().double() @ value.flatten(0, 1)
    rest = product + 0.4 * identity  # 0.4 Z, of variance 0.16 / D
    assert rest.mean().abs() < 0.01
    assert rest.std() == pytest.approx(0.4 * 72**-0.5, rel=0.05)


def test_sines_and_cosines_alone_are_the_table_of_the_mimetic_start_and_a_plain_vit():
    states = {}
    for change in ("", "+sincos", "+mimetic"):
        torch.manual_seed(0)
        states[change] = create_model(f"vit_micro{change}").state_dict()
    table = states["+sincos"].pop("pos_embed")
    torch.testing.assert_close(table, states["+mimetic"]["pos_embed"])
    assert (table - states[""].pop("pos_embed")).abs().max() > 0.5
    torch.testing.assert_close(states["+sincos"], states[""], rtol=0, atol=0)


@pytest.mark.parametrize(("patch", "least"), [(4, 0.8), (2, 0.5)])
def test_an_impulse_head_looks_at_its_neighbour_on_photographs(patch, least):
    torch.manual_seed(0)
    model = create_model("vit_micro+impulse", patch_size=patch).eval()
    with capture.attention(model, "blocks.0.*") as maps:
        model(photographs(8, 32))
    (found,) = maps.values()
    side = 32 // patch
    peaks = found[:, :, 1:, 1:].argmax(-1).unflatten(-1, (side, side))[:, :, 1:-1, 1:-1]
    places = torch.arange(side * side).view(side, side)
    for head, (down, right) in enumerate(OFFSETS):
        wanted = places.roll((-down, -right), (0, 1))[1:-1, 1:-1]
        assert (peaks[:, head] == wanted).float().mean() > least


# the layers


def test_no_token_looks_at_itself_and_the_temperature_sharpens():
    torch.manual_seed(0)
    model = small("+lsa").eval()
    images = torch.randn(2, 3, 16, 16)

    def first_map():
        with capture.attention(model, "blocks.0.*") as maps:
            model(images)
        return next(iter(maps.values()))

    found = first_map()
    assert found.diagonal(dim1=-2, dim2=-1).abs().max() == 0  # the class token's too
    layer = model.blocks[0].attn
    assert layer.temperature.shape == (9,)
    assert layer.temperature[0].item() == pytest.approx(8**0.5)
    layer.temperature.data[:] /= 10
    assert first_map().amax(-1).mean() > found.amax(-1).mean()


def test_locality_self_attention_is_its_definition():
    torch.manual_seed(0)
    layer = LocalitySelfAttention(12, 3).double()
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    query, key, value = layer.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    scores = query @ key.mT / layer.temperature[:, None, None]
    scores.diagonal(dim1=-2, dim2=-1).fill_(float("-inf"))
    out = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), layer.proj(out))


def test_shifted_patches_are_patches_of_the_image_and_its_shifts():
    torch.manual_seed(0)
    embed = small("+spt").patch_embed.double()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    five = [x, *(shifted(x, a, b) for a in (-2, 2) for b in (-2, 2))]
    assert torch.equal(five[4][:, :, 2:, 2:], x[:, :, :-2, :-2])
    patch = torch.cat(five, dim=1)[:, :, 4:8, 8:12].flatten(1)  # row 1, column 2
    expected = embed.proj.linear(embed.proj.norm(patch))
    torch.testing.assert_close(embed(x)[:, 1 * 4 + 2], expected)


def test_a_stem_keeps_the_grid_and_costs_a_block():
    model = small("+stem")
    assert model.patch_embed(torch.randn(1, 3, 16, 16)).shape == (1, 16, 72)
    assert len(model.blocks) == len(small("").blocks) - 1
    with pytest.raises(UserError, match="no power of two"):
        small("+stem", img_size=12, patch_size=3)


def test_rotary_attention_is_timms():
    torch.manual_seed(0)
    ours = small("+rope").blocks[0].attn
    theirs = AttentionRope(72, 9, qkv_fused=True, num_prefix_tokens=1)
    state = {name: tensor for name, tensor in ours.state_dict().items() if "rotations" not in name}
    theirs.load_state_dict(state)
    x = torch.randn(2, 17, 72)
    turns = ours.q_norm.rotations.get_embed([4, 4])[0]
    torch.testing.assert_close(ours(x), theirs(x, rope=turns))
    plain = Attention(72, 9, qkv_bias=True)
    plain.load_state_dict(state)
    assert (plain(x) - ours(x)).abs().max() > 1e-4


def test_rotary_scores_depend_on_relative_places_alone():
    rotary = small("+rope").blocks[0].attn.q_norm
    same = torch.randn(1, 9, 1, 8).expand(1, 9, 17, 8)
    turned = rotary(same)[:, :, 1:]
    scores = (turned @ turned.mT).unflatten(-1, (4, 4)).unflatten(2, (4, 4))  # (1, H, y, x, y, x)
    torch.testing.assert_close(scores[:, :, 0, 0, 1, 2], scores[:, :, 2, 1, 3, 3])


# patches by name


def test_a_patch_size_may_stand_in_the_name():
    session = build("vit_micro+patch8+lsa", random_images(16, 16))
    assert session.model.patch_embed.grid_size == (2, 2)
    assert session.config["patch_size"] == 8
    assert create_model("vit_micro+patch8").patch_embed.grid_size == (4, 4)
    assert list_models("*_micro+patch2") == [
        f"{family}_micro+patch2" for family in ("convit", "convolutional_vit", "localvit", "vit")
    ]
    for name, said in (
        ("resnet_micro+patch2", "a transformer of ours on a grid"),
        ("vit_micro+patch2+patch4", "two patch sizes"),
        ("vit_micro+patch0", "unknown suffix"),
    ):
        for asked in (create_model, list_models):
            with pytest.raises(UserError, match=said):
                asked(name)


def test_a_comparison_tries_every_transformer_at_each_patch_size():
    models = ("vit_micro+lsa", "resnet_micro")
    asked = comparison_of(CompareOptions(data="digits", models=models, patch_sizes=(2, 4)))
    assert asked.models == ("vit_micro+lsa+patch2", "vit_micro+lsa+patch4", "resnet_micro")
