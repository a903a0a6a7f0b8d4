"""What must hold of captured attention, whatever computes it."""

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.vision_transformer import VisionTransformer

import vitascope
from vitascope import capture
from vitascope.capture.attention.events import attention_weights
from vitascope.errors import UserError


class Layer(nn.Module):
    """Attention by whatever ``how`` does with queries, keys and values."""

    def __init__(self, how, dim=8):
        super().__init__()
        self.how, self.qkv = how, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        self.value, self.result = v, self.how(q, k, v)
        return self.result.transpose(1, 2).flatten(2)


def masked(kind):
    mask = torch.rand(5, 5) > 0.5
    mask.fill_diagonal_(True)
    return mask if kind == "bool" else torch.randn(4, 5, 5)


WAYS = {
    "fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "bool mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, masked("bool")),
    "bias": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=masked("float")),
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=2.0),
    "eager": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    "module": lambda q, k, v: nn.Softmax(dim=-1)(q @ k.mT).matmul(v),
    "flat": lambda q, k, v: torch.bmm(
        F.softmax(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT), dim=-1), v.flatten(0, 1)
    ).unflatten(0, (-1, 4)),
    "einsum": lambda q, k, v: torch.einsum(
        "bhts,bhsd->bhtd", torch.softmax(torch.einsum("bhtd,bhsd->bhts", q, k), -1), v
    ),
    "transposed": lambda q, k, v: (v.mT @ (q @ k.mT).softmax(-1).mT).mT,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_map_is_what_multiplies_the_values(way):
    layer = Layer(WAYS[way])
    layer.num_heads = 4
    with capture.attention(layer) as maps:
        layer(torch.randn(3, 5, 8))
    (weights,) = maps.values()
    assert weights.shape == (3, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 5))
    torch.testing.assert_close(weights @ layer.value, layer.result)


def test_grouped_queries_share_their_keys():
    q, k, v = torch.randn(2, 4, 5, 3), torch.randn(2, 2, 7, 3), torch.randn(2, 2, 7, 3)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    weights = attention_weights(q, k, enable_gqa=True)
    torch.testing.assert_close(weights @ v.repeat_interleave(2, dim=1), expected)


def test_a_row_that_may_look_nowhere_is_zero():
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    weights = attention_weights(torch.randn(1, 3, 2), torch.randn(1, 3, 2), mask)
    assert weights[0].sum(-1).tolist() == pytest.approx([1, 0, 1])


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_is_not_part_of_the_map(fused):
    def how(q, k, v):
        if fused:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        return F.dropout((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1), 0.5) @ v

    layer = Layer(how)
    with capture.attention(layer) as maps:
        layer(torch.randn(2, 5, 8))
    torch.testing.assert_close(maps[""].sum(-1), torch.ones(2, 4, 5))


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_in_the_fast_path_and_out_of_it(batch_first):
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        _, expected = layer(x, x, x, average_attn_weights=False)
        fast, _ = layer(x, x, x, need_weights=False)
    with capture.attention(layer) as maps:
        seen, _ = layer(x, x, x, need_weights=False)
    assert torch.equal(seen, fast)
    torch.testing.assert_close(maps[""], expected)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_fused_encoder_layer_answers_for_its_attention(norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        expected = layer(x)
        inner = layer.norm1(x) if norm_first else x
        _, weights = layer.self_attn(inner, inner, inner, average_attn_weights=False)
    with capture.attention(layer) as maps:
        assert torch.equal(layer(x), expected)
        assert not any(m._forward_hooks for m in layer.modules())  # they turn the fast path off
    torch.testing.assert_close(maps["self_attn"], weights)
    assert list(maps) == ["self_attn"]
    assert "forward" not in vars(layer)
    layer.train()
    with capture.attention(layer) as maps:
        layer(x)
    torch.testing.assert_close(maps["self_attn"], weights)


def test_talking_heads_give_the_softmax():
    model = timm.create_model("cait_xxs24_224", img_size=32, depth=1).eval()
    with capture.attention(model, "blocks.*") as maps:
        model(torch.randn(1, 3, 32, 32))
    torch.testing.assert_close(maps["blocks.0.attn"].sum(-1), torch.ones(1, 4, 4))


def small_vit():
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=3)


