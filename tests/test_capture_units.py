"""Where tokens lie, what a model is made of, and the model without a part."""

import pytest
import timm
import torch
from timm.layers import Attention
from timm.models.maxxvit import grid_partition
from timm.models.mlp_mixer import MlpMixer
from timm.models.swin_transformer import window_partition
from torch import nn

from vitascope import capture, create_model
from vitascope.errors import UserError


def pixels(height, width, patch):
    """Centres of the patches of an image. (1, h, w, 2)"""
    y = torch.arange(height // patch) * patch + (patch - 1) / 2
    x = torch.arange(width // patch) * patch + (patch - 1) / 2
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), -1)[None]


def test_patches_lie_at_their_centres_and_class_tokens_nowhere():
    model = timm.create_model(
        "deit_tiny_distilled_patch16_224", img_size=(32, 64), depth=1, num_classes=2
    )
    place = capture.token_coordinates(model, torch.randn(2, 3, 32, 64))["blocks.0.attn"]
    assert place.query[0, :2].isnan().all()
    torch.testing.assert_close(place.query[0, 2:], pixels(32, 64, 16).reshape(-1, 2))
    assert place.grid == (2, 4)
    assert place.step == pytest.approx((16, 16), rel=1e-5)


def test_shifted_windows_are_where_swin_cuts_them():
    model = timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=(32, 64),
        window_size=4,
        depths=(2, 2),
        embed_dim=8,
        num_heads=(1, 2),
        num_classes=2,
    )
    places = capture.token_coordinates(model, torch.randn(1, 3, 32, 64))
    at = pixels(32, 64, 4)
    for index, shift in enumerate((0, 2)):
        expected = window_partition(at.roll((-shift, -shift), (1, 2)), (4, 4)).flatten(1, 2)
        found = places[f"layers.0.blocks.{index}.attn"]
        torch.testing.assert_close(found.query, expected)
        torch.testing.assert_close(found.key, expected)
    merged = places["layers.1.blocks.0.attn"]  # 4 x 8 patches of 8 pixels: 2 windows
    torch.testing.assert_close(
        merged.query, window_partition(pixels(32, 64, 8), (4, 4)).flatten(1, 2)
    )


def test_a_dilated_grid_is_where_maxvit_takes_it():
    model = timm.create_model("maxvit_rmlp_pico_rw_256", img_size=64, num_classes=2)
    places = capture.token_coordinates(model, torch.randn(1, 3, 64, 64))
    block, grid = (places[f"stages.0.blocks.1.attn_{kind}.attn"] for kind in ("block", "grid"))
    at = block.query.new_tensor(range(16)) * 4 + block.query.min()
    at = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)[None]
    torch.testing.assert_close(block.query, window_partition(at, (2, 2)).flatten(1, 2))
    torch.testing.assert_close(grid.query, grid_partition(at, [2, 2]).flatten(1, 2))


def test_pooled_keys_lie_in_the_middle_of_what_they_pool():
    model = timm.create_model("pvt_v2_b0", depths=(1, 1, 1, 1), num_classes=2)
    place = capture.token_coordinates(model, torch.randn(1, 3, 64, 64))["stages.0.blocks.0.attn"]
    patches = place.query.view(16, 16, 2)  # reduced 8 times: 2 x 2 keys
    assert patches[:, 0, 0].tolist() == [4.0 * i for i in range(16)]  # 7 x 7, stride 4, padding 3
    expected = patches.unflatten(0, (2, 8)).unflatten(2, (2, 8)).mean((1, 3)).reshape(-1, 2)
    torch.testing.assert_close(place.key[0], expected)


def test_padding_has_no_place():
    model = timm.create_model(
        "twins_svt_small", img_size=(32, 32), depths=(1, 1, 1, 1), wss=(5, 4, 4, 4), num_classes=2
    )
    place = capture.token_coordinates(model, torch.randn(1, 3, 32, 32))["blocks.0.0.attn"]
    assert place.query.shape == (4, 25, 2)  # 8 x 8 patches in windows of 5 x 5, padded to 10 x 10
    assert int((~place.query[..., 0].isnan()).sum()) == 64


def test_attention_over_channels_is_not_over_tokens():
    model = timm.create_model("xcit_nano_12_p16_224", img_size=32, depth=1, num_classes=2)
    x = torch.randn(1, 3, 32, 32)
    places = capture.token_coordinates(model, x)
    assert not places["blocks.0.attn"].over_tokens
    assert places["cls_attn_blocks.0.attn"].over_tokens
    kinds = {unit.name: unit.kind for unit in capture.units(model, x)}
    assert kinds["blocks.0.attn"] == "block"
    assert kinds["cls_attn_blocks.0.attn"] == "attention"


