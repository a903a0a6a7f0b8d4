import re

import pytest
import torch
from torchvision.models import SwinTransformer

from vitascope.comparison.pretrained.candidates import Backbone
from vitascope.loading.built_in_locality import built_in
from vitascope.models import create_model


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("vit_micro", "vit", "plain attention"),
        ("convit_micro", "convit", "gated"),
        ("resnet_micro", "cnn", "convolutions"),
        ("alternet_micro", "other", "next to attention"),
        ("convolutional_vit_micro", "other", "neighbourhood"),
        ("vit_micro+lsa", "vit", "none of a token to itself"),
        ("vit_micro+spt+impulse", "vit", "impulse.*overlap"),
        ("vit_micro+stem", "vit", "convolutional stem"),
        ("vit_micro+rope", "vit", "rotary"),
        ("vit_micro+mimetic", "vit", "mimetic"),
    ],
)
def test_locality_is_read_off_the_layers(name, kind, word):
    found, words = built_in(create_model(name))
    assert found == kind
    assert re.search(word, words)


def torchvisions_swin():
    return SwinTransformer([4, 4], 8, [1, 1], [2, 2], [7, 7], num_classes=3)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda: create_model("timm:swin_tiny_patch4_window7_224"), "soft"),
        (lambda: create_model("timm:swinv2_tiny_window8_256"), "soft"),
        (torchvisions_swin, "soft"),
        (lambda: create_model("timm:hiera_tiny_224"), "soft"),
        (lambda: create_model("timm:sam2_hiera_tiny"), "soft"),
        (lambda: create_model("timm:samvit_base_patch16"), "soft"),
        (lambda: create_model("timm:samvit_base_patch16_224"), "none"),  # one window: the image
        (lambda: create_model("timm:beit_base_patch16_224"), "none"),  # one window: the image
        (lambda: create_model("timm:deit_tiny_patch16_224"), "none"),
    ],
)
def test_attention_within_windows_is_local_and_one_window_for_all_is_not(made, kind):
    with torch.device("meta"):
        words = built_in(made())[1]
    assert Backbone(text="", locality=words).kind == kind
    assert ("windows" in words) == (kind == "soft")
