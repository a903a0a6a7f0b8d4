"""Recipes are complete, can be written out and changed, and train."""

import vitascope

# isort: split
import subprocess
import sys

import pytest
import timm
import torch
import yaml
from timm.scheduler import CosineLRScheduler

from model_making import few_digits, small_vit
from vitascope.errors import UserError
from vitascope.training import RECIPES, Recipe, load_run, recipe, train
from vitascope.training.trainer.optimizer import build_optimizer, learning_rate, parameter_groups


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_is_written_out_in_full(name, tmp_path):
    settings = recipe(name, epochs=1, batch_size=32)
    model = small_vit(drop_path_rate=settings.drop_path)
    run = train(model, few_digits(64, 40), settings, tmp_path / "run", quiet=True, trackers=())
    assert load_run(tmp_path / "run").recipe == settings
    assert run.final["step"] == 2
    assert 0 < run.final["train_loss"] < 10
    assert 0 <= run.final["top1"] <= run.final["top5"] <= 1
    assert run.final["test_error"] == 1 - run.final["top1"]


@pytest.mark.parametrize("name", ["convit_micro", "vit_micro"])
def test_our_small_models_train(name, tmp_path):
    model = vitascope.create_model(name, img_size=8, in_chans=1, num_classes=10)
    run = train(
        model,
        few_digits(64, 40),
        recipe("laptop", epochs=1, batch_size=32),
        tmp_path / "run",
        quiet=True,
    )
    assert run.final["step"] == 2
    assert list((tmp_path / "run" / "events").rglob("events*"))  # TensorBoard is installed here


def test_a_model_that_does_not_fit_the_images_is_refused_before_a_folder_is_made(tmp_path):
    settings = recipe("laptop", epochs=1, batch_size=32)
    for options, message in (
        ({"num_classes": 7}, "has 7 outputs, the images have 10 classes; build it with num_cl"),
        ({"in_chans": 3}, "the model cannot take images of 1 x 8 x 8"),
        ({"img_size": 16}, "the model cannot take images of 1 x 8 x 8"),
    ):
        sizes = {"img_size": 8, "in_chans": 1, "num_classes": 10, **options}
        model = timm.create_model("vit_tiny_patch16_224", patch_size=4, depth=1, **sizes)
        with pytest.raises(UserError, match=message):
            train(model, few_digits(64, 40), settings, tmp_path / "run", quiet=True, trackers=())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_yaml(name):
    written = yaml.safe_dump(recipe(name).to_dict())
    assert Recipe.from_dict(yaml.safe_load(written)) == recipe(name)