@pytest.mark.parametrize("size", [(32, 32), (32, 48)])
def test_the_units_of_a_vit(size):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=size, depth=2, num_classes=2, reg_tokens=3
    )
    units = capture.units(model, torch.randn(1, 3, *size))
    assert [(u.name, u.kind) for u in units] == [
        ("patch_embed", "stem"),
        ("blocks.0.attn", "attention"),
        ("blocks.0.mlp", "mlp"),
        ("blocks.1.attn", "attention"),
        ("blocks.1.mlp", "mlp"),
        ("head", "head"),
    ]
    grid = size[0] // 16, size[1] // 16
    inner = units[1:5]
    assert {(u.grid, u.num_prefix_tokens, u.layout, u.branch) for u in inner} == {
        (grid, 4, "NLC", True)
    }
    assert units[0].grid == grid
    assert units[0].num_prefix_tokens == 0


def test_the_units_and_stages_of_a_resnet():
    model = timm.create_model("resnet10t", num_classes=2)
    units = capture.units(model, torch.randn(1, 3, 64, 64))
    kinds = [unit.kind for unit in units]
    assert kinds[-1] == "head"
    assert [u.stage for u in units if u.name.endswith("conv2")] == [0, 1, 2, 3]
    assert {u.layout for u in units if u.kind == "convolution"} == {"NCHW"}
    assert [u.name for u in units if u.kind == "convolution" and u.stage == 1] == ["layer2.0.conv2"]
    reduced = [u for u in units if u.kind == "subsampling"]
    assert all(u.grid is not None for u in reduced)
    assert not any(u.branch for u in units if u.kind == "convolution")


def test_the_units_of_a_mixer_keep_their_grid_through_token_mixing():
    model = MlpMixer(2, 64, num_blocks=2, patch_size=32, embed_dim=32)
    units = capture.units(model, torch.randn(1, 3, 64, 64))
    assert {(u.kind, u.grid) for u in units[1:-1]} == {("mlp", (2, 2))}
    assert len(units) == 6


def test_a_part_of_a_unit_is_not_a_unit():
    model = timm.create_model("coat_lite_tiny", img_size=32, serial_depths=(1, 1, 1, 1))
    units = capture.units(model, torch.randn(1, 3, 32, 32))
    assert not any("crpe1" in unit.name for unit in units)
    assert [u.kind for u in units if "factoratt" in u.name] == ["block"] * 4


def test_a_unit_that_shares_its_branch_is_not_the_branch():
    x = torch.randn(1, 3, 64, 64)
    convnext = capture.units(timm.create_model("convnext_atto", depths=(1, 1, 1, 1)), x)
    assert not any(unit.branch for unit in convnext)
    bottlenecks = capture.units(timm.create_model("resnet26"), x)  # between 1 x 1 convolutions
    assert not any(u.branch for u in bottlenecks if u.kind == "convolution")
    levit = capture.units(timm.create_model("levit_128s", img_size=64, depth=(1, 1, 1)), x)
    assert all(unit.branch for unit in levit if unit.kind == "mlp")


