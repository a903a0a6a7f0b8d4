"""The way a layer is computed changes nothing but the time it takes."""

import os
import subprocess
import sys

import pytest
import torch
from timm.layers import Attention
from torch.nn import functional as F

from vitascope import capture, create_model
from vitascope.layers.attention_path import attend, is_plain


@pytest.mark.parametrize("tokens", [5, 48, 49])
def test_both_paths_give_the_kernels_numbers_and_gradients(tokens):
    torch.manual_seed(0)
    qkv = torch.randn(3, 2, 3, tokens, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, tokens, 8, dtype=torch.float64)
    found, expected = attend(*qkv), F.scaled_dot_product_attention(*qkv)
    torch.testing.assert_close(found, expected)
    for out in (found, expected):
        (gradient,) = torch.autograd.grad((out * weight).sum(), qkv)
        first = gradient if out is found else first  # noqa: F821
    torch.testing.assert_close(first, gradient)


def test_the_plain_path_has_second_derivatives():
    qkv = torch.randn(3, 1, 1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: attend(*x), (qkv,))


@pytest.mark.parametrize(("size", "plain"), [(16, True), (32, False)])
def test_a_vit_takes_the_path_that_convit_takes_at_its_size(size, plain):
    models = [create_model(name, img_size=size) for name in ("vit_micro", "convit_micro")]
    layers = [
        layer for model in models for layer in model.modules() if isinstance(layer, Attention)
    ]
    assert len(layers) == 5  # four of the ViT, one of the ConViT
    assert {layer.fused_attn for layer in layers} == {not plain}
    assert is_plain((size // 4) ** 2, 8) is plain


def test_attention_is_captured_on_either_path():
    torch.manual_seed(0)
    model = create_model("vit_micro", img_size=16).eval()
    images = torch.randn(2, 3, 16, 16)
    with capture.attention(model) as plain:
        logits = model(images)
    for layer in model.modules():
        if isinstance(layer, Attention):
            layer.fused_attn = True
    with capture.attention(model) as fused:
        torch.testing.assert_close(model(images), logits)
    assert list(plain) == list(fused)
    torch.testing.assert_close(plain, fused)


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


def test_a_narrow_resnet_leaves_the_memory_of_others_alone_on_a_processor_with_avx2():
    """As the allocator sees it: ended by "corrupted size" or the like where it is not so."""
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}  # read before torch's first convolution
    words = [sys.executable, "-c", NARROW]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-500:]