@pytest.mark.parametrize(
    "model",
    [
        small_vit(),
        timm.create_model("convit_tiny", img_size=32, depth=2, local_up_to_layer=1),
        VisionTransformer(32, 8, 2, 2, 16, 32),
    ],
    ids=["timm vit", "timm convit", "torchvision vit"],
)
@pytest.mark.parametrize("mode", [True, False])
def test_looking_changes_neither_the_model_nor_its_output(model, mode):
    model.train(mode)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
    modes = [m.training for m in model.modules()]
    with capture.attention(model) as maps, capture.features(model, "*.0*"):
        seen = model(x)
    assert torch.equal(seen, expected)
    assert len(maps) == 2
    assert modes == [m.training for m in model.modules()]
    assert nothing_left(model)


def nothing_left(model):
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return not hooks and not torch.overrides.has_torch_function((torch.ones(1),))


@pytest.mark.parametrize(
    "looking",
    [
        lambda m, x: capture.attention(m),
        lambda m, x: capture.features(m, "blocks.*"),
        lambda m, x: capture.edit(m, {"blocks.0": torch.zeros_like}),
        lambda m, x: capture.evaluating(m),
        lambda m, x: capture.streams(m, capture.units(m, x)),
        lambda m, x: capture.without(m, capture.units(m, x), "blocks.0.attn"),
    ],
    ids=["attention", "features", "edit", "evaluating", "streams", "without"],
)
def test_nothing_is_left_behind_after_an_exception(looking):
    model, x = small_vit(), torch.randn(1, 3, 32, 32)
    model.blocks[0].eval()
    modes = [m.training for m in model.modules()]

    def fail(*_):
        raise RuntimeError("inside")

    look = looking(model, x)
    broken = model.blocks[1].attn.proj.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="inside"), look:
        model(x)
    broken.remove()
    assert nothing_left(model)
    assert modes == [m.training for m in model.modules()]
    assert torch.is_grad_enabled()


def test_a_caught_failure_does_not_confuse_the_next_pass():
    model, x = small_vit().eval(), torch.randn(1, 3, 32, 32)
    with capture.attention(model) as maps:
        with pytest.raises(AssertionError):
            model(torch.randn(1, 3, 48, 48))
        model(x)
    assert list(maps) == ["blocks.0.attn", "blocks.1.attn"]


def test_a_caught_failure_inside_multihead_attention_does_not_blind_the_next_pass():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.MultiheadAttention(8, 2, batch_first=True)
            self.second = Layer(WAYS["fused"])

        def forward(self, x):
            return self.second(self.first(x, x, x)[0])

    model = Both()
    with capture.attention(model) as maps:
        with pytest.raises((AssertionError, RuntimeError)):
            model(torch.randn(1, 5, 6))
        model(torch.randn(1, 5, 8))
    assert list(maps) == ["first", "second"]


def test_no_graph_is_kept_unless_asked_for():
    model, x = small_vit(), torch.randn(1, 3, 32, 32)
    with capture.attention(model) as maps:
        model(x)
    assert not maps["blocks.0.attn"].requires_grad
    with capture.attention(model, "blocks.0.*", grad=True) as maps:
        model(x)
    maps["blocks.0.attn"].square().sum().backward()
    assert model.blocks[0].attn.qkv.weight.grad.abs().sum() > 0


def test_maps_are_reduced_at_once_and_only_chosen_layers_kept():
    model = small_vit()
    with capture.attention(model, "blocks.1.*", lambda name, a: (name, a.shape[-1])) as maps:
        model(torch.randn(1, 3, 32, 32))
    assert maps == {"blocks.1.attn": ("blocks.1.attn", 5)}