class Net(nn.Module):
    """A convolutional residual network without one of its parts."""

    def __init__(self, missing=()):
        super().__init__()
        self.missing = missing
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.a, self.b, self.c = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.mlp = nn.Sequential(nn.Conv2d(4, 8, 1), nn.GELU(), nn.Conv2d(8, 4, 1))
        self.norm = nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 8, 2, stride=2)
        self.head = nn.Linear(8, 2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        x = self.stem(x)
        inner = x if "a" in self.missing else self.a(x)
        inner = inner.relu()
        x = x + (inner if "b" in self.missing else self.b(inner))
        if "mlp" not in self.missing:
            x = x + 0.3 * self.norm(self.mlp(x))
        if "c" not in self.missing:
            x = self.c(x) + x
        return self.head(self.down(x).mean((2, 3)))


@pytest.mark.parametrize("part", ["a", "b", "mlp", "c"])
def test_dropping_a_unit_is_building_the_network_without_it(part):
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    other = Net(missing=(part,)).eval()
    other.load_state_dict(model.state_dict())
    units = capture.units(model, x)
    with torch.no_grad():
        whole = model(x)
        with capture.without(model, units, part):
            assert torch.equal(model(x), other(x))
        assert torch.equal(model(x), whole)
        assert not torch.equal(whole, other(x))


def test_a_unit_that_changes_the_shape_cannot_be_dropped():
    model, x = Net(), torch.randn(1, 3, 8, 8)
    units = capture.units(model, x)
    with pytest.raises(UserError, match=r"down cannot be dropped: .*\(1, 4, 8, 8\)"):  # noqa: SIM117
        with capture.without(model, units, "down"):
            model(x)


def test_the_stream_is_the_sum_and_not_the_branch():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad(), capture.features(model, ["blocks.0.norm1", "blocks.0"]) as around:
        expected = model(x)
    entering = []
    for layer in (model.blocks[0].norm2,):
        layer.register_forward_pre_hook(lambda _module, inputs: entering.append(inputs[0]))
    with capture.streams(model, capture.units(model, x)) as seen:
        assert torch.equal(model(x), expected)
    assert torch.equal(seen["blocks.0.attn"], entering[-1])
    assert torch.equal(seen["blocks.0.mlp"], around["blocks.0"])


def test_units_need_images():
    with pytest.raises(UserError, match=r"\(B, C, height, width\)"):
        capture.units(Net(), torch.randn(3, 8, 8))


def test_a_unit_refuses_images_of_another_size():
    model = Net()
    unit = capture.units(model, torch.randn(1, 3, 8, 8))[1]
    with pytest.raises(UserError, match="one size"):
        unit.as_image(torch.randn(1, 4, 6, 6))


@pytest.mark.parametrize("name", ["resnet_micro", "resnet_postact_micro"])
def test_at_the_level_of_blocks_a_resnet_has_a_unit_per_block_read_at_its_output(name):
    model = create_model(name, num_classes=2).eval()
    x = torch.randn(2, 3, 32, 32)
    units = capture.units(model, x, level="block")
    assert [(u.name, u.kind, u.stage) for u in units] == [
        ("stem", "stem", 0),
        ("stages.0.0", "convolution", 0),
        ("stages.0.1", "convolution", 0),
        ("stages.1.0", "subsampling", 1),
        ("stages.1.1", "convolution", 1),
        ("stages.2.0", "subsampling", 2),
        ("stages.2.1", "convolution", 2),
        ("head.fc", "head", 2),
    ]
    with capture.streams(model, units, "stages.*") as seen:
        model(x)
    with torch.no_grad():
        expected = model.embed(x)
        for number, stage in enumerate(model.stages):
            for index, block in enumerate(stage):
                expected = block(expected)
                found = seen[f"stages.{number}.{index}"]
                torch.testing.assert_close(found, expected)
    activated = all(bool((found >= 0).all()) for found in seen.values())
    assert activated == ("postact" in name)


def test_attention_and_mlps_with_shortcuts_of_their_own_are_the_same_at_both_levels():
    for name in ("vit_micro", "convit_micro"):
        model = create_model(name, num_classes=2, depth=2, **_gpsa(name))
        x = torch.randn(1, 3, 32, 32)
        assert capture.units(model, x, level="block") == capture.units(model, x)
    alternet = create_model("alternet_micro", num_classes=2)
    names = [unit.name for unit in capture.units(alternet, x, level="block")]
    assert names[4] == "stages.1.1.attn"


def _gpsa(name):
    return {"num_gpsa_blocks": 1} if name == "convit_micro" else {}


def test_a_block_has_all_units_of_its_branch_and_may_lack_a_shortcut():
    convnext = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), num_classes=2)
    names = [u.name for u in capture.units(convnext, torch.randn(1, 3, 64, 64), level="block")]
    assert names[:2] == ["stem", "stages.0.blocks.0"]
    efficient = timm.create_model("efficientnet_b0", num_classes=2)
    units = capture.units(efficient, torch.randn(1, 3, 64, 64), level="block")
    kinds = {unit.name: unit.kind for unit in units}
    assert kinds["blocks.1.0"] == "subsampling"  # no shortcut there
    assert kinds["blocks.1.1"] == "convolution"


class ConvolutionThenAttention(nn.Module):
    """A block with two shortcuts, one around a convolution and one around attention."""

    def __init__(self):
        super().__init__()
        self.conv, self.attn = nn.Conv2d(8, 8, 3, padding=1), Attention(8, 2)

    def forward(self, x):
        x = x + self.conv(x)
        return x + self.attn(x.flatten(2).mT).mT.unflatten(2, x.shape[2:])


def test_attention_with_a_shortcut_of_its_own_is_not_merged_with_convolutions_around_it():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 2, 2), ConvolutionThenAttention(), nn.Flatten(), nn.Linear(128, 2)
    )
    names = [u.name for u in capture.units(model, torch.randn(1, 3, 8, 8), level="block")]
    assert names == ["0", "1.conv", "1.attn", "3"]


def test_an_unknown_level_is_named():
    with pytest.raises(UserError, match="unknown level 'blocks'"):
        capture.units(create_model("vit_micro"), torch.randn(1, 3, 32, 32), level="blocks")


class WithInterpolatedPositions(nn.Module):
    """Positions of another grid are added to the patches; with one image they have their shape."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        self.patches = nn.Conv2d(8, 8, 2, stride=2)
        self.positions = nn.Parameter(torch.randn(1, 8, 2, 2))
        self.mixing = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.patches(self.stem(x))
        x = x + nn.functional.interpolate(self.positions, size=x.shape[2:])
        return x + self.mixing(x)


def test_interpolated_positions_are_no_shortcut():
    model, images = WithInterpolatedPositions(), torch.randn(3, 3, 16, 16)
    units = {unit.name: unit for unit in capture.units(model, images)}
    assert not units["patches"].residual
    assert units["mixing"].residual
    for batch in (images, images[:1]):
        with capture.streams(model, list(units.values())) as streams:
            model(batch)
        assert streams.keys() == units.keys()
