"""AlterNets and the pre-activation ResNets they come from, against the papers and their sources."""

from hashlib import sha256

import pytest
import timm
import torch
from timm.optim import param_groups_weight_decay
from torch.nn import functional as F

from vitascope import capture, create_model
from vitascope.errors import UserError
from vitascope.models.resnet.alternet import alternate
from vitascope.models.resnet.blocks import MSABlock, PostActMSABlock

SIZES = ["18", "34", "50", "101", "152"]
NUM_BLOCKS = [(2, 2, 2, 2), (3, 4, 6, 4), (3, 4, 6, 4), (3, 4, 23, 4), (3, 8, 36, 4)]
NUM_MSA = [(0, 1, 1, 1), *[(0, 1, 3, 2)] * 4]
TINY = {"widths": (8, 16, 24, 32), "heads": (1, 2, 3, 4), "head_dim": 4, "num_classes": 5}


def on_meta(name, **kwargs):
    with torch.device("meta"):
        return create_model(name, **kwargs)


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


def randomised(model):
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.add_(0.2 * torch.rand_like(value) if "var" in name else 0.1)
    return model.eval()


def test_the_order_of_blocks_is_that_of_figure_11():
    """Alter-ResNet-50: "all stages (except stage 1) end with MSA blocks", 3/6/12/24 heads."""
    model = on_meta("alternet_50")
    assert model.kinds == ("ccc", "ccca", "cacaca", "caca")
    for stage, word, heads in zip(model.stages, model.kinds, (3, 6, 12, 24), strict=True):
        blocks = [type(block).__name__ for block in stage]
        assert blocks == [{"c": "Bottleneck", "a": "MSABlock"}[kind] for kind in word]
        found = {
            (b.attn.num_heads, b.attn.head_dim, b.attn.window) for b in stage if "attn" in dir(b)
        }
        assert found <= {(heads, 64, 7)}
    cifar = on_meta("alternet_50", stem="cifar")
    assert {m.attn.window for m in cifar.modules() if isinstance(m, MSABlock)} == {4}


@pytest.mark.parametrize(("size", "n", "m"), zip(SIZES, NUM_BLOCKS, NUM_MSA, strict=True))
def test_stages_take_turns_at_their_ends(size, n, m):
    kinds = on_meta(f"alternet_{size}").kinds
    assert tuple(map(len, kinds)) == n
    assert tuple(word.count("a") for word in kinds) == m
    assert all(word.endswith("ca" * count) for word, count in zip(kinds, m, strict=True))
    assert all("a" not in w[: len(w) - 2 * count] for w, count in zip(kinds, m, strict=True))


def released_count(expansion, num_blocks, num_msa, *, classes, window, kernel):
    """Parameters of github.com/xxxnell/how-do-vits-work, models/alternet.py, term by term.

    BN has 2 a channel; only the output projection and the classifier have biases; queries, keys and
    values go from the inner width to heads x 64; one table of (2 window - 1)^2 biases a block.
    """
    total, width = kernel**2 * 3 * 64, 64
    for stage, (n, m, inner) in enumerate(
        zip(num_blocks, num_msa, (64, 128, 256, 512), strict=True)
    ):
        out, attended = inner * expansion, 64 * 3 * 2**stage
        for index in range(n):
            total += 2 * width  # the first norm
            if index >= n - 2 * m and (n - index) % 2:
                total += width * inner + 2 * inner + 3 * inner * attended
                total += attended * out + out + (2 * window - 1) ** 2
            elif expansion == 1:
                total += 9 * width * inner + 2 * inner + 9 * inner * out
            else:
                total += width * inner + 2 * inner + 9 * inner**2 + 2 * inner + inner * out
            total += width * out if index == 0 and (stage > 0 or width != out) else 0
            width = out
    return total + 2 * width + (width + 1) * classes


@pytest.mark.parametrize(
    ("index", "imagenet", "cifar"),
    [
        (0, 9_968_803, 9_499_063),
        (1, 22_833_054, 22_362_954),
        (2, 35_915_038, 34_062_538),
        (3, 54_907_166, 53_054_666),
        (4, 70_550_814, 68_698_314),
    ],
)
def test_an_alternet_has_the_parameters_of_the_released_definition(index, imagenet, cifar):
    name, expansion = f"alternet_{SIZES[index]}", 1 if index < 2 else 4
    plan = expansion, NUM_BLOCKS[index], NUM_MSA[index]
    assert released_count(*plan, classes=1000, window=7, kernel=7) == imagenet
    assert released_count(*plan, classes=100, window=4, kernel=3) == cifar
    assert num_parameters(on_meta(name)) == imagenet
    assert num_parameters(on_meta(name, stem="cifar", num_classes=100)) == cifar
    heads = [h for h, m in zip((3, 6, 12, 24), NUM_MSA[index], strict=True) for _ in range(m)]
    swin = num_parameters(
        on_meta(name, bias_per_head=True)
    )  # a table a head, as the paper's source
    assert swin - imagenet == sum(h - 1 for h in heads) * 13**2


