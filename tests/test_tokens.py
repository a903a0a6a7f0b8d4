"""Class tokens, distillation tokens and registers: their names, maps, shares and norms."""

import numpy as np
import pytest
import timm
import torch
import transformers
from timm.models.cait import Cait
from timm.models.xcit import Xcit
from torch import nn
from torchvision.models import VisionTransformer

from model_making import SMALL, moved_weights, of_hub
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.features.norms import QUANTILES


def images(size=32, number=3):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(number, 3, size, size, generator=generator, dtype=torch.float32)


def registers():
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=32,
        patch_size=8,
        num_register_tokens=4,
        num_labels=5,
    )
    return transformers.Dinov2WithRegistersForImageClassification(config)


def distilled():
    return timm.create_model(
        "deit_tiny_distilled_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=5
    )


def torchvisions():
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    return VisionTransformer(image_size=32, patch_size=8, num_classes=5, **sizes)


def timms():
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, reg_tokens=2, num_classes=5
    )


REGISTERS = tuple(f"register {number}" for number in (1, 2, 3, 4))
MODELS = {
    "timm's registers": (timms, ("class token", *REGISTERS[:2])),
    "timm's distilled": (distilled, ("class token", "distillation token")),
    "torchvision": (torchvisions, ("class token",)),
    "Hugging Face": (of_hub("ViT"), ("class token",)),
    "DINOv2 with registers": (registers, ("class token", *REGISTERS)),
}


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_named_and_have_their_rows_and_columns_of_the_captured_map(name):
    torch.manual_seed(0)
    make, names = MODELS[name]
    model, batch = make().eval(), images()
    assert capture.prefix_tokens(model, batch) == names
    found = measure.maps(model, [batch])
    with capture.attention(model) as used, torch.no_grad():
        model(batch)
    count = len(names)
    for layer, weights in used.items():
        assert tuple(found.token_names[layer]) == names
        rows = weights[:, :, :count, count:].mean(0).transpose(0, 1).flatten(2)
        np.testing.assert_allclose(found.tokens[layer].reshape(rows.shape), rows, atol=1e-6)
        given = weights[:, :, count:, :count].mean((0, 2)).mT
        np.testing.assert_allclose(found.to_tokens[layer], given, atol=1e-6)
    shares = found.to_record().values["token_share"]
    assert all(len(share) == count for share in shares.values())


def cait():
    return Cait(
        img_size=32, patch_size=8, embed_dim=16, depth=1, depth_token_only=2, num_heads=2,
        num_classes=5,
    )  # fmt: skip


def xcit():
    return Xcit(
        img_size=32, patch_size=8, embed_dim=32, depth=1, cls_attn_layers=2, num_heads=2,
        num_classes=5,
    )  # fmt: skip


def asked_by_hand(attention, tokens):
    """Weights of a class attention layer from its own queries and keys. (B, H, 1, T)"""
    heads = (attention.num_heads, -1)
    if hasattr(attention, "q"):
        query, key = attention.q(tokens[:, :1]), attention.k(tokens)
    else:
        query, key, _ = attention.qkv(tokens).chunk(3, -1)
        query = query[:, :1]
    query, key = (part.unflatten(-1, heads).transpose(1, 2) for part in (query, key))
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)


@pytest.mark.parametrize("make", [cait, xcit])
def test_class_attention_is_the_class_tokens_row_computed_by_hand(make):
    torch.manual_seed(0)
    model, batch = moved_weights(make()).double().eval(), images().double()
    given = {}
    asking = {
        name: module
        for name, module in model.named_modules()
        if name.startswith(("blocks_token_only", "cls_attn")) and name.endswith(".attn")
    }
    for name, module in asking.items():
        module.register_forward_pre_hook(
            lambda _module, inputs, name=name: given.__setitem__(name, inputs[0].detach())
        )
    found = measure.maps(model, [batch])
    with torch.no_grad():
        model(batch)
        by_hand = {name: asked_by_hand(module, given[name]) for name, module in asking.items()}
    assert len(by_hand) == 2
    for name, weights in by_hand.items():
        rows = weights[:, :, 0, 1:].mean(0).unflatten(-1, (4, 4))[None]
        np.testing.assert_allclose(found.tokens[name], rows, rtol=1e-12)
        assert rows.std() > 1e-4  # it tells patches apart
    record = found.to_record()
    asked = dict(zip(*(record.values[k] for k in ("layers", "query")), strict=True))
    assert {name for name, at in asked.items() if at is None} == set(by_hand)
    assert all(record.values["token_names"][name] == ["class token"] for name in by_hand)
    assert not set(by_hand) & (set(found.mixed) | set(found.to_tokens))  # no patch asks there


