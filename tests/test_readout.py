"""What layers know: the logit lens, the probe, and patching between images."""

import numpy as np
import pytest
import torch
from torch import nn

import vitascope
from vitascope import measure
from vitascope.errors import UserError

SIDE, CLASSES = 16, 3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def small(name="vit_micro", **options):
    shape = {"img_size": SIDE, "patch_size": 4, "depth": 3} if "vit" in name else {}
    model = vitascope.create_model(name, **{"num_classes": CLASSES, **shape, **options})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def labelled(count=60):
    """Images of three colours: everything is known from the first layer on."""
    labels = torch.arange(count) % CLASSES
    images = 0.3 * torch.randn(count, 3, SIDE, SIDE)
    images[torch.arange(count), labels] += 2.0
    return [(images[:32], labels[:32]), (images[32:], labels[32:])]


def test_the_lens_after_a_block_is_the_network_with_that_many_blocks():
    model, pairs = small(), labelled()
    found = measure.lens(model, pairs)
    short = small(depth=2)
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("blocks.2.")}
    short.load_state_dict(state)
    with torch.no_grad():
        expected = torch.cat([short(images).argmax(1) == labels for images, labels in pairs])
        whole = torch.cat([model(images).argmax(1) == labels for images, labels in pairs])
    names = list(found.lens)
    assert names == [f"blocks.{i}.{part}" for i in range(3) for part in ("attn", "mlp")]
    np.testing.assert_array_equal(
        found.correct[1 + names.index("blocks.1.mlp")], expected.numpy().astype(np.uint8)
    )
    np.testing.assert_array_equal(found.correct[0], whole.numpy().astype(np.uint8))
    np.testing.assert_array_equal(found.correct[-1], found.correct[0])
    assert found.lens["blocks.2.mlp"] == found.intact


@pytest.mark.parametrize("name", ["vit_micro", "resnet_micro", "alternet_micro"])
def test_a_probe_reads_colours_after_every_unit(name):
    found = measure.lens(small(name), labelled())
    assert min(found.probe.values()) > 0.9
    assert found.num_probed == found.num_images == 60
    record = found.to_record()
    assert record.values["units"] == list(found.lens)
    assert record.arrays["images/correct"].shape == (1 + len(found.lens), 60)


def test_small_classes_are_left_out_of_the_probe_with_the_reason():
    images, labels = labelled(12)[0]
    found = measure.lens(small(), [(images, labels)])
    assert not found.probe
    assert "give more --images" in found.left_out["probe"]
    assert len(found.lens) == 6


def test_a_network_without_branches_has_no_lens():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, CLASSES))
    with pytest.raises(UserError, match="next to a shortcut"):
        measure.lens(model, labelled())


def two(model):
    images = torch.randn(40, 3, SIDE, SIDE)
    with torch.no_grad():
        answers = model(images).argmax(1)
    other = int((answers != answers[0]).nonzero()[0])
    return images[:1], images[other : other + 1]


def test_patching_moves_nothing_everything_and_what_it_says():
    model = small("vit_micro_gap")
    with torch.no_grad():
        model.head.weight.mul_(20)
    source, target = two(model)
    found = measure.patching(model, source, target)
    assert found.moved["patch_embed"] == pytest.approx(1.0, abs=1e-4)  # all that follows
    kept = {}
    hook = model.blocks[1].mlp.register_forward_hook(lambda m, i, o: kept.setdefault("out", o))
    with torch.no_grad():
        model(source)
    hook.remove()
    hook = model.blocks[1].mlp.register_forward_hook(lambda m, i, o: kept["out"])
    with torch.no_grad():
        logits = model(target)[0]
    hook.remove()
    first, second = found.classes
    high, low = found.scores
    moved = (float(logits[first] - logits[second]) - low) / (high - low)
    assert found.moved["blocks.1.mlp"] == pytest.approx(moved, abs=1e-4)


def test_patching_some_tokens_alone():
    model = small()
    with torch.no_grad():
        model.head.weight.mul_(20)
    source, target = two(model)
    last = "blocks.2.*"  # after it the class token alone is read
    whole = measure.patching(model, source, target, units=last)
    token = measure.patching(model, source, target, units=last, tokens=[0])
    others = measure.patching(model, source, target, units=last, tokens=[1, 2])
    for name in whole.moved:
        assert token.moved[name] == pytest.approx(whole.moved[name], abs=1e-4)
        assert others.moved[name] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.zeros(1, 3, 8, 8)}, "two images of shape"),
        ({"classes": (1, 1)}, "class 1"),
        ({"tokens": [99]}, "has no tokens"),
    ],
)
def test_what_cannot_be_patched_is_refused(change, message):
    model = small("vit_micro_gap")
    with torch.no_grad():
        model.head.weight.mul_(20)
    source, target = two(model)
    with pytest.raises(UserError, match=message):
        measure.patching(model, **{"source": source, "target": target, **change})


def test_inspect_reads_what_layers_know(tmp_path):
    model = small("vit_micro_gap", img_size=8, patch_size=2, in_chans=1, num_classes=10)
    with torch.no_grad():
        model.head.weight.mul_(20)
    result = vitascope.inspect(
        model,
        data="digits",
        measures=["lens", "patching"],
        images=150,
        out=tmp_path,
        quiet=True,
    )
    assert {"lens", "patching"} == set(result.records)
    page = (tmp_path / "report.html").read_text()
    assert "What each layer already knows" in page
    assert "Activation patching" in page
