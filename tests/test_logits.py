"""One reading of what a classifier puts out, whoever wrote it."""

from collections import namedtuple

import pytest
import timm
import torch
import torchvision
from torch import nn

from vitascope import create_model, data
from vitascope.capture import heads_of, logits_of
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.training import Teacher, evaluate, recipe, train


def hugging_face(**changes):
    """A Hugging Face classifier of 10 classes with random weights, for digits."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "image_size": 8, "patch_size": 4, "num_channels": 1}
    return ViTForImageClassification(ViTConfig(**sizes, num_labels=10, **changes))


def test_every_kind_of_output_is_read_as_its_logits():
    logits, other = torch.randn(2, 4), torch.randn(2, 4)
    googles = namedtuple("Outputs", ["aux", "logits"])(other, logits)
    for output in (logits, {"logits": logits, "loss": other}, {"out": logits}, googles):
        assert logits_of(output) is logits
    for rest in (torch.zeros(2, 7, 4), None, (other,)):
        assert logits_of((logits, rest)) is logits
    assert logits_of((torch.tensor(0.3), logits)) is logits  # (loss, logits)
    torch.testing.assert_close(logits_of([logits, other]), (logits + other) / 2)
    assert logits_of(logits.half()).dtype == torch.float32


def test_two_heads_stay_apart_where_they_are_asked_for():
    logits, other = torch.randn(2, 4), torch.randn(2, 4)
    assert heads_of((logits, other)) == (logits, other)
    assert heads_of(logits) == (logits, logits)


@pytest.mark.parametrize("output", [None, "a", (), {"a": torch.ones(1, 2), "b": torch.ones(1, 2)}])
def test_what_holds_no_logits_is_refused_in_words(output):
    with pytest.raises(UserError, match="the model puts out"):
        logits_of(output)


def test_models_of_timm_torchvision_hugging_face_and_ours_are_read():
    images = torch.randn(2, 3, 64, 64)
    nets = [timm.create_model("test_vit", img_size=64), create_model("convit_micro", img_size=64)]
    nets += [torchvision.models.googlenet(init_weights=False, num_classes=1000)]
    for net in nets:
        assert logits_of(net.train()(images)).shape[0] == 2
    google = nets[-1]
    torch.manual_seed(0)
    found = logits_of(google(images))
    torch.manual_seed(0)
    torch.testing.assert_close(found, google(images).logits, rtol=0, atol=0)
    assert logits_of(hugging_face()(torch.randn(2, 1, 8, 8))).shape == (2, 10)


def test_a_hugging_face_classifier_is_trained_evaluated_and_teaches(tmp_path):
    digits = data.load("digits")
    plan = recipe("laptop", epochs=1, batch_size=64, scale_epochs=False).override(
        subset=data.Subset(fraction=0.2)
    )
    how = {"quiet": True, "trackers": ()}
    model = hugging_face()
    before = model.classifier.weight.detach().clone()
    run = train(model, digits, plan, tmp_path / "a", **how)
    assert (model.classifier.weight - before).abs().max() > 0
    tests = data.EvalBatches(digits.test, batch_size=512, mean=digits.mean, std=digits.std)
    assert evaluate(model, tests).top1 == pytest.approx(run.final["top1"])
    student = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    taught = plan.override(distillation="soft")
    assert train(student, digits, taught, tmp_path / "b", teacher=Teacher(model), **how).steps


def test_a_hugging_face_folder_is_evaluated_from_the_command_line(tmp_path, capsys):
    hugging_face().save_pretrained(tmp_path)
    assert main(["evaluate", f"hf:{tmp_path}", "--data", "digits"]) == 0
    assert "Top-1 (%)" in capsys.readouterr().out
    words = ["--on", "fgsm,calibration", "--images", "16"]
    assert main(["evaluate", f"hf:{tmp_path}", "--data", "digits", *words]) == 0