@pytest.mark.parametrize(
    "model",
    [
        *(Layer(WAYS[way]) for way in WAYS),
        nn.MultiheadAttention(8, 4, batch_first=True),
        nn.MultiheadAttention(8, 4),
        timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(2,), embed_dim=24),
        vitascope.create_model("convit_micro", img_size=16),
        timm.create_model("convit_tiny", img_size=32, depth=2),
    ],
    ids=[*WAYS, "multihead", "tokens first", "windows", "gated", "eagerly gated"],
)
def test_a_few_images_at_a_time_have_the_maps_of_the_whole_batch(model):
    model.eval()
    parts: dict[tuple[str, str], list[torch.Tensor]] = {}

    def show(layer, part, weights):
        parts.setdefault((layer, part), []).append(weights.clone())

    whole: dict[tuple[str, str], torch.Tensor] = {}
    if isinstance(model, nn.MultiheadAttention):
        tokens = torch.randn(3, 5, 8) if model.batch_first else torch.randn(5, 3, 8)
        inputs = (tokens, tokens, tokens)
    elif isinstance(model, Layer):
        model.num_heads = 4
        inputs = (torch.randn(3, 5, 8),)
    else:
        inputs = (torch.randn(3, 3, *model.patch_embed.img_size),)
    gated = capture.gated_layers(model)
    with torch.no_grad(), capture.attention(model) as maps:
        model(*inputs)
    wanted = {n: ("mixed", "content", "position") if n in gated else ("mixed",) for n in maps}
    with (
        torch.no_grad(),  # both see one pass: the layers above mask at random
        capture.watch_maps(model, wanted, lambda n, part, w: whole.update({(n, part): w})),
        capture.watch_maps(model, wanted, show, max_elements=1),
    ):
        model(*inputs)
    images = 1 if isinstance(model, nn.MultiheadAttention) and not model.batch_first else 3
    assert {len(shown) for shown in parts.values()} == {images}  # tokens first: not divided
    assert parts.keys() == whole.keys()
    for key, shown in parts.items():
        torch.testing.assert_close(torch.cat(shown), whole[key])


def test_a_module_that_attends_twice_has_two_maps():
    layer = Layer(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, F.scaled_dot_product_attention(q, k, v), v
        )
    )
    with capture.attention(layer) as maps:
        layer(torch.randn(1, 5, 8))
        layer(torch.randn(1, 5, 8))
    assert list(maps) == ["", "@2"]


def test_what_is_not_there_is_an_error_that_says_what_is():
    model, x = small_vit(), torch.randn(1, 3, 32, 32)
    with pytest.raises(UserError, match=r"blocks\.0\.attn"), capture.attention(model, "blok.*"):
        model(x)
    with pytest.raises(UserError, match="no attention map"), capture.attention(nn.Linear(2, 2)):
        pass
    with pytest.raises(UserError, match="no gated"), capture.attention(model, part="content"):
        model(x)
    with pytest.raises(UserError, match="mixed, content"), capture.attention(model, part="x"):
        pass


@pytest.mark.parametrize("name", ["convit_micro", "convit_tiny"])
def test_gated_layers_show_what_they_mix(name):
    import vitascope

    if name == "convit_micro":
        model = vitascope.create_model(name, num_classes=3).eval()
    else:
        model = timm.create_model(name, img_size=32, depth=2, local_up_to_layer=1).eval()
    gated = capture.gated_layers(model)
    x, parts = torch.randn(2, 3, 32, 32), {}
    for layer in gated.values():
        nn.init.normal_(layer.gating_param)
    for part in ("content", "position", "mixed"):
        with capture.attention(model, list(gated), part=part) as parts[part]:
            model(x)
    for layer_name, layer in gated.items():
        content, position, mixed = (parts[p][layer_name] for p in ("content", "position", "mixed"))
        gate = layer.gating_param.detach().sigmoid().view(-1, 1, 1)
        torch.testing.assert_close(mixed, (1 - gate) * content + gate * position)
        assert torch.equal(position[0], position[1])
        assert not torch.equal(content[0], content[1])


def test_an_edit_changes_the_output_and_a_typo_is_an_error():
    model, x = small_vit().eval(), torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
        with capture.edit(model, {"blocks.*.attn": lambda out: out + 1}):
            assert not torch.equal(model(x), expected)
        assert torch.equal(model(x), expected)
    with pytest.raises(UserError, match=r"blocks\.0"), capture.edit(model, {"blosk.0": torch.relu}):
        pass
    model.spare = nn.Identity()
    with pytest.raises(UserError, match="spare"), capture.edit(model, {"spare": torch.relu}):
        model(x)
    with pytest.raises(UserError, match="spare"), capture.features(model, "spare"):
        model(x)


def test_features_come_in_order_of_execution():
    model = small_vit()
    with capture.features(model, ["head", "blocks.?", "patch_embed"]) as seen:
        model(torch.randn(1, 3, 32, 32))
    assert list(seen) == ["patch_embed", "blocks.0", "blocks.1", "head"]
