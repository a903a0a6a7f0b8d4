"""Context broadcasting in the families people use: random weights, small inputs."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest
import timm
import torch
import transformers
from torch import nn
from torchvision.models.swin_transformer import SwinTransformer

import vitascope
from model_making import SMALL, moved_weights, of_hub, of_timm
from slow_marks import slow_if
from vitascope.errors import UserError
from vitascope.layers import ContextBroadcast
from vitascope.layers.context_broadcasting.broadcast import context_broadcast
from vitascope.layers.context_broadcasting.sublayers import attentions, mlps


@dataclass(frozen=True)
class Family:
    make: Callable[[], nn.Module]
    mlps: int
    attentions: int
    size: int = 32
    class_token: bool = False  # in every layer
    no_middle: str = ""  # what is said of attention whose projection is not called as a module
    whole: bool = True  # its MLPs see every token


def ours(name, **kwargs):
    return partial(vitascope.create_model, name, num_classes=5, **kwargs)


def hub_swin(**kwargs):
    sizes = {"patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [1, 2]}
    config = transformers.SwinConfig(**sizes, window_size=4, num_labels=5, **kwargs)
    return transformers.SwinForImageClassification(config)


SWIN = {"window_size": 4, "embed_dim": 16, "depths": (2, 1), "num_heads": (1, 2)}
FAMILIES = {
    "vit": Family(SMALL["vit"], 2, 2, class_token=True),
    "vit with registers": Family(
        of_timm("vit_small_patch14_reg4_dinov2", img_size=28, depth=1), 1, 1, 28, True
    ),
    "parallel vit": Family(
        of_timm("vit_small_patch16_18x2_224", img_size=32, depth=1, embed_dim=48, num_heads=3),
        2,
        2,
        class_token=True,
    ),
    "deit distilled": Family(SMALL["deit"], 1, 1, class_token=True),
    "swin": Family(of_timm("swin_tiny_patch4_window7_224", img_size=32, **SWIN), 3, 3),
    "swin v2": Family(of_timm("swinv2_tiny_window8_256", img_size=32, **SWIN), 3, 3),
    "pvt v2": Family(SMALL["pvt v2"], 4, 4, 64),
    "pit": Family(SMALL["pit"], 3, 3, 64, True),
    "twins": Family(
        of_timm("twins_svt_small", img_size=32, depths=(2, 1, 1, 1), wss=(5, 4, 4, 4)), 5, 5
    ),
    "coat": Family(SMALL["coat"], 4, 4, class_token=True),
    "levit": Family(SMALL["levit"], 5, 5, 64),
    "beit": Family(
        SMALL["beit"],
        1,
        1,
        class_token=True,
    ),
    "eva02, a gated MLP": Family(SMALL["eva02"], 1, 1, 28, True),
    "maxvit": Family(
        SMALL["maxvit"],
        4,
        4,
        64,
    ),
    "cait": Family(SMALL["cait"], 3, 3),
    "convit": Family(SMALL["convit"], 3, 3),
    "mixer": Family(SMALL["mixer"], 2, 0, 64),
    "convnext": Family(SMALL["convnext"], 4, 0, 64),
    "convnext, as maps": Family(
        of_timm("convnext_atto", depths=(1, 1, 1, 1), conv_mlp=True), 4, 0, 64
    ),
    "our convit": Family(ours("convit_micro", depth=3, num_gpsa_blocks=2), 3, 3),
    "our localvit": Family(ours("localvit_micro", depth=2), 2, 2, class_token=True, whole=False),
    "our pvt": Family(ours("pvt_micro"), 4, 4),
    "our alternet": Family(ours("alternet_micro"), 0, 2),
    "torchvision vit": Family(
        SMALL["torchvision vit"],
        2,
        2,
        class_token=True,
        no_middle="has no mid: its last dense layer is no module",
    ),
    "torchvision swin": Family(
        lambda: SwinTransformer([4, 4], 16, [2, 1], [1, 2], [4, 4], num_classes=5),
        3,
        3,
        no_middle="attn.proj was passed by",
    ),
    "hub vit": Family(of_hub("ViT"), 2, 2, class_token=True),
    "hub beit": Family(of_hub("Beit", use_relative_position_bias=True), 2, 2, class_token=True),
    "hub dinov2": Family(of_hub("Dinov2"), 2, 2, class_token=True),
    "hub dinov2, a gated MLP": Family(
        of_hub("Dinov2", use_swiglu_ffn=True), 2, 2, class_token=True
    ),
    "hub swin": Family(partial(hub_swin, image_size=32), 3, 3),
}


@cache
def built(name):
    """The model in float64, with every constant weight shaken so that no part is idle."""
    torch.manual_seed(0)
    return shaken(FAMILIES[name].make())


def shaken(model):
    return moved_weights(model.double())


# Those that have kin among the others.
LONG = (
    "cait",
    "coat",
    "convnext, as maps",
    "hub dinov2, a gated MLP",
    "levit",
    "maxvit",
    "our pvt",
    "parallel vit",
    "pvt v2",
    "swin v2",
    "twins",
    "vit with registers",
)


@pytest.fixture(params=slow_if(FAMILIES, LONG))
def family(request):
    kind = FAMILIES[request.param]
    images = torch.randn(2, 3, kind.size, kind.size, dtype=torch.float64)
    return kind, copy.deepcopy(built(request.param)), images


def logits(model, *args, **kwargs):
    out = model(*args, **kwargs)
    return getattr(out, "logits", out)


def watched(model):
    """What every layer of broadcasting is called with, from now on."""
    seen = []
    for layer in model.modules():
        if isinstance(layer, ContextBroadcast):
            layer.register_forward_pre_hook(lambda m, args: seen.append(args))
    return seen


def places(kind):
    return [w for w, n in (("mlp", kind.mlps), ("msa", kind.attentions)) if n]


def test_every_mlp_and_attention_is_found(family):
    kind, model, _ = family
    assert len(mlps(model)) == kind.mlps
    assert len(attentions(model)) == kind.attentions


def test_it_works_within_each_image_over_all_of_it_and_trains(family):
    kind, plain, images = family
    with torch.no_grad():
        expected = logits(plain, images)
    for where in places(kind):
        model = vitascope.broadcast(copy.deepcopy(plain), "cb_s", where=where)
        seen = watched(model)
        together = logits(model, images)
        assert (together - expected).abs().max() > 1e-11
        assert [args[2] or len(args[0]) for args in seen] == [2] * len(seen)
        apart = torch.cat([logits(model, image[None]) for image in images])
        torch.testing.assert_close(together, apart)
        together.square().sum().backward()
        scales = {n: p.grad for n, p in model.named_parameters() if n.endswith("broadcast.scale")}
        assert len(scales) == (kind.mlps if where == "mlp" else kind.attentions)
        assert all(grad is not None and grad.abs().max() > 0 for grad in scales.values())


def test_without_parameters_no_name_changes_and_the_middle_equals_the_end(family):
    kind, plain, images = family
    for where in places(kind):
        end = vitascope.broadcast(copy.deepcopy(plain), where=where)
        assert list(end.state_dict()) == list(plain.state_dict())
        middle = copy.deepcopy(plain)
        if where == "msa" and kind.no_middle:
            with pytest.raises(UserError, match=kind.no_middle):
                logits(vitascope.broadcast(middle, position="mid", where=where), images)
            continue
        vitascope.broadcast(middle, position="mid", where=where)
        assert list(middle.state_dict()) == list(plain.state_dict())
        same = torch.allclose(logits(middle, images), logits(end, images), rtol=1e-9, atol=1e-11)
        assert same == (kind.whole or where == "msa")


def test_only_with_a_class_token_in_every_layer_it_can_gate(family):
    kind, model, images = family
    for where in places(kind):
        if kind.class_token:
            expected = logits(model, images)
            other = vitascope.broadcast(copy.deepcopy(model), "cb_hybrid", where=where)
            assert (logits(other, images) - expected).abs().max() > 1e-8
        else:
            with pytest.raises(UserError, match="cb_hybrid needs a class token"):
                vitascope.broadcast(copy.deepcopy(model), "cb_hybrid", where=where)


# windows


SAM = {"depth": 2, "embed_dim": 16, "num_heads": 2, "window_size": 4, "patch_size": 4}
WINDOWED = {  # windows of 4 on 10 x 14 patches: blocks, who gets the attention's output, and is the
    "swin": (  # shortcut in it
        of_timm("swin_tiny_patch4_window7_224", img_size=(40, 56), **SWIN),
        "layers.0.blocks.",
        "norm2",
        True,
    ),
    "swin v2": (
        of_timm("swinv2_tiny_window8_256", img_size=(40, 56), strict_img_size=False, **SWIN),
        "layers.0.blocks.",
        "norm1",
        False,
    ),
    "sam": (of_timm("samvit_base_patch16", img_size=(40, 56), **SAM), "blocks.", "norm2", True),
    "hub swin": (
        partial(hub_swin, image_size=(40, 56)),
        "swin.encoder.layers.0.blocks.",
        "layernorm_after",
        True,
    ),
}


def attended(model, block, norm, with_shortcut, images):
    """What a block's attention adds to the stream. (B, T, D)"""
    seen = {}
    block = model.get_submodule(block)
    hooks = [
        block.register_forward_pre_hook(lambda m, args: seen.update(before=args[0])),
        block.get_submodule(norm).register_forward_pre_hook(
            lambda m, args: seen.setdefault("after", args[0])  # only the first call
        ),
    ]
    logits(model, images)
    for hook in hooks:
        hook.remove()
    before, after = (seen[key].reshape(len(images), -1, 16) for key in ("before", "after"))
    return after - before if with_shortcut else after


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("index", [0, 1])  # the second is shifted
@pytest.mark.parametrize("position", ["mid", "end"])
def test_padded_and_shifted_windows_make_one_image_without_their_padding(name, index, position):
    make, blocks, *where = WINDOWED[name]
    model, block = shaken(make()), f"{blocks}{index}"
    images = torch.randn(2, 3, 40, 56, dtype=torch.float64)
    plain = attended(model, block, *where, images)
    assert plain.shape == (2, 140, 16)
    (part,) = (part.name for part in attentions(model) if part.block == block)
    vitascope.broadcast(model, position=position, where="msa", modules=part)
    seen = watched(model)
    found = attended(model, block, *where, images)
    torch.testing.assert_close(found, context_broadcast(plain))
    assert seen[0][1].sum(1).tolist() == [140, 140]
    assert seen[0][1].shape == (2, 192)