@pytest.mark.parametrize("size", SIZES)
def test_a_preactivation_resnet_has_the_parameters_of_timms(size):
    theirs = timm.create_model(f"resnetv2_{size}", device="meta")
    assert num_parameters(on_meta(f"resnet_preact_{size}")) == num_parameters(theirs)


@pytest.mark.parametrize(("size", "stem"), [("18", 32), ("50", 8)])
def test_a_preactivation_resnet_equals_timms_by_copied_weights(size, stem):
    depths, widths = (1, 2, 1, 1), (32, 64, 96, 128)
    plan = {"layers": depths, "channels": widths, "stem_chs": stem, "num_classes": 5}
    theirs = randomised(timm.create_model(f"resnetv2_{size}", **plan))
    ours = create_model(f"resnet_preact_{size}", depths=depths, widths=widths, num_classes=5).eval()
    names = {".blocks.": ".", "stem.conv.": "stem.", "downsample.conv.": "downsample."}
    state = {}
    for name, value in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = value.flatten(1) if name == "head.fc.weight" else value
    ours.load_state_dict(state)
    x = torch.randn(2, 3, 65, 40)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("resnet_postact_18", "resnet18"),
        ("resnet_postact_50", "resnet50"),
        ("resnext_50", "resnext50_32x4d"),
    ],
)
def test_a_postactivation_resnet_equals_timms_by_copied_weights(ours, theirs):
    theirs = timm.create_model(theirs, num_classes=5).eval().double()
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if "bn" in name and value.is_floating_point():  # of both signs after every norm
                value.add_(0.5 * torch.rand_like(value))
    ours = create_model(ours, num_classes=5).eval().double()
    state = dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True))
    ours.load_state_dict(state)
    x = torch.randn(1, 3, 65, 40, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["resnet_postact_micro", "resnext_micro"])
@pytest.mark.parametrize("kinds", [("aa", "cc", "ca"), ("cc", "ac", "aa")])
def test_postactivation_networks_take_attention_in_any_block(name, kinds):
    model = create_model(name, kinds=kinds, num_classes=4)
    assert model.kinds == kinds
    logits = model(torch.randn(2, 3, 18, 23))
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_a_postactivation_attention_block_is_the_released_one():
    """AttentionBlockA: 1x1, norm, GELU, attention, norm, sum; nothing after it."""
    block = randomised(PostActMSABlock(6, 6, inner=4, num_heads=2, head_dim=3, window=4)).double()
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64)
    y = F.gelu(block.norm1(F.conv2d(x, block.conv.weight)))
    torch.testing.assert_close(block(x), x + block.norm2(block.attn(y)), rtol=1e-12, atol=1e-12)


def test_groups_need_bottlenecks_with_channels_for_them():
    with pytest.raises(UserError, match="bottleneck"):
        create_model("resnet_postact_micro", groups=4)
    with pytest.raises(UserError, match="at least 256"):
        create_model("resnext_micro", group_width=4, widths=(32, 64, 128))


def test_old_run_folders_still_fit_resnet_micro():
    state = create_model("resnet_micro", num_classes=10).state_dict()
    shapes = str([(name, tuple(value.shape)) for name, value in state.items()])
    assert sha256(shapes.encode()).hexdigest()[:16] == "df0eb4451335b46a"


def test_an_msa_block_is_norm_gelu_conv_norm_attention_and_shortcut():
    block = randomised(MSABlock(6, 6, inner=4, num_heads=2, head_dim=3, window=4)).double()
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64)
    y = block.norm2(F.conv2d(F.gelu(block.norm1(x)), block.conv.weight))
    torch.testing.assert_close(block(x), x + block.attn(y), rtol=1e-12, atol=1e-12)
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == {
        "norm1",
        "conv",
        "norm2",
        "attn",
    }


def test_every_place_counts_in_an_msa_block_that_halves_the_map():
    block = randomised(MSABlock(3, 6, 2, inner=4, num_heads=2, head_dim=3, window=4))
    block.downsample.weight.detach().zero_()
    x = torch.randn(1, 3, 7, 10, requires_grad=True)
    out = block(x)
    assert out.shape == (1, 6, 4, 5)
    out.square().sum().backward()
    assert (x.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("kinds", [("ac", "ac", "ac"), ("aa", "aa", "aa"), ["cc", "cc", "ca"]])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_any_kinds_run_on_any_map(kinds, block):
    model = create_model("resnet_micro", kinds=kinds, block=block, num_classes=4)
    assert model.kinds == tuple(kinds)
    logits = model(torch.randn(2, 3, 18, 23))
    assert logits.isfinite().all()
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kinds": ("cc", "ca")}, r"stages of \(2, 2, 2\) blocks; give a word"),
        ({"kinds": ("cc", "ca", "caa")}, "do not fit"),
        ({"kinds": ("cc", "ca", "cx")}, "letters c"),
        ({"kinds": "cccaca"}, "give a word a stage"),
        ({"kinds": 3}, "give a word a stage"),
        ({"kinds": ()}, "do not fit"),
        ({"depths": "2,2,2"}, "one number for each stage"),
        ({"widths": (20, 40)}, "one number for each stage"),
        ({"heads": (3, 6, 0)}, "one number for each stage"),
        ({"widths": (20, 40, 82), "block": "bottleneck"}, "multiples of 4"),
        ({"block": "wide"}, "unknown block"),
        ({"stem": "imagnet"}, "did you mean 'imagenet'"),
        ({"window": 0}, "1 or more"),
        ({"head_dim": 0}, "1 or more"),
        ({"num_msa": (0, 1)}, "each of 3 stages"),
        ({"num_msa": (0, 2, 1)}, "at most 1"),
    ],
)
def test_what_cannot_be_built_is_said(wrong, says):
    with pytest.raises(UserError, match=says):
        create_model("alternet_micro", **wrong)


