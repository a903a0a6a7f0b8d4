"""Registers at test time, on a ViT in which outlier patches are planted."""

from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from page_reading import blocks
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.features.registers import register_neurons
from vitascope.measure.features.registers import test_time_registers as with_registers

BLOCK, NEURON = 1, 7


def marked(count=6):
    """Noise with one bright patch each; and which patch it is."""
    generator = torch.Generator().manual_seed(1)
    images = 0.3 * torch.randn(count, 3, 32, 32, generator=generator)
    places = torch.randint(16, (count,), generator=generator)
    for image, place in zip(images, places.tolist(), strict=True):
        top, left = 8 * (place // 4), 8 * (place % 4)
        image[:, top : top + 8, left : left + 8] += 0.5
    return images, places


@pytest.fixture(scope="module")
def planted():
    """One neuron of the second MLP notices bright patches and makes them large."""
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        depth=4,
        embed_dim=48,
        num_heads=3,
        num_classes=5,
    ).eval()
    nn.init.normal_(model.patch_embed.proj.weight, std=0.1)
    images, places = marked()
    mlp = model.blocks[BLOCK].mlp
    seen = {}
    hook = mlp.register_forward_pre_hook(lambda m, inputs: seen.update(x=inputs[0]))
    with torch.no_grad():
        model(images)
        tokens = seen["x"][:, 1:]
        bright = torch.zeros(tokens.shape[:2], dtype=torch.bool)
        bright[torch.arange(len(places)), places] = True
        direction = tokens[bright].mean(0) - tokens[~bright].mean(0)
        score = tokens @ direction
        low, high = score[~bright].max(), score[bright].min()
        assert high > low
        mlp.fc1.weight[NEURON] = 20 * direction / (high - low)
        mlp.fc1.bias[NEURON] = -20 * (low + high) / 2 / (high - low)
        mlp.fc2.weight[:, NEURON] = 3 * torch.randn(48)
    hook.remove()
    return model


def test_the_planted_neuron_and_its_block_are_found(planted):
    images, _ = marked()
    found = register_neurons(planted, [images[:4], images[4:]], count=3)
    assert found.block == BLOCK
    assert found.share == pytest.approx(1 / 16)
    assert found.norm > 3 * found.median
    first, second, _ = found.neurons
    assert (first.block, first.index) == (BLOCK, NEURON)
    assert first.on_high > 5 > abs(first.elsewhere)
    assert second.on_high - second.elsewhere < first.on_high / 3


def test_the_outliers_move_to_the_new_token_and_the_output_keeps_its_shape(planted):
    images, _ = marked()
    before = measure.norms(planted, [images])
    assert before.high[f"blocks.{BLOCK}.mlp"] == pytest.approx(1 / 16)
    found = register_neurons(planted, [images], count=1)
    streams = {}

    def keep(name):
        return lambda module, inputs, output: streams.update({name: output})

    hooks = [planted.blocks[i].register_forward_hook(keep(i)) for i in range(3)]
    with torch.no_grad(), with_registers(planted, found.neurons):
        logits = planted(images)
        features = planted.forward_features(images)
    for hook in hooks:
        hook.remove()
    assert logits.shape == (len(images), 5)
    assert features.shape == (len(images), 17, 48)
    norms = streams[BLOCK].norm(dim=-1)
    patches, register = norms[:, 1:17], norms[:, 17]
    assert bool((patches.amax(1) < 3 * patches.median(1).values).all())
    assert bool((register > 3 * patches.median(1).values).all())


def test_maps_have_the_new_token_inside_and_everything_is_restored_outside(planted):
    images, _ = marked()
    with torch.no_grad():
        expected = planted(images)
    found = register_neurons(planted, [images], count=1)
    with with_registers(planted, found.neurons), capture.attention(planted) as maps:
        planted(images)
    assert maps["blocks.2.attn"].shape[-1] == 18  # class token, patches, register
    with torch.no_grad():
        assert torch.equal(planted(images), expected)


def test_without_neurons_the_new_token_is_only_one_more_key(planted):
    images, _ = marked(2)
    with torch.no_grad(), with_registers(planted, ()):
        assert planted(images).shape == (2, 5)


def test_the_example_of_the_page_runs(planted, capsys):
    page = Path(__file__).parents[1] / "docs" / "registers.md"
    (code,) = blocks(page, "python")
    names = {"torch": torch, "model": planted, "images": marked()[0]}
    exec(compile(code, page.name, "exec"), names)
    assert names["features"].shape == (6, 17, 48)
    assert "Neuron(block=1, index=7" in capsys.readouterr().out


def test_what_has_no_outliers_or_no_blocks_is_refused(planted):
    torch.manual_seed(0)
    plain = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1)
    with pytest.raises(UserError, match="nothing to move"):
        register_neurons(plain, [0.3 * torch.randn(4, 3, 32, 32)])
    with pytest.raises(UserError, match="ResNet has none"):
        register_neurons(timm.create_model("resnet18"), [torch.randn(1, 3, 64, 64)])
    rotary = timm.create_model("eva02_tiny_patch14_224", img_size=28, depth=1)
    with pytest.raises(UserError, match="position for every token"), with_registers(rotary, ()):
        pass