def test_padding_does_not_become_content_at_the_front():
    """In front of Swin's attention the padded zeros stay zeros."""
    make = WINDOWED["swin"][0]
    model = vitascope.broadcast(shaken(make()), position="front", where="msa")
    seen = []
    model.layers[0].blocks[0].attn.qkv.register_forward_pre_hook(lambda m, a: seen.append(a[0]))
    logits(model, torch.randn(2, 3, 40, 56, dtype=torch.float64))
    zeros = (seen[0] == 0).all(-1).sum().item()
    assert zeros == 2 * (12 * 16 - 10 * 14)


def test_windows_padded_inside_the_attention_are_refused_in_the_middle():
    model = vitascope.create_model("alternet_micro+cb:mid:msa", window=3).eval()
    with pytest.raises(UserError, match="are padded: broadcast at its end"):
        model(torch.randn(1, 3, 32, 32))


@pytest.mark.slow
def test_windows_compile_and_export():
    make = WINDOWED["swin"][0]
    model = vitascope.broadcast(shaken(make()).float(), "cb_s", where="both")
    images = torch.randn(2, 3, 40, 56)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (images,), dynamic_shapes={"x": {0: batch}})
    others = torch.randn(3, 3, 40, 56)
    torch.testing.assert_close(program.module()(others), model(others))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), model(images))