def test_fields_are_overridden_by_their_dotted_names_and_text_is_read():
    changed = recipe(
        "laptop",
        **{
            "epochs": "7",
            "lr": "3e-4",
            "ema": "0.99",
            "clip_grad": "null",
            "augmentation.mixup": "0.2",
            "subset.fraction": 0.1,
            "freeze": "[blocks.0.*, cls_token]",
            "mixed_precision": False,
        },
    )
    assert (changed.epochs, changed.lr, changed.ema, changed.clip_grad) == (7, 3e-4, 0.99, None)
    assert (changed.augmentation.mixup, changed.subset.fraction) == (0.2, 0.1)
    assert (changed.freeze, changed.mixed_precision) == (("blocks.0.*", "cls_token"), "no")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "unknown recipe field 'epoch'; did you mean 'epochs'"),
        ({"augmentation.mixupp": 1}, r"'augmentation.mixupp'; did you mean 'augmentation.mixup'"),
        ({"epochs": "many"}, "recipe field epochs takes int, not 'many'"),
        ({"epochs": 1.5}, "recipe field epochs takes int, not 1.5"),
        ({"epochs": 0}, "epochs must be from 1 to 1000000, not 0"),
        ({"epochs": ".inf"}, "recipe field epochs takes int, not '.inf'"),
        ({"subset.fraction": 1e-320}, "30 epochs become inf at fraction"),
        ({"drop_path": -1}, r"drop_path must be in \[0, 1\), not -1"),
        ({"drop_path": 1}, r"drop_path must be in \[0, 1\), not 1"),
        ({"drop_path": ".nan"}, r"drop_path must be in \[0, 1\), not nan"),
        ({"augmentation.mixup": ".nan"}, "augmentation.mixup must be a finite number, not nan"),
        ({"weight_decay": ".inf"}, "weight_decay must be a finite number, not inf"),
        ({"keep_epochs": "[-1, 2]"}, "keep_epochs must be 0 or more, not -1"),
        ({"keep_epochs": "[2, 99]"}, r"keep_epochs names epochs \[99\]; the run has 30"),
        ({"checkpoint_epochs": 0}, "checkpoint_epochs must be from 1"),
        ({"clip_grad": 0}, "clip_grad must be above 0, not 0"),
        ({"augmentation": 5}, "augmentation has fields of its own, augmentation.crop and others"),
        ({"schedule": "cosin"}, "schedule must be one of cosine, linear, constant, not 'cosin'"),
        ({"sam": 0.1, "mixed_precision": "fp16"}, "sam needs true gradients"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_possible(changes, message):
    with pytest.raises(UserError, match=message):
        recipe("laptop", **changes)


def test_an_unknown_recipe_and_an_unknown_optimizer_are_named():
    with pytest.raises(UserError, match="unknown recipe 'latop'; did you mean 'laptop'"):
        recipe("latop")
    with pytest.raises(UserError, match="unknown optimizer 'adamv'"):
        build_optimizer(small_vit(), recipe("laptop", optimizer="adamv"))


def test_the_lr_of_an_epoch_is_that_of_timms_scheduler():
    deit = recipe("deit")
    lr = learning_rate(deit, steps_per_epoch=10)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=deit.base_lr)
    oracle = CosineLRScheduler(
        optimizer, t_initial=300, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6
    )
    for epoch in (0, 1, 4, 5, 6, 150, 299):
        oracle.step(epoch)
        assert lr(10 * epoch) == lr(10 * epoch + 9)
        assert lr(10 * epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)


def test_the_lr_by_step_starts_at_the_warm_up_and_ends_at_the_least():
    laptop = recipe("laptop")
    lr = learning_rate(laptop, steps_per_epoch=10)
    assert lr(0) == laptop.warmup_lr
    assert lr(10) == pytest.approx((laptop.warmup_lr + laptop.lr) / 2)
    assert lr(150) == pytest.approx((laptop.lr + laptop.min_lr) / 2)
    assert lr(300) == pytest.approx(laptop.min_lr)


def test_a_tenth_of_the_images_means_ten_times_the_epochs_and_the_same_schedule():
    full, tenth = recipe("deit"), recipe("deit", **{"subset.fraction": 0.1})
    assert tenth.total_epochs == 3000
    assert learning_rate(tenth, 1)(1500) == learning_rate(full, 10)(1500)
    assert learning_rate(tenth, 1)(20) == pytest.approx(learning_rate(full, 10)(20), rel=0.01)
    assert recipe("deit", scale_epochs=False, **{"subset.fraction": 0.1}).total_epochs == 300


def test_vectors_and_what_the_model_names_are_not_decayed_and_gates_travel_faster():
    model = small_vit()
    model.gating_param = torch.nn.Parameter(torch.ones(3))
    groups = parameter_groups(model, recipe("laptop"))
    found = {}
    for group in groups:
        for parameter in group["params"]:
            name = next(n for n, p in model.named_parameters() if p is parameter)
            found[name] = (group["weight_decay"], group["lr_scale"])
    assert found["blocks.0.attn.qkv.weight"] == (0.05, 1.0)
    assert found["blocks.0.attn.qkv.bias"] == (0.0, 1.0)
    assert found["pos_embed"] == (0.0, 1.0)  # model.no_weight_decay()
    assert found["gating_param"] == (0.0, 10.0)
    assert len(found) == len(list(model.parameters()))


def test_listing_recipes_does_not_load_torch():
    script = "import sys; from vitascope.training import recipe; recipe('deit'); "
    script += "print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("field", ["mixed_precision", "lr", "augmentation.crop"])
def test_an_endless_value_is_shown_in_part(field):
    with pytest.raises(UserError) as caught:
        recipe("laptop", **{field: "9" * 5000})
    assert len(str(caught.value)) < 600
