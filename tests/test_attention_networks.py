"""Attention, tokens and instruments on networks not chosen by us: scripts/attention_networks.py."""

from functools import partial

import attention_networks as networks
import pytest
import torch
import transformers
from attention_networks import Network, of_timm
from torch.nn import functional as F

from slow_marks import slow_if
from vitascope import capture, measure
from vitascope.errors import UserError

SMALL = (3, 64, 64)
HUB = {"hidden_size": 32, "intermediate_size": 64, "image_size": 64, "patch_size": 8}
HUB |= {"num_hidden_layers": 2, "num_attention_heads": 2}
HIERA = {"embed_dim": 16, "num_heads": 1, "stages": (1, 1, 1, 1)}


def of_hub(kind, **options):
    config = getattr(transformers, f"{kind}Config")(**options)
    return Network(
        f"Hugging Face {kind}", partial(getattr(transformers, f"{kind}Model"), config), SMALL
    )


FEW = {
    "hiera": of_timm("hiera_tiny_224", (3, 128, 128), img_size=128, **HIERA),
    "nextvit": of_timm("nextvit_small", (3, 128, 128), depths=(1, 1, 5, 1)),
    "efficientformer v2": of_timm("efficientformerv2_s0", SMALL, img_size=64),
    "swin": of_timm(
        "swin_tiny_patch4_window7_224", SMALL, img_size=64, window_size=4, embed_dim=16,
        depths=(2, 2), num_heads=(1, 2),
    ),
    "cait": of_timm("cait_xxs24_224", SMALL, img_size=64, depth=1),
    "xcit": of_timm("xcit_nano_12_p16_224", SMALL, img_size=64, depth=1),
    "vit": of_timm("test_vit", SMALL, img_size=64),
    "hub hiera": of_hub("Hiera", image_size=[64, 64], embed_dim=16, depths=[1, 1, 1, 1]),
    "hub masked autoencoder": of_hub("ViTMAE", **HUB),
    "hub dinov3": of_hub("DINOv3ViT", **HUB),
    "torchvision": networks.torchvision_networks()[0],
    "torchvision maxvit": networks.torchvision_networks()[3],
}  # fmt: skip


@pytest.mark.parametrize(
    "name", slow_if(FEW, ("nextvit", "efficientformer v2", "torchvision maxvit"))
)
def test_the_identities_hold(name):
    found = networks.examine(FEW[name])
    assert found.problems == []
    assert found.layers


FALSE = {  # of a plain ViT
    "capture": {"": "no attention map was seen: nothing ran in the block, or it has none"},
    "nonlocality": {
        "blocks.0.attn": "attends over channels",
        "blocks.1.attn": "which patches its tokens are depends on the image or on chance",
        "blocks.2.attn": "no patch attends, only the class token",
        "blocks.3.attn": "its keys are no patches: learned, or weights computed without keys",
        "blocks.4.attn": "its tokens cannot be followed back to the image",
    },
    "fourier": {
        "blocks.0.mlp": "one vector an image",
        "blocks.1.mlp": "a single place is left",
        "blocks.2.mlp": "its batch has 4 windows an image",
        "blocks.3.mlp": "its tokens cannot be followed back; state the grid of (17, 64)",
        "blocks.4.mlp": "which patches its tokens are depends on the image or on chance",
    },
    "cka": {
        "blocks.0.mlp": "its features are the same for all images",
        "blocks.1.mlp": "it has 16 rows for 4 images",
        "blocks.2.mlp": "a reason that nobody has thought of",
    },
}


def test_false_reasons_are_not_confirmed():
    images = networks.random_images(FEW["vit"])
    structure = networks.ModelStructure(networks.built(FEW["vit"]), images)
    reasons = [(kind, name, why) for kind, each in FALSE.items() for name, why in each.items()]
    for kind, name, why in reasons:
        found = networks.Findings(FEW["vit"], refused={kind: {name: why}})
        networks.check_reasons(found, structure, images)
        assert found.problems, why


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_identities_hold_of_every_network():
    everything = list(networks.all_networks())
    assert len(everything) > 80
    problems = {
        n.name: found.problems for n in everything if (found := networks.examine(n)).problems
    }
    assert problems == {}


