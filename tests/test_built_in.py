import re

import pytest

from vitascope.models import create_model
from vitascope.studies.session.built_in_locality import built_in


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("vit_micro", "vit", "plain attention"),
        ("convit_micro", "convit", "gated"),
        ("resnet_micro", "cnn", "convolutions"),
        ("alternet_micro", "other", "beside attention"),
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
