"""The compact convolutional transformer: published size, pooling, and the order of its block."""

import pytest
import torch

import vitascope
from vitascope.errors import UserError


def test_it_has_the_published_size():
    model = vitascope.create_model("cct_2_3x2", num_classes=10)
    convolutions = 3 * 64 * 9 + 64 * 128 * 9
    block = 3 * 128 * 128 + 3 * (128 * 128 + 128) + 2 * 2 * 128  # qkv; projection and MLP; norms
    rest = 64 * 128 + (128 + 1) + 2 * 128 + (10 * 128 + 10)  # positions, pooling, norm, classifier
    assert sum(p.numel() for p in model.parameters()) == convolutions + 2 * block + rest == 283_723


def test_pooling_is_a_mean_weighted_by_softmax():
    model = vitascope.create_model("cct_2_3x2", num_classes=10).eval()
    tokens = torch.randn(2, 64, 128)
    with torch.no_grad():
        model.attention_pool.weight.zero_()
        torch.testing.assert_close(model.pool(tokens), tokens.mean(1))
        model.attention_pool.weight[0, 0] = 1e4  # looks at the largest first channel alone
        best = tokens[:, :, 0].argmax(1)
        torch.testing.assert_close(model.pool(tokens), tokens[torch.arange(2), best])
    assert model.pool(tokens, "") is tokens


def test_the_second_norm_is_in_the_stream():
    block = vitascope.create_model("cct_2_3x2").blocks[0].eval()
    x = torch.randn(2, 9, 128)
    with torch.no_grad():
        block.mlp.fc2.weight.zero_()
        out = block(x)
        torch.testing.assert_close(out, block.norm2(x + block.attn(block.norm1(x))))
        torch.testing.assert_close(out.mean(-1), torch.zeros(2, 9), atol=1e-5, rtol=0)


def test_patches_that_are_no_power_of_two_are_refused():
    with pytest.raises(UserError, match="power of two"):
        vitascope.create_model("cct_2_3x2", patch_size=6, img_size=36)