def test_alternating_leaves_the_first_blocks_to_convolutions():
    assert [alternate(5, m) for m in range(3)] == ["ccccc", "cccca", "ccaca"]


def test_the_micro_is_as_large_as_the_resnet_it_comes_from():
    alternet, resnet = (create_model(f"{n}_micro", num_classes=10) for n in ("alternet", "resnet"))
    assert alternet.kinds == ("cc", "ca", "ca")
    assert num_parameters(alternet) == pytest.approx(num_parameters(resnet), rel=0.01)


def test_its_attention_and_units_are_seen():
    model = create_model("alternet_micro", num_classes=10).eval()
    images = torch.randn(2, 3, 32, 32)
    with capture.attention(model) as maps:
        model(images)
    shapes = {name: tuple(weights.shape) for name, weights in maps.items()}
    assert shapes == {
        "stages.1.1.attn": (2 * 16, 6, 16, 16),
        "stages.2.1.attn": (2 * 4, 12, 16, 16),
    }
    units = capture.units(model, images)
    attentions = [(u.name, u.grid, u.branch) for u in units if u.kind == "attention"]
    assert attentions == [("stages.1.1.attn", (16, 16), True), ("stages.2.1.attn", (8, 8), True)]
    assert sum(u.kind == "convolution" for u in units) == 6  # and two that halve the map
    assert [u.kind for u in units if u.kind in ("stem", "head")] == ["stem", "head"]


@pytest.fixture
def two_stages():
    plan = {"depths": (1, 1), "widths": (4, 8), "kinds": ("c", "a"), "head_dim": 4}
    return randomised(create_model("resnet_micro", num_classes=5, **plan))


@pytest.mark.slow
def test_compiled_without_a_graph_break_it_gives_the_same_at_other_sizes_too(two_stages):
    compiled = torch.compile(two_stages, fullgraph=True, backend="aot_eager")
    for size in (16, 10):  # whole windows, then padded ones; symbolic sizes would never end
        images = torch.randn(2, 3, size, size)
        with torch.no_grad():
            torch.testing.assert_close(compiled(images), two_stages(images))


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 10])
def test_exported_with_a_free_batch_size_it_gives_the_same(two_stages, size):
    batch = torch.export.Dim("batch", min=1, max=64)
    images, others = torch.randn(2, 3, size, size), torch.randn(5, 3, size, size)
    program = torch.export.export(two_stages, (images,), dynamic_shapes={"x": {0: batch}})
    torch.testing.assert_close(program.module()(others), two_stages(others))


@pytest.mark.slow
def test_onnx_gives_the_same(two_stages, tmp_path):
    import onnxruntime  # writes files of its own when imported: only here

    images = torch.randn(2, 3, 10, 10)
    program = torch.onnx.export(two_stages, (images,), dynamo=True, verbose=False)
    program.save(tmp_path / "alternet.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "alternet.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), two_stages(images), rtol=1e-4, atol=1e-5)


def test_the_imagenet_stem_gives_maps_four_times_smaller():
    model = create_model("alternet_18", features_only=True, **TINY)
    found = model(torch.randn(1, 3, 64, 96))
    assert [f.shape[2:] for f in found] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert model.feature_info.reduction() == [4, 8, 16, 32]
    assert model.feature_info.channels() == [8, 16, 24, 32]


def test_recomputing_gives_the_same_gradients_and_drop_path_rises():
    model = create_model("alternet_18", drop_path_rate=0.7, **TINY)
    rates = [getattr(b.drop_path, "drop_prob", 0.0) for stage in model.stages for b in stage]
    assert rates == pytest.approx([0.1 * index for index in range(8)])
    model = create_model("alternet_18", **TINY)
    images, found = torch.randn(2, 3, 64, 64), []
    for recompute in (False, True):
        model.set_grad_checkpointing(recompute)
        model.zero_grad()
        model(images).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found)


def test_position_biases_do_not_decay():
    model = create_model("alternet_18", **TINY)
    names = {name for name, _ in model.named_parameters() if "position_bias" in name}
    assert model.no_weight_decay() == names
    assert len(names) == 3
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    free = {id(p) for group in groups if group["weight_decay"] == 0 for p in group["params"]}
    parameters = dict(model.named_parameters())
    assert {id(parameters[name]) for name in names} <= free
    assert id(parameters["stages.1.1.attn.qkv.weight"]) not in free