# masks


def test_a_vit_told_to_mask_tokens_leaves_them_out():
    model = vitascope.broadcast(shaken(FAMILIES["vit"].make()), where="both")
    x = torch.randn(2, 7, 192, dtype=torch.float64)
    keep = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    keep[1, ..., 5:] = False
    found = model.blocks[0](x, attn_mask=keep)
    torch.testing.assert_close(found[:1], model.blocks[0](x[:1]))
    torch.testing.assert_close(found[1:, :5], model.blocks[0](x[1:, :5]))


def test_a_naflexvit_leaves_its_padded_patches_out():
    model = timm.create_model("naflexvit_base_patch16_gap", depth=1, embed_dim=48, num_heads=3)
    model = vitascope.broadcast(shaken(model))
    patches = torch.randn(2, 6, 768, dtype=torch.float64)
    at = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), -1)
    at = at.reshape(1, 6, 2).expand(2, -1, -1)
    valid = torch.tensor([[True] * 6, [True] * 6])
    expected = model(patches, patch_coord=at, patch_valid=valid)
    more = torch.randn(2, 3, 768, dtype=torch.float64)
    padded = model(
        torch.cat([patches, more], 1),
        patch_coord=torch.cat([at, torch.zeros_like(at[:, :3])], 1),
        patch_valid=torch.cat([valid, torch.zeros(2, 3, dtype=torch.bool)], 1),
    )
    torch.testing.assert_close(padded, expected)