def test_a_model_without_such_tokens_has_none():
    model = SMALL["swin"]()
    assert capture.prefix_tokens(model, images()) == ()
    assert measure.maps(model, [images()]).tokens == {}


def streams_by_hooks(model, batch):
    """Norms of timm's stream after each attention and MLP, from hooks on the blocks' parts."""
    kept, found = {}, {}

    def before(name):
        return lambda _module, inputs: kept.__setitem__(name, inputs[0])

    handles = []
    for number, block in enumerate(model.blocks):
        handles += [
            block.register_forward_pre_hook(before(f"{number}.in")),
            block.norm2.register_forward_pre_hook(before(f"{number}.middle")),
            block.register_forward_hook(
                lambda _m, _i, out, number=number: kept.__setitem__(f"{number}.out", out)
            ),
        ]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    for number in range(len(model.blocks)):
        found[f"blocks.{number}.attn"] = kept[f"{number}.middle"].norm(dim=-1)
        found[f"blocks.{number}.mlp"] = kept[f"{number}.out"].norm(dim=-1)
    return found


def test_norms_are_those_of_forward_hooks():
    torch.manual_seed(0)
    model, batch = timms().eval(), images()
    found = measure.norms(model, [batch[:2], batch[2:]])
    for unit, wanted in streams_by_hooks(model, batch).items():
        levels = torch.quantile(wanted[:, 3:], torch.tensor(QUANTILES), dim=1).mean(1)
        np.testing.assert_allclose(found.quantiles[unit], levels, rtol=1e-5)
        np.testing.assert_allclose(found.tokens[unit], wanted[:, :3].mean(0), rtol=1e-5)
    assert found.token_names == ("class token", "register 1", "register 2")


class Swell(nn.Module):
    """Makes one patch ten times as large."""

    def forward(self, x):
        scale = torch.ones(x.shape[1], 1)
        scale[3 + 6] = 10.0  # three prefix tokens; row 1, column 2 of 4 x 4
        return x * scale


def test_a_patch_that_is_made_high_is_found_at_its_place_with_the_attention_it_draws():
    torch.manual_seed(0)
    model, batch = timms().eval(), images()
    assert measure.norms(model, [batch]).appears is None
    model.blocks[0].mlp = nn.Sequential(model.blocks[0].mlp)
    model.blocks[0] = nn.Sequential(model.blocks[0], Swell())
    found = measure.norms(model, [batch])
    assert found.appears is not None
    assert found.appears.startswith("blocks.1.")  # the first unit after it
    where = found.where[found.appears]
    assert np.argwhere(where == 1).tolist() == [[1, 2]]
    assert found.high[found.appears] == pytest.approx(1 / 16)
    values = found.to_record().values
    assert values["appears"] == found.appears


def test_what_high_patches_draw_is_their_share_of_the_map():
    torch.manual_seed(0)
    model, batch = timms().eval(), images()
    with torch.no_grad():  # the embedding itself is high in one place
        model.pos_embed[:, -16 + 6] *= 400
    found = measure.norms(model, [batch])
    assert found.appears == "patch_embed" or found.high["blocks.0.attn"] == pytest.approx(1 / 16)
    with capture.attention(model, "blocks.1.attn") as used, torch.no_grad():
        model(batch)
    drawn = used["blocks.1.attn"][..., 3 + 6].mean().item()
    assert found.drawn["blocks.1.attn"] == pytest.approx(drawn, rel=1e-5)
    assert found.even["blocks.1.attn"] == pytest.approx(1 / 16)


def test_norms_need_a_grid():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5))
    with pytest.raises(UserError):
        measure.norms(flat, images(size=8))
