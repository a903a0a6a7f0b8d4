"""The folder of a run is named by a key; the same training must find its folder again."""

import pytest

from vitascope.runs.spec import Reading, Training

PLAIN = Training(model="vit_micro", data="digits", recipe="laptop")
TEACHER = Training(model="resnet_micro", data="digits", recipe="laptop", epochs=3)


@pytest.mark.parametrize(
    ("training", "key"),
    [
        (PLAIN, "vit_micro-1bb56bff"),
        (PLAIN.but(epochs=4), "vit_micro-936cb41f"),
        (PLAIN.but(data="folder:photos", image_size=64, fold=(0, 5)), "vit_micro-d9836f6b"),
        (PLAIN.but(changes={"subset.fraction": 0.1}, subset_per_seed=False), "vit_micro-72f5e397"),
        (PLAIN.but(changes={"lr": 0.004}, validation=0.2), "vit_micro-2ddff90f"),
        (
            PLAIN.but(model="convit_micro", model_args={"locality_strength": 2.0}),
            "convit_micro-a092d885",
        ),
        (
            PLAIN.but(model="timm:resnet18", start="pretrained", recipe="finetune"),
            "timm_resnet18-59006dc7",
        ),
        (PLAIN.but(teacher=TEACHER), "vit_micro-885b072c"),
        (PLAIN.but(recipe="deit", epochs=300, model="convit_small+cb"), "convit_small_cb-540eee79"),
        (PLAIN.but(recipe="cifar", changes={"augmentation.mixup": 0.0}), "vit_micro-69a7c223"),
    ],
)
def test_the_key_of_a_training_stays(training, key):
    assert training.key == key


def test_the_key_of_a_measurement_stays():
    assert Reading(name="nonlocality", options={"images": 64}).key == "nonlocality-4c324c46"