def test_torchs_own_encoder_leaves_masked_tokens_out():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = shaken(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    model = vitascope.broadcast(model)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    found = model(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found[:1], model(x[:1]))
    torch.testing.assert_close(found[1:, :5], model(x[1:, :5]))


# vision and language


@pytest.fixture
def vilt():
    config = transformers.ViltConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=100,
        image_size=32,
        patch_size=8,
        max_image_length=-1,
        num_labels=7,
    )
    return shaken(transformers.ViltForQuestionAnswering(config)).float()


@pytest.fixture
def questions():
    """Two questions of 8 and 5 words, the second filled up, about two images of which one is."""
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    there = torch.ones(2, 32, 32, dtype=torch.long)
    there[1, :, 24:] = 0
    return {
        "input_ids": torch.randint(1, 100, (2, 8)) * mask,
        "attention_mask": mask,
        "token_type_ids": torch.zeros(2, 8, dtype=torch.long),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "pixel_mask": there,
    }


@pytest.mark.parametrize("kind", ["cb", "cb_s", "cb_gate", "cb_hybrid"])
@pytest.mark.parametrize("where", ["mlp", "msa", "both"])
def test_vilt_learns_from_a_batch_of_questions(kind, where, vilt, questions):
    plain = logits(vilt, **questions)
    model = vitascope.broadcast(vilt, kind, where=where)
    answers = torch.zeros(2, 7)
    answers[0, 3], answers[1, 5] = 1.0, 0.6  # soft scores, as in VQAv2
    out = model(**questions, labels=answers)
    assert (out.logits - plain).abs().max() > 1e-6
    out.loss.backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert all(name.endswith("key.bias") for name in dead)  # a softmax does not see it
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.step()
    assert model(**questions, labels=answers).loss < out.loss


@pytest.mark.parametrize("position", ["front", "mid", "end"])
@pytest.mark.parametrize("where", ["mlp", "msa"])
def test_vilts_padded_words_and_pixels_change_nothing(position, where, vilt, questions):
    model = vitascope.broadcast(vilt, "cb", position, where)
    torch.manual_seed(1)  # it chooses among padded patches by chance
    expected = logits(model, **questions)
    others = {key: value.clone() for key, value in questions.items()}
    others["input_ids"][1, 5:] = 42
    others["pixel_values"][1, :, :, 24:] = 9.0
    torch.manual_seed(1)
    torch.testing.assert_close(logits(model, **others), expected)
    others["input_ids"][1, 4] = (others["input_ids"][1, 4] + 1) % 100
    torch.manual_seed(1)
    assert (logits(model, **others) - expected).abs().max() > 1e-6
