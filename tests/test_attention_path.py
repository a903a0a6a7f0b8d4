"""The way a layer is computed changes nothing but the time it takes."""

import os
import subprocess
import sys

import pytest
import torch
from timm.layers import Attention
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitascope import capture, create_model, measure
from vitascope.layers import attention_path, self_attention
from vitascope.layers.attention_path import attend, fused, is_plain
from vitascope.layers.self_attention import SelfAttention


@pytest.mark.parametrize(
    ("tokens", "width"), [(5, 8), (48, 8), (49, 8), (49, 3), (49, 16), (9, 17)]
)
def test_every_path_gives_the_kernels_numbers_and_gradients(tokens, width):
    torch.manual_seed(0)
    qkv = torch.randn(3, 2, 3, tokens, width, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, tokens, width, dtype=torch.float64)
    found, expected = attend(*qkv), F.scaled_dot_product_attention(*qkv)
    torch.testing.assert_close(found, expected)
    for out in (found, expected):
        (gradient,) = torch.autograd.grad((out * weight).sum(), qkv)
        first = gradient if out is found else first  # noqa: F821
    torch.testing.assert_close(first, gradient)


def test_the_plain_path_has_second_derivatives():
    qkv = torch.randn(3, 1, 1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: attend(*x), (qkv,))


def test_narrow_heads_with_a_mask_and_a_scale_give_the_kernels_numbers():
    torch.manual_seed(0)
    qkv = torch.randn(3, 2, 3, 60, 8, dtype=torch.float64)
    how = {"attn_mask": torch.randn(60, 60, dtype=torch.float64), "scale": 0.3}
    torch.testing.assert_close(fused(*qkv, **how), F.scaled_dot_product_attention(*qkv, **how))


def calls_of_the_kernel(monkeypatch, model, size):
    """Widths of the heads that the fused kernel was given."""

    def watched(query, *args, **kwargs):
        widths.append(query.shape[-1])
        return kernel(query, *args, **kwargs)

    widths, kernel = [], F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    model(torch.randn(2, 3, size, size))
    monkeypatch.undo()
    return widths


@pytest.mark.parametrize("name", ["vit_micro", "convit_micro"])
def test_a_vit_takes_the_path_that_convit_takes_at_its_size(name, monkeypatch):
    model = create_model(name, dynamic_img_size=True)
    assert calls_of_the_kernel(monkeypatch, model, 16) == []  # 16 patches: plain products
    assert calls_of_the_kernel(monkeypatch, model, 32) == [16] * 4  # heads of 8, filled up
    mini = create_model(name.replace("micro", "mini"))
    assert calls_of_the_kernel(monkeypatch, mini, 32) == [16] * 4  # as they are
    assert is_plain(16, 8)
    assert not is_plain(64, 8)


def test_nothing_is_filled_up_where_multiply_adds_are_counted(monkeypatch):
    model = create_model("vit_micro")
    with sdpa_kernel(SDPBackend.MATH):
        assert calls_of_the_kernel(monkeypatch, model, 32) == [8] * 4


@pytest.mark.parametrize("how", [{"qk_norm": True, "norm_layer": torch.nn.LayerNorm}, {}])
@pytest.mark.parametrize("tokens", [9, 60])
def test_our_layer_gives_what_timms_gives(how, tokens):
    torch.manual_seed(0)
    ours, theirs = (
        kind(24, 3, qkv_bias=True, **how).double() for kind in (SelfAttention, Attention)
    )
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, tokens, 24, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
    mask = torch.randn(tokens, tokens, dtype=torch.float64)
    torch.testing.assert_close(ours(x, attn_mask=mask), theirs(x, attn_mask=mask))
    torch.testing.assert_close(ours(x, is_causal=True), theirs(x, is_causal=True))


def test_dropout_of_the_map_and_the_plain_path_are_timms(monkeypatch):
    layer, x = SelfAttention(24, 3, attn_drop=0.5), torch.randn(2, 60, 24)
    monkeypatch.setattr(self_attention, "attend", None)
    assert not torch.equal(layer.train()(x), layer(x))
    layer.eval().fused_attn = False
    assert torch.equal(layer(x), layer(x))


def test_attention_is_captured_on_either_path(monkeypatch):
    torch.manual_seed(0)
    model = create_model("vit_micro", img_size=16).eval()
    images = torch.randn(2, 3, 16, 16)
    with capture.attention(model) as plain:
        logits = model(images)
    monkeypatch.setattr(attention_path, "is_plain", lambda tokens, width: False)
    with capture.attention(model) as kernels:
        torch.testing.assert_close(model(images), logits)
    assert list(plain) == list(kernels) == [f"blocks.{i}.attn" for i in range(4)]
    torch.testing.assert_close(plain, kernels)
    far = measure.nonlocality(model, [images]).per_layer()
    monkeypatch.undo()
    again = measure.nonlocality(model, [images]).per_layer()
    torch.testing.assert_close(again, far, rtol=1e-5, atol=1e-5)


def test_maps_of_a_resnet_have_their_channels_last():
    model = create_model("alternet_micro", num_classes=3).eval()
    images = torch.randn(2, 3, 16, 16)
    _, found = model.forward_intermediates(images)
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in found)


NARROW = """
import torch
from vitascope import create_model
model = create_model("resnet_micro", num_classes=3, widths=[4, 8, 8]).train()
for _ in range(10):
    model(torch.randn(16, 3, 8, 8)).sum().backward()
print("whole")
"""


@pytest.mark.slow
def test_a_narrow_resnet_leaves_the_memory_of_others_alone_on_a_processor_with_avx2():
    """As the allocator sees it: ended by "corrupted size" or the like where it is not so."""
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}  # read before torch's first convolution
    words = [sys.executable, "-c", NARROW]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-500:]