def test_windows_and_heads_of_hiera_are_those_computed_by_hand():
    model = networks.built(FEW["hiera"])
    layer = model.blocks[1].attn
    given = {}
    layer.register_forward_pre_hook(lambda _, inputs: given.update(x=inputs[0]))
    images = networks.random_images(FEW["hiera"])
    maps = networks.captured(model, images)
    windows = given["x"].shape[1] // (layer.q_stride * layer.window_size)
    qkv = layer.qkv(given["x"]).reshape(2, -1, windows, 3, layer.heads, layer.head_dim)
    q, k, _ = qkv.permute(3, 0, 4, 2, 1, 5)
    q = q.view(2, layer.heads, windows, layer.q_stride, -1, layer.head_dim).amax(3)
    expected = (q @ k.mT * layer.head_dim**-0.5).softmax(-1).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(maps["blocks.1.attn"], expected)


def test_keys_pooled_in_raster_order_lie_in_the_middle_of_their_tokens():
    model, images = networks.built(FEW["nextvit"]), networks.random_images(FEW["nextvit"])
    places = capture.token_coordinates(model, images)
    tokens = next(t for t in places.values() if t.key.shape[1] < t.query.shape[1])
    pooled = tokens.query.shape[1] // tokens.key.shape[1]
    expected = tokens.query[0].unflatten(0, (-1, pooled)).mean(1)
    torch.testing.assert_close(tokens.key[0], expected)
    sides = (128 / tokens.grid[0], 128 / tokens.grid[1])
    assert tokens.step == pytest.approx(sides, rel=1e-5)


class Folded(torch.nn.Module):
    """Attention whose heads stand where ``order`` puts them; windows of four tokens."""

    def __init__(self, order, heads=2, stated=True):
        super().__init__()
        self.order, self.count, self.qkv = order, heads, torch.nn.Linear(8, 24)
        if stated:
            self.num_heads = heads

    def forward(self, x):
        x = x.flatten(2).mT  # (B, 16, C): windows of 4 tokens, as many as there may be heads
        qkv = self.qkv(x).unflatten(1, (4, 4)).unflatten(-1, (3, self.count, -1))
        q, k, v = qkv.permute(3, 0, 1, 4, 2, 5)  # (B, W, H, T, d)
        self.expected = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        q, k, v = (self.order(part) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v)


ORDERS = {
    "windows, heads": lambda x: x,
    "heads, windows": lambda x: x.transpose(1, 2),
    "windows in the batch": lambda x: x.flatten(0, 1),
    "heads in the batch": lambda x: x.transpose(1, 2).flatten(0, 1),
    "all in the batch": lambda x: x.flatten(0, 2),
    "all in the batch, heads first": lambda x: x.transpose(1, 2).flatten(0, 2),
}


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_heads_and_windows_are_told_apart_in_every_order(order, heads, stated):
    layer = Folded(ORDERS[order], heads, stated)
    with capture.attention(layer) as maps:
        layer(torch.randn(3, 8, 4, 4))
    torch.testing.assert_close(maps[""], layer.expected.flatten(0, 1))


def test_a_softmax_times_something_else_is_no_attention():
    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = torch.nn.Linear(8, 8)

        def forward(self, x):
            weights = self.dense(x).softmax(-1) * x
            return weights @ x.mT

    model = Gated()
    with pytest.raises(UserError), capture.attention(model):
        model(torch.rand(2, 5, 8))


def test_tokens_chosen_by_chance_are_refused():
    model, images = networks.built(FEW["hub masked autoencoder"]), torch.randn(2, *SMALL)
    found, untraced = capture.trace_tokens(model, images)
    assert not found
    assert all("chance" in why for why in untraced.values())
    assert measure.together(model, images).refused.keys() >= {"nonlocality", "maps"}


def test_a_learned_query_is_shown_as_one():
    model = of_hub("SiglipVision", **HUB).make()
    found = measure.maps(model, torch.randn(2, *SMALL))
    assert found.token_names == {"head.attention": ["learned query"]}
    left_out = measure.nonlocality(model, torch.randn(2, *SMALL)).left_out
    assert "learned query" in left_out["head.attention"]
